"""Reads the records of serving targets, and the shapes of models."""
