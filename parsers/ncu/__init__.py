"""Nsight Compute reports and their CSV exports."""
