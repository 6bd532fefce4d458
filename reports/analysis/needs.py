"""Finds what the work of a kernel needs at least: bytes, and the size of a matrix product.

Counters tell what a kernel moved, not what it had to. The torch profiler's shapes (table `gemms`)
and the program itself (reports.analysis.declared) tell that.
"""

from __future__ import annotations

from nsight_prof.parsers.cells import Row, names, number, records, text
from nsight_prof.parsers.run.run import Run, once
from nsight_prof.reports.analysis.declared import Need, Work, read_work
from nsight_prof.reports.analysis.padding import paddings


@once
def needs(run: Run) -> dict[str, Need]:
    """Return what is known of each kernel, by kernel_id.

    A kernel that computes products of several sizes has none of them: its launches differ.
    """
    used = number(run.telemetry["memory_used_bytes"].max())
    moving = run.memory_operations["kind"].fillna("").str.startswith("unified").any()
    bounds = {  # what reads more than all memory in use reads some of it again
        text(row["kernel_id"]): Need(used + number(row["dram_write_bytes"]))
        for row in records(run.counters)
        if number(row["dram_read_bytes"]) > used > 0 and not moving
    }
    found = bounds | _printed(run) | _products(run)
    for work in read_work(run.directory.artifact("trace", "stdout.log")):
        for row in records(run.kernels):
            if _is_of(work, row):
                known = found.get(text(row["kernel_id"]), Need())
                found[text(row["kernel_id"])] = Need(work.bytes, known.size)
    return found


def _products(run: Run) -> dict[str, Need]:
    sizes: dict[str, set[tuple[float, tuple[int, ...]]]] = {}
    for row in records(run.gemms):
        if text(row["kernel_id"]) and number(row["bytes"]) > 0:
            size = tuple(int(number(row[side])) for side in ("m", "n", "k"))
            sizes.setdefault(text(row["kernel_id"]), set()).add((number(row["bytes"]), size))
    return {key: Need(*found.pop()) for key, found in sizes.items() if len(found) == 1}


def _printed(run: Run) -> dict[str, Need]:
    """Return the sizes that the program printed, where the counted FLOPs tell whose they are."""
    sizes: dict[str, set[tuple[int, ...]]] = {}
    for padding in paddings(run):
        if padding.row is not None:
            size = (padding.shape.m, padding.shape.n, padding.shape.k)
            sizes.setdefault(text(padding.row["kernel_id"]), set()).add(size)
    return {key: Need(size=found.pop()) for key, found in sizes.items() if len(found) == 1}


def _is_of(work: Work, row: Row) -> bool:
    matches = work.kernel in text(row["name"]) or work.kernel in text(row["short_name"])
    in_stage = not work.stage or work.stage in names(row["stage"])
    return matches and bool(work.stage or work.kernel) and in_stage
