"""One session: its agents, the loop, the order of speakers, and the endings."""
