"""Shapes of matrix products: wave quantization, small batches and odd sizes."""
