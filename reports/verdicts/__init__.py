"""All findings of a run, ranked by what they gain, and its time by what limits it."""
