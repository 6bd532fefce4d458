"""Reads the records of measured cases."""
