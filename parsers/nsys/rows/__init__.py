"""Rows of a trace: calls, kernels, ranges, copies, GPUs."""
