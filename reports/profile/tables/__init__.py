"""The tables of a profile report: which rows a page shows, and what a column says of each."""
