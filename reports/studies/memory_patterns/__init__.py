"""DRAM as programs see it: mixes of reads and writes, strides, and gathers."""

from nsight_prof.reports.studies.memory_patterns.section import section

__all__ = ["section"]
