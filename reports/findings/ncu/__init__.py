"""What ncu's own rules say of kernels, beside what prof says."""
