"""Columns that several tables of the operations have."""

from __future__ import annotations

from nsight_prof.reports.page import Column, Text
from nsight_prof.reports.studies.llm_kernels.points import Point

RATES = (
    Column[Point](Text("time"), lambda point: point.time),
    Column[Point](Text("compute rate"), lambda point: point.flop_rate, "TFLOP/s"),
    Column[Point](Text("compulsory bytes"), lambda point: point.byte_rate, "GB/s"),
    Column[Point](Text("of its roof"), lambda point: point.fraction),
    Column[Point](Text("roof"), lambda point: point.roof or None),
    Column[Point](Text("counted FLOPs"), lambda point: point.flops_ratio),
    Column[Point](Text("DRAM bytes"), lambda point: point.bytes_ratio),
)
DETAILS = 6
"""Rows of a table of details that a page shows."""
COUNTED = Text("Counted FLOPs and DRAM bytes are those of ncu over those of the formula.")
