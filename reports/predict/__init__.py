"""The report of a prediction: how fast a model will serve, or how far predictions lay off."""
