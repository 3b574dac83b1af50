"""A role-play: agents, turns, critics, societies, and the rules that end it."""
