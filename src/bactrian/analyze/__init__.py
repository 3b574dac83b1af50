"""Analysis of runs: behaviours, statistics with confidence intervals, and reports."""
