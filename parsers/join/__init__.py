"""Joins launches of a trace with counters, and matrix products with kernels."""
