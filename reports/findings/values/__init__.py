"""What the values of operators tell: work that is repeated, not read, or done on zeros."""
