"""Many sessions from one recipe: what is left to do, who does it, and what it costs."""
