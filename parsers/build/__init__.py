"""Makes the tables of a run from what its steps left: read, joined, held against the roofs."""
