"""Compares the ranks of a job: clocks, waits in collectives, and where the time of each goes."""
