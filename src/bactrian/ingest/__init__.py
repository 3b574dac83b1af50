"""Taking in: what others made becomes a run."""
