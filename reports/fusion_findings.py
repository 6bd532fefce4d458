"""Turns work that only passes data on into findings: elementwise chains, copies and casts."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import numpy as np
import pandas as pd

from nsight_prof.parsers.build.roofline import ceilings
from nsight_prof.parsers.cells import Row, number, records, text
from nsight_prof.reports.analysis.timeline import chains
from nsight_prof.reports.evidence import Evidence
from nsight_prof.reports.findings.model import Finding
from nsight_prof.reports.formats import byte_rate, counted, data_size, duration, listed, share
from nsight_prof.reports.load import Run
from nsight_prof.reports.profiled import kernel_time
from nsight_prof.reports.program_rules import finding, limit, listing, moves, source_of

CHAINS = 3
"""Chains that get a finding of their own."""
NAMED = 4
"""Kernels that a sentence names."""
OWN = ("", "other")
"""Libraries of the program's own kernels."""
BY_BYTES = ("dram", "l2", "l1", "latency")
"""Limits of kernels whose time follows the bytes that they move."""


@dataclass(frozen=True)
class Moved:
    """Bytes of one launch that its threads load and store, and the columns that say so."""

    loaded: float
    stored: float
    where: tuple[str, ...]

    @property
    def both(self) -> float:
        """Bytes loaded and stored."""
        return self.loaded + self.stored


@dataclass(frozen=True)
class Passed:
    """What a chain moves once through, and what of it passes between its kernels; bytes.

    `where` are the columns that tell, `by_bytes` whether bytes set the time of all its kernels.
    """

    whole: float
    between: float
    where: tuple[str, ...]
    by_bytes: bool


def elementwise_chains(run: Run, frame: pd.DataFrame) -> list[Finding]:
    """Return findings for chains of elementwise kernels, the largest gain first.

    Fused, what one kernel writes for the next is neither written nor read. Where these bytes are
    not known, the fused kernel is taken to need as long as the longest of the chain does. Tiny
    kernels are left to `small_kernels`.
    """
    own = streaming(run)
    open_ones = frame["category"].isin(listing("fusible")) | frame["kernel_id"].isin(own)
    means = run.kernels["mean_ns"].astype(float) >= limit("small_kernels", "short")
    open_ones &= frame["kernel_id"].isin(run.kernels.loc[means, "kernel_id"])
    done = frame["library"].isin(listing("fused_libraries"))
    moved = moved_bytes(run)
    grids = dict(zip(run.kernels["kernel_id"], run.kernels["grid"], strict=True))

    def flows(first: str, second: str) -> bool:
        same = text(grids.get(first)) == text(grids.get(second)) != ""
        if first in moved and second in moved:
            stored, loaded = moved[first].stored, moved[second].loaded
            fits = 0 < stored <= limit("elementwise_chain", "flow") * loaded
            # Bytes of DRAM leave out what caches held, so that they tell less.
            return fits and (same or "global_store_bytes" in moved[first].where)
        return same

    repeats = int(limit("elementwise_chain", "repeats"))
    table = chains(frame, (open_ones & ~done).to_numpy(dtype=np.bool_), flows, repeats)
    found = [_chain(run, row, _passed(run, row, moved), own) for row in records(table.head(CHAINS))]
    return [f for f in found if f.gain_program >= limit("elementwise_chain", "gain")]


def streaming(run: Run) -> set[str]:
    """Return the program's own kernels that may work on one element after another, as counted.

    They load few elements for each that they store, in whole sectors, and neither share them within
    a block nor add them up with atomics. What they compute is not known.
    """
    own = run.kernels["category"].eq("other") & run.kernels["library"].fillna("").isin(OWN)
    rows = run.counters[run.counters["kernel_id"].isin(run.kernels.loc[own, "kernel_id"])]
    whole = limit("elementwise_chain", "whole")
    found = set()
    for row in records(rows):
        loaded, stored = number(row["global_load_bytes"]), number(row["global_store_bytes"])
        few = 0 < loaded <= limit("elementwise_chain", "inputs") * stored
        parts = (number(row[f"global_{kind}_efficiency_pct"]) for kind in ("load", "store"))
        alone = number(row["shared_memory_bytes"]) == 0 == number(row["atomic_instructions"])
        if few and alone and all(part >= whole for part in parts):
            found.add(text(row["kernel_id"]))
    return found


