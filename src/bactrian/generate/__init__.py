"""Generates many sessions from one recipe: scheduling, execution and cost."""
