"""Makes the tables and figures of the paper, each by a recipe of a few lines in ``items.toml``."""
