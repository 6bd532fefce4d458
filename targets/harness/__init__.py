"""The measurement of all benchmark targets: sampling, clocks, statistics, records."""
