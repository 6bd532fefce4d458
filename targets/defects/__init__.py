"""Small programs with one planted defect each, and the same programs repaired."""
