"""Runs untrusted programs: containment, limits and results."""
