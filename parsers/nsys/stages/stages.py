"""Stages of the program: which NVTX range instances they are, and where the GPU time goes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nsight_prof.parsers.names.ranges import Stages, label, name_stages, named_patterns
from nsight_prof.parsers.nsys.rows.calls import Calls
from nsight_prof.parsers.nsys.rows.nvtx import NvtxEvents
from nsight_prof.parsers.nsys.rows.ranges import Ranges, find_ranges
from nsight_prof.parsers.nsys.sqlite.codes import Codebook, counts
from nsight_prof.parsers.nsys.sqlite.database import Array
from nsight_prof.parsers.nsys.stages.followers import find_followers, follow_steps
from nsight_prof.parsers.nsys.stages.inherit import find_heirs, inherit_stages
from nsight_prof.parsers.nsys.stages.paths import DEEPEST, attribute
from nsight_prof.parsers.nsys.stages.work import Attributed
from nsight_prof.parsers.run.sentences import stored


def attribute_calls(nvtx: NvtxEvents, calls: Calls, tids: Array, stages: Stages) -> Attributed:
    """Attribute all calls to the NVTX ranges; `tids` is the globalTid of each thread of `nvtx`."""
    ranges = find_ranges(nvtx, calls, tids)
    warnings = _warnings(ranges, calls, stages)
    order, count = calls.order, calls.count
    stage_of_name = name_stages(ranges.names, stages)
    is_stage = np.array([stage is not None for stage in stage_of_name], bool)
    heirs = find_heirs(calls, ranges, is_stage)
    followers = find_followers(calls, ranges)
    del calls  # its axis is as long as the trace
    found = attribute(ranges, len(order), is_stage)
    if found.deepest > DEEPEST:
        warnings.append(
            stored(
                "up to {deepest:,} NVTX ranges are open at once: the {limit:,} outermost count",
                deepest=found.deepest,
                limit=DEEPEST,
            )
        )
    if followed := follow_steps(followers, found.instance):
        warnings.append(
            stored(
                "{followed} CUDA calls after the end of vLLM's range of an engine step count "
                "to the stage of that step: they sample its tokens",
                followed=followed,
            )
        )
    if inherited := inherit_stages(heirs, ranges, found.instance):
        warnings.append(
            stored(
                "{inherited} CUDA calls of threads that have no NVTX range count to the stage "
                "that another thread has open: torch runs the backward pass on such a thread",
                inherited=inherited,
            )
        )
    del heirs, followers
    ranges.first = ranges.last = ranges.order = np.empty(0, np.int32)  # long, and done with
    path, paths = _used(_scattered(found.path, order, count, 0), found.paths)
    instance = _scattered(found.instance, order, count, -1)
    del order
    labels = [label(name) for name in ranges.names]
    used, instance = _used_ranges(instance, len(ranges.start))
    stage, names = _stages(ranges, used, stage_of_name)
    columns = (stage, ranges.start[used], ranges.end[used])
    return Attributed(path, paths, labels, instance, names, *columns, warnings)


def _scattered(values: Array, order: Array, count: int, outside: int) -> Array:
    result = np.full(count, outside, np.int32)
    result[order] = values
    return result


def _used_ranges(instance: Array, ranges: int) -> tuple[Array, Array]:
    """The ranges that are a stage of a call, and `instance` as indices into them."""
    used = np.zeros(ranges + 1, bool)
    used[instance] = True
    used[-1] = False  # -1 is no range
    renumbered = np.cumsum(used, dtype=np.int32) - np.int32(1)
    renumbered[-1] = -1
    return np.flatnonzero(used), renumbered[instance]


def _used(path: Array, paths: list[tuple[int, ...]]) -> tuple[Array, list[tuple[int, ...]]]:
    """Leave out paths in which no call stands, but not the empty one."""
    used = counts(path, len(paths)) > 0
    used[0] = True
    renumbered = np.cumsum(used, dtype=np.int32) - 1
    return renumbered[path], [paths[code] for code in np.flatnonzero(used)]


def _stages(
    ranges: Ranges, used: Array, stage_of_name: Sequence[str | None]
) -> tuple[Array, list[str]]:
    """Stage of each range of `used` as a code, and what the codes stand for."""
    book: Codebook[str] = Codebook()
    by_start = used[np.argsort(ranges.start[used], kind="stable")]
    names = ranges.name[by_start]
    for code in names[np.sort(np.unique(names, return_index=True)[1])].tolist():
        book.code(stage_of_name[code] or "")
    known = book.keys
    codes = {name: code for code, name in enumerate(known)}
    of_name = np.array([codes.get(name or "", -1) for name in stage_of_name] + [-1], np.int32)
    return of_name[ranges.name[used]], known


def _warnings(ranges: Ranges, calls: Calls, stages: Stages) -> list[str]:
    found = []
    if calls.missing:
        found.append(
            stored(
                "{missing} of {count} CUDA calls that issued GPU work are not in the trace: "
                "their operations belong to no NVTX range",
                missing=calls.missing,
                count=calls.count,
            )
        )
    if ranges.across_threads:
        found.append(
            stored(
                "{across_threads} NVTX ranges end on another thread than they start on: "
                "kernels are not attributed to them",
                across_threads=ranges.across_threads,
            )
        )
    for stage, pattern in named_patterns(stages):
        if not any(name_stages(ranges.names, [pattern])):
            present = ", ".join(sorted({label(name) for name in ranges.names})[:8]) or "none"
            text = repr(pattern) if stage is None else f"{stage} ({pattern!r})"
            found.append(
                stored(
                    "no NVTX range around GPU work fits stage {text} (there are: {present})",
                    text=text,
                    present=present,
                )
            )
    return found
