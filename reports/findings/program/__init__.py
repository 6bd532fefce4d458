"""Rules about the whole program: one module for each family."""
