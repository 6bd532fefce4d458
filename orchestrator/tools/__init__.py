"""Nsight tools: pure argument builders, versions and explanations of their logs."""
