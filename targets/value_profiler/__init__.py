"""Records what the operators of a torch program compute: how often the same, and who reads it."""
