"""``bactrian train``."""
