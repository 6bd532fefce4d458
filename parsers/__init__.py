"""Reads Nsight exports into tidy tables; holds what writer and reader share."""

PROCESS_IS_PROF = False
"""Whether no program of a user runs in this process, so that pandas may be set up for prof."""
ALLOCATIONS = 1_000_000
"""New containers of a process of prof until Python looks for cycles among all of them.

A report makes a million, which nearly all live to its end, and two thousand in cycles: looking
after each 700 (Python's default) is an eighth of its time, after 50,000 a twentieth.
"""
