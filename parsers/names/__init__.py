"""Short names and categories of kernels."""
