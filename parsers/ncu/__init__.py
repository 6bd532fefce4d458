"""Turns what Nsight Compute saved (.ncu-rep, CSV, text tables) into tidy frames in base units."""

from __future__ import annotations

from pathlib import Path

from nsight_prof.parsers.ncu.capture import NcuCapture
from nsight_prof.parsers.ncu.csv_file import read_csv
from nsight_prof.parsers.ncu.rep_file import can_read_rep, read_rep

__all__ = ["NcuCapture", "can_read_rep", "read_csv", "read_ncu", "read_rep"]


def read_ncu(path: Path) -> NcuCapture:
    """Read what ncu saved: an .ncu-rep, or a CSV or text output; .xz too.

    Raises:
        NoKernels: nothing was profiled.
        PermissionRefused: the driver refused the counters.
        ToolMissing: an .ncu-rep, and ncu_report is not installed.
        ArtifactUnreadable: damaged, cut, or something else.
    """
    name = path.name.removesuffix(".xz")
    return read_rep(path) if name.endswith(".ncu-rep") else read_csv(path)
