"""Measures the quality of models and conversations."""
