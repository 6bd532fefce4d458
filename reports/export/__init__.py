"""Writes a run for other tools: a timeline for trace viewers, tables for data frames."""
