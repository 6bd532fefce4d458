"""Explains tidy tables: rooflines, bounds, findings, plots and rendered reports."""
