"""Reads traces of the torch profiler."""
