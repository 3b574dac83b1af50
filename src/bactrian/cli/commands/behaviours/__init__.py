"""``bactrian behaviours``: list, define, train and label behaviours."""