def moved_bytes(run: Run) -> dict[str, Moved]:
    """Return what each kernel loads and stores, as far as counters tell.

    Where the accesses of threads were not counted it is what DRAM read and wrote, of launches
    that move several times what L2 holds: of those, caches keep little.
    """
    found: dict[str, Moved] = {}
    l2_bytes = number(run.gpus["l2_bytes"].max())
    for row in records(run.counters):
        for names in (
            ("global_load_bytes", "global_store_bytes"),
            ("dram_read_bytes", "dram_write_bytes"),
        ):
            moved = Moved(number(row[names[0]]), number(row[names[1]]), names)
            large = moved.both >= limit("elementwise_chain", "cache") * l2_bytes
            if not math.isnan(moved.both) and (large or names[0] == "global_load_bytes"):
                found.setdefault(text(row["kernel_id"]), moved)
    return found


def _passed(run: Run, row: Row, moved: dict[str, Moved]) -> Passed | None:
    """Return what a row of `chains` passes on; None where the bytes are not known."""
    ids = [str(key) for key in row["kernels"]]
    if not all(key in moved for key in ids):
        return None
    each = [moved[key] for key in ids]
    whole = sum(one.both for one in each)
    pairs = zip(each, each[1:], strict=False)
    between = sum(a.stored + min(a.stored, b.loaded) for a, b in pairs)
    where = tuple(dict.fromkeys(name for one in each for name in one.where))
    bounds = run.counters.loc[run.counters["kernel_id"].isin(ids), "bound_by"]
    return Passed(whole, between, where, set(bounds) <= set(BY_BYTES)) if whole > 0 else None


def _chain(run: Run, row: Row, passed: Passed | None, own: set[str]) -> Finding:
    ids = tuple(str(key) for key in row["kernels"])
    total, times = number(row["total_ns"]), number(row["times"])
    least = saved = number(row["saved_ns"])
    if passed is not None:
        least = total * passed.between / passed.whole
        saved = max(least, total - _at_roof(run, passed, times)) if _faster(passed) else least
    part, gained = total / kernel_time(run), saved / kernel_time(run)
    names = dict(zip(run.kernels["kernel_id"], run.kernels["short_name"], strict=True))
    shown = [str(names.get(key, key)) for key in ids]
    more = [f"{len(shown) - NAMED} more"] if len(shown) > NAMED else []
    words = (
        f"{len(ids)} elementwise kernels follow on each other {counted(times, 'time')}: "
        f"{listed([*shown[:NAMED], *more])}. Together they take {share(part)} of the GPU time "
        f"({duration(total)}). {_how(passed, total, times)} "
        f"{share(least / kernel_time(run))} of the GPU time ({duration(least)})"
        f"{_up_to(least, saved, kernel_time(run))}."
    )
    return finding(
        "elementwise_chain",
        title=f"{len(ids)} elementwise kernels in a row pass data through memory: {shown[0]}, …",
        headline=f"{len(ids)} elementwise kernels in a row take {share(part)} of the GPU time",
        sentence=words,
        kernel_ids=tuple(dict.fromkeys(ids)),
        share=part,
        evidence=(
            Evidence("kernels in the chain", len(ids), "", "2 or more", "nsys",
                     ("launches.start_ns",)),
            Evidence("times that it runs", times, "", "", "nsys", ("launches.start_ns",)),
            Evidence("time of the chains", total, "ns", "", "nsys", ("launches.duration_ns",)),
            *_from_bytes(run, passed, total, times, (least, saved)),
        ),
        gain_kernel=saved / total,
        gain_program=gained,
        gain_ns=saved,
        # Whose kernels are not known may do more than pass elements on.
        confidence="medium" if passed and passed.by_bytes and not own & set(ids) else "low",
    )  # fmt: skip


def _faster(passed: Passed) -> bool:
    """Tell whether a fused kernel may move its bytes faster: more than bytes set their time."""
    return not passed.by_bytes


def _at_roof(run: Run, passed: Passed, times: float) -> float:
    """Return the ns that the bytes which are left take at the roof of DRAM; NaN where unknown."""
    roof = ceilings(run.roofs).memory.get("dram")
    left = times * (passed.whole - passed.between)
    return left / roof.value * 1e9 if roof is not None else math.nan


def _up_to(least: float, most: float, total: float) -> str:
    """Say what is saved where the rest runs at the roof; empty where that is not more."""
    if not most > least:
        return ""
    return f", and at most {share(most / total)} ({duration(most)}) at the roof of DRAM"


def _how(passed: Passed | None, total_ns: float, times: float) -> str:
    """Say what the gain rests on, up to its number."""
    if passed is None:
        return (
            "Their bytes were not counted, so one kernel is taken to need as long as the longest "
            "of them: it would save at most"
        )
    rate = byte_rate(passed.whole * times / total_ns * 1e9)
    return (
        f"{data_size(passed.between)} of the {data_size(passed.whole)} that they move pass between "
        f"them. One kernel that keeps these on the chip would save, at their {rate}, about"
    )


