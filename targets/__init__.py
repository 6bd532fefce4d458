"""Workloads that prof profiles; each runs by itself and imports nothing of prof."""
