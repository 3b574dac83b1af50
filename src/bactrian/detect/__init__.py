"""The learned detector of the paper's four failures of cooperation: features of a turn, models, loops, training."""
