"""Plots: view model in, matplotlib figure out."""
