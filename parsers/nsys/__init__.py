"""Nsight Systems exports: a SQLite trace or a kernel summary becomes tidy tables."""
