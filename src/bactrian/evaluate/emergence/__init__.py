"""Measures whether knowledge emerges as a model is trained on one kind of data after another (paper, section 5.2)."""
