"""Votes of people on pairs of solutions: which pair comes next, how a vote is kept, and what all votes say."""
