"""Figures: maps of texts and charts, for pages and for files."""
