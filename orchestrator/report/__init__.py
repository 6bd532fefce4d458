"""Renders the report of a run under its lock."""
