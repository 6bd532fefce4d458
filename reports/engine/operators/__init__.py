"""Operators under the torch profiler, joined to the kernels of the trace."""
