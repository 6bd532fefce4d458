"""Captures and analyses jobs of many ranks."""
