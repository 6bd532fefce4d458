"""Commands about the results of many runs."""
