"""Collectives between the GPUs of a machine: bandwidth by operation, GPUs and message size."""
