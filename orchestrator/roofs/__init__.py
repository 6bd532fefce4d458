"""Measured roofs that are kept for later runs, and how they are shown."""
