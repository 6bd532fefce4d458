"""Compares two runs: what got faster, slower, new or gone, and what of it is noise."""
