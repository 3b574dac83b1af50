"""Evaluations from Python: code, and comparisons of solutions."""
