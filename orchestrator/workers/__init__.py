"""Does the same work for each of many ranks: in this process, in several, or on a cluster."""
