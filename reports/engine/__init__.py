"""Sections of a profiled serving engine; each is None where a run has no data for it."""
