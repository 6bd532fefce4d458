"""Probes of what a GPU can really do: the roofs of its rooflines."""
