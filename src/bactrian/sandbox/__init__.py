"""Runs programs that nobody trusts: containment, limits and what came of it."""
