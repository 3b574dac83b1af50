"""Compares the solutions of role-plays with single answers (paper, section 5.1)."""
