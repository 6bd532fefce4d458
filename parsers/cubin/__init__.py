"""Reads compiled kernels (cubins), as reports of ncu hold them."""
