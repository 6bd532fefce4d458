"""Reads Nsight exports into tidy tables; holds what writer and reader share."""

PROCESS_IS_PROF = False
"""Whether no program of a user runs in this process, so that pandas may be set up for prof."""
