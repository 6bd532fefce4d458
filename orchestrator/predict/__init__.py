"""Makes the run directory of a prediction from recorded runs."""
