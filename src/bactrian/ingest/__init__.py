"""Imports conversations of other programs into a run."""
