"""The report of a sweep: what changes over its variants."""
