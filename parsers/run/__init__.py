"""The run directory: manifest, artifacts, selection."""
