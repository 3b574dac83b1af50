"""Exports a run to files that other tools read; ``formats/`` has a file for each format."""
