"""Runs a plan: steps, journal, replay, resume, the state of the machine."""
