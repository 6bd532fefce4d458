"""Writes a report: markdown, HTML, JSON and pictures, from views and sections."""
