"""Turns an .ncu-rep file into an `NcuCapture` in full precision, through NVIDIA's ncu_report."""

from __future__ import annotations

import math
from pathlib import Path
from types import ModuleType
from typing import Any

from nsight_prof.parsers.errors import ArtifactUnreadable, NoKernels, ToolMissing
from nsight_prof.parsers.ncu import nvtx
from nsight_prof.parsers.ncu.blocks import MAGIC, Frame, read_frame
from nsight_prof.parsers.ncu.capture import Gatherer, Launch, NcuCapture
from nsight_prof.parsers.ncu.rules import rules_of_action
from nsight_prof.parsers.reading import reading
from nsight_prof.parsers.run.directory import plain_file
from nsight_prof.parsers.run.sentences import stored

# Lists of the names of other metrics, which ncu's own pages use; its CSV leaves them out too.
_LISTS = ("breakdown:", "group:")


def read_rep(path: Path) -> NcuCapture:
    """Read an .ncu-rep (or .ncu-rep.xz) of any version that ncu_report knows.

    Values are in base units. Metrics that have values per instance only (a source line, an SM) and
    none for the whole result are left out, as in ncu's CSV.

    Raises:
        ToolMissing: the package ncu_report is not installed.
        ArtifactUnreadable: damaged, cut, or no .ncu-rep.
        NoKernels: a good report without a result.
    """
    library = _library(path)
    with plain_file(path) as unpacked:
        frame = _frame(path, unpacked)
        try:
            report = library.load_report(str(unpacked))
        except Exception as error:  # the wrapper raises RuntimeError, and SystemError when damaged
            raise _damaged(path, error) from error
        with reading(path, "an ncu report", "copy it again, or profile again"):
            return _gather(report, frame, library, path)


def can_read_rep() -> bool:
    """Return whether ncu_report is installed."""
    try:
        import ncu_report  # noqa: F401
    except ImportError:
        return False
    return True


def _library(path: Path) -> ModuleType:
    try:
        import ncu_report
    except ImportError as error:
        raise ToolMissing(
            f"{path} needs NVIDIA's package ncu_report to be read ({error})",
            "pip install 'nsight-prof[ncu]', or export a CSV beside it: "
            f"LC_ALL=C ncu --config-file off --import {path} --csv --page raw > FILE.csv",
        ) from error
    module: ModuleType = ncu_report
    return module


def _frame(path: Path, unpacked: Path) -> Frame:
    try:
        with unpacked.open("rb") as stream:
            start = stream.read(64)
        if start.startswith(b"version https://git-lfs"):
            raise ArtifactUnreadable(
                f"{path} is a git LFS pointer, not the report itself", "fetch it: git lfs pull"
            )
        if not start.startswith(MAGIC):
            raise ArtifactUnreadable(f"{path} is not an .ncu-rep", "name a report of ncu")
        return read_frame(unpacked)
    except OSError as error:
        raise ArtifactUnreadable(f"{path}: {error.strerror}", "check the path") from error
    except ValueError as error:
        raise _damaged(path, error) from error


def _damaged(path: Path, error: Exception) -> ArtifactUnreadable:
    return ArtifactUnreadable(
        f"{path} cannot be read: {error}",
        "the file is cut or damaged (was ncu killed, or the disk full?): copy it again, or profile "
        "again",
    )


def _gather(report: Any, frame: Frame, library: ModuleType, path: Path) -> NcuCapture:
    gatherer = Gatherer("ncu_report")
    for result_range in report:
        for action in result_range:
            _add(action, gatherer, library)
    if not gatherer.launches:
        raise NoKernels(f"{path} holds no result", "check the kernel filter of the ncu run")
    # ncu_report keeps the order of the file (checked against ncu's CSV on reports of ten versions).
    if len(frame.pids) == len(gatherer.launches):
        for launch, pid in zip(gatherer.launches, frame.pids, strict=True):
            launch.pid = pid or None
    capture = gatherer.capture(frame.version)
    for launch in gatherer.launches:
        if launch.workload == "kernel" and launch.grid is None:
            gatherer.warn(
                stored(
                    "ncu could not profile result {profile}, {name}: no grid",
                    profile=launch.profile,
                    name=launch.name,
                )
            )
    return capture


def _add(action: Any, gatherer: Gatherer, library: ModuleType) -> None:
    kinds = library.IAction
    launch = Launch(
        profile=len(gatherer.launches),
        name=action.name(kinds.NameBase_DEMANGLED),
        mangled_name=action.name(kinds.NameBase_MANGLED) or None,
        function_name=action.name(kinds.NameBase_FUNCTION) or None,
        nvtx=nvtx.path_of_state(action.nvtx_state()),
        workload=_workload(action, kinds),
    )
    gatherer.launches.append(launch)
    for name in action.metric_names():
        if not name.startswith(_LISTS):
            _put(launch.profile, action.metric_by_name(name), gatherer, library.IMetric)
    gatherer.rules += rules_of_action(action, launch.profile, library)


def _workload(action: Any, kinds: Any) -> str:
    found = action.workload_type()
    for word in ("KERNEL", "GRAPH", "RANGE", "CMDLIST", "SUBGRID_SCHEDULE"):
        if found == getattr(kinds, f"WorkloadType_{word}", None):
            return word.lower()
    return "other"


def _put(profile: int, metric: Any, gatherer: Gatherer, kinds: Any) -> None:
    """Add one metric by its kind: as_double() gives 0 for what it cannot cast (2026.3.1)."""
    name, kind, unit = metric.name(), metric.kind(), metric.unit()
    if name.endswith(".pct"):
        # "branches" for a percentage in a report of ncu 2021.1 (ncu_report 2026.3.1).
        unit = "%"
    if not metric.has_value():
        if not metric.num_instances():
            gatherer.add_text(profile, name, None)
    elif kind in (kinds.ValueKind_DOUBLE, kinds.ValueKind_FLOAT):
        gatherer.add(profile, name, metric.as_double(), unit)
    elif kind in (kinds.ValueKind_UINT32, kinds.ValueKind_UINT64):
        gatherer.add(profile, name, float(metric.as_uint64()), unit)
    elif kind == kinds.ValueKind_STRING:
        if text := metric.as_string():
            gatherer.add_text(profile, name, text)
    else:
        gatherer.add(profile, name, math.nan, unit)
