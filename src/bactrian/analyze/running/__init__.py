"""Runs the code of solutions in a sandbox, for those who ask for it."""
