"""Jinja templates of the reports (data only)."""
