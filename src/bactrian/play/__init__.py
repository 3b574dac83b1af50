"""One session: two agents, the loop, whose turn it is, and when it ends."""
