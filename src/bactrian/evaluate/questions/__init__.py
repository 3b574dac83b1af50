"""Sets of questions on which two models are compared, as in table 2 of the paper."""
