"""Trains a model on conversations in stages, and writes each stage in the format that ``play`` reads."""
