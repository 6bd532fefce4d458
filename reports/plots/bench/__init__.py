"""Pictures of measured cases: bars, lines, and quantities over the time of a run."""
