"""Rules about single kernels: what a kernel misses, what that costs, and what to do."""
