"""Pages of a profile run: a short report, its details, and a page for each kernel."""
