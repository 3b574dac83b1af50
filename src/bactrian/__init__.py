"""Bactrian: two agents role-play until a task is solved. Importing this package does no work."""

__version__ = "0.1.0"
