"""Runs of many sessions: their plan, schedule, cost and progress."""
