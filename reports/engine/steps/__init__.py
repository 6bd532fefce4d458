"""Time of each engine step, and what the GPU waited for."""
