"""Sections of a report about measured cases: one a benchmark target."""
