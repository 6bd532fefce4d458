"""Findings of a profile report: their model, the rules that make them, and their ranking."""
