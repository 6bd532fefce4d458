"""Steps of an inference engine: their work, gaps, collectives and modules."""
