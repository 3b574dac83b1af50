"""Runs the code of solutions in a sandbox; only if requested."""
