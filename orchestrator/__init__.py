"""Decides and runs: recipes, plans, Nsight processes, and the command line."""
