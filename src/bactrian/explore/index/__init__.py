"""The side file of a run: its lists, counts and full-text index. It can be deleted at any time."""
