"""Results of runs over commits: how they are kept, and where they changed."""
