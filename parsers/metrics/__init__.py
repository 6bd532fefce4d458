"""The catalogue of metrics, and the formulas of derived columns."""