def _from_bytes(
    run: Run, passed: Passed | None, total: float, times: float, saved: tuple[float, float]
) -> list[Evidence]:
    """Return what the gain (at their throughput, at most) is worked out from; ns and bytes."""
    least, most = saved
    if passed is None:
        longest = "time of the chains - that of the longest kernel of each"
        return [Evidence("could save", most, "ns", "", longest, ("launches.duration_ns",))]
    rate = passed.whole * times / total * 1e9
    found = [
        Evidence("bytes that a chain moves", passed.whole, "B", "",
                 "ncu: loaded and stored, the sum over its kernels", passed.where),
        Evidence("of these passed on through memory", passed.between, "B", "",
                 "ncu: stored by one kernel + what the next loads of it", passed.where),
        Evidence("throughput of the chain", rate, "B/s", "", "bytes x times / time of the chains",
                 (*passed.where, "launches.duration_ns")),
        Evidence("could save", least, "ns", "", "times x bytes passed on / throughput",
                 (*passed.where, "launches.duration_ns")),
    ]  # fmt: skip
    shortest = _at_roof(run, passed, times)
    if not math.isnan(shortest):
        found.append(
            Evidence("the other bytes at the roof of DRAM", shortest, "ns", "",
                     "times x (bytes moved - passed on) / roof, if they come from DRAM",
                     (*passed.where, "roofs.value"))
        )  # fmt: skip
    if most > least:
        found.append(
            Evidence("could save at the roof of DRAM", most, "ns", "",
                     "time of the chains - the other bytes at the roof",
                     ("launches.duration_ns", "roofs.value"))
        )  # fmt: skip
    return found


def casts_and_copies(run: Run) -> list[Finding]:
    """Return a finding for kernels of libraries that only move or convert data.

    What the program's own kernels move is its work.
    """
    moving = run.kernels["category"].isin(listing("moves_only"))
    rows = run.kernels[moving & ~run.kernels["library"].fillna("").isin(OWN)]
    total, spent = kernel_time(run), number(rows["total_ns"].sum())
    if rows.empty or spent / total < limit("casts_and_copies", "share"):
        return []
    part = spent / total
    sums = rows.groupby("short_name", sort=False)["share"].sum().sort_values(ascending=False)
    parts = [f"{name} {share(value)}" for name, value in sums.head(NAMED).items()]
    calls = counted(number(rows["calls"].sum()), "launch")
    kinds = _kinds(rows)
    free = sum(value for key, value in kinds.items() if not moves()[key]["needed"])
    return [
        finding(
            "casts_and_copies",
            title=f"Copies and casts inside the GPU take {share(part)} of the GPU time",
            sentence=f"Kernels that only copy, cast or rearrange data take {share(part)} of the "
            f"GPU time ({duration(spent)} in {calls}): {listed(parts)}."
            f"{_needed(kinds, total)} What the program does not need of this saves its whole time: "
            f"at most {share(part)} of the GPU time.",
            kernel_ids=tuple(text(k) for k in rows.head(5)["kernel_id"]),
            share=part,
            evidence=(
                Evidence("time of copies and casts", spent, "ns",
                         f"{share(limit('casts_and_copies', 'share'))} of the GPU time",
                         source_of("casts_and_copies", "share"), ("kernels.total_ns",)),
                Evidence("kernels", len(rows), "", "", "nsys", ("kernels.category",)),
                *(Evidence(f"of it {moves()[key]['what']}", value, "ns", "",
                           "names of kernels",
                           ("kernels.total_ns",))
                  for key, value in kinds.items()),
            ),
            gain_kernel=1.0,
            gain_program=part,
            gain_ns=spent,
            confidence="medium" if 2 * free > spent else "low",
        )
    ]  # fmt: skip


def _kinds(rows: pd.DataFrame) -> dict[str, float]:
    """Return ns by kind of `moves`, the first whose name fits, in their order."""
    found = dict.fromkeys(moves(), 0.0)
    for row in records(rows):
        names = f"{text(row['short_name'])}\n{text(row['name'])}"
        fits = (key for key, kind in moves().items() if re.search(kind["name"], names))
        found[next(fits)] += number(row["total_ns"])
    return {key: value for key, value in found.items() if value > 0}


def _needed(kinds: dict[str, float], total_ns: float) -> str:
    """Say which of them the program may need; empty where none."""
    said = [
        f"{share(value / total_ns)} are {moves()[key]['what']}, {moves()[key]['needed']}"
        for key, value in kinds.items()
        if moves()[key]["needed"] and value >= limit("casts_and_copies", "named") * total_ns
    ]
    return "".join(f" {words}." for words in said)
