"""Batches: requests that wait for each other, and cost half."""
