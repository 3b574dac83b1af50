"""Experiments on the emergence of knowledge: trainings composed with evaluations."""
