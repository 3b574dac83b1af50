"""Reading runs back: which sessions, what they say, and how far a run has come."""
