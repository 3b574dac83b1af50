"""Frozen, typed records of everything that is played and stored."""
