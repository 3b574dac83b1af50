"""Where sessions lie: one schema, its migrations, and a writer that acknowledges what is on disk."""
