"""DRAM as programs see it: mixes of reads and writes, strides, and gathers."""
