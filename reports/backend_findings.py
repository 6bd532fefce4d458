"""Names kernels of which a better one is usual: old ones, fallbacks, unfused attention."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pandas as pd

from nsight_prof.parsers.build.roofline import Ceilings, ceilings
from nsight_prof.parsers.cells import Row, number, records, text
from nsight_prof.reports.evidence import Evidence
from nsight_prof.reports.findings.model import Finding
from nsight_prof.reports.formats import counted, duration, listed, share
from nsight_prof.reports.kernel_facts import TRANSFORM, slow_name
from nsight_prof.reports.load import Run
from nsight_prof.reports.profiled import kernel_time, profiled
from nsight_prof.reports.program_rules import backends, finding, limit, source_of

PRODUCT = ("gemm", "gemv")
BETWEEN = ("elementwise", "copy", "fill", "random", "reduction")
"""Kernels that may stand between the parts of an attention that is not fused: scale, mask,
dropout, casts, and the sums that a library's product leaves."""
TENSOR_TYPES = {"fp32": "tf32", "": "tf32"}
NAMED = 3


def backend_findings(run: Run, frame: pd.DataFrame | None) -> list[Finding]:
    """Return a finding for each kind of slow kernel that takes enough time.

    A kernel whose own counters tell what is wrong with it is left to that finding.
    """
    found: list[Finding] = []
    left = run.kernels
    for key, backend in backends().items():
        if "name" in backend:
            ours = _named(left, backend)
            found += _by_name(run, key, left[ours])
            left = left[~ours]
    if frame is not None:
        found += _math_attention(run, frame)
    return [f for f in found if f.share >= limit("slow_backend", "share")]


def _named(kernels: pd.DataFrame, backend: dict[str, Any]) -> pd.Series:
    pattern = re.compile(backend["name"])
    by_name = kernels["name"].map(lambda name: bool(pattern.search(str(name)))).astype(bool)
    return by_name & kernels["category"].isin(backend["categories"]).astype(bool)


def _by_name(run: Run, key: str, kernels: pd.DataFrame) -> list[Finding]:
    backend = backends()[key]
    if not _behind(run, backend):
        return []
    counted_rows = {text(row["kernel_id"]): row for row in profiled(run)}
    rows = [r for r in records(kernels) if not _told(counted_rows.get(r["kernel_id"]))]
    if not rows:
        return []
    if backend["gain"] == "bytes":
        return [_by_bytes(run, key, rows, counted_rows)]
    gains = [_gain(run, backend, counted_rows.get(row["kernel_id"])) for row in rows]
    seen = _reached(run, backend, [counted_rows.get(row["kernel_id"]) for row in rows])
    return [_finding(run, key, rows, gains, (*seen, *_beside(run, backend)))]


def _by_bytes(run: Run, key: str, rows: list[Row], counted_rows: dict[str, Row]) -> Finding:
    """Return the finding of kernels that together do the work of one, which moves less.

    It loads what those of `reads` load, and stores what those of `writes` store; the gain ends at
    the roof of DRAM, and is not known where one of them was not counted.
    """
    backend, needed = backends()[key], 0.0
    for kind, column in (("reads", "global_load_bytes"), ("writes", "global_store_bytes")):
        ends = [row for row in rows if re.search(backend[kind], text(row["name"]))]
        moved = [number(counted_rows.get(text(row["kernel_id"]), {}).get(column)) for row in ends]
        calls = [number(row["calls"]) for row in ends]
        needed += sum(b * c for b, c in zip(moved, calls, strict=True)) if ends else math.nan
    roof = ceilings(run.roofs).memory.get("dram")
    least = needed / roof.value * 1e9 if roof is not None else math.nan
    spent = sum(number(row["total_ns"]) for row in rows)
    where = ("global_load_bytes", "global_store_bytes")
    seen = (
        Evidence("bytes in and out of all", needed, "B", "", "ncu: what those that begin load, and "
                 "those that end store", where),
        Evidence("these at the roof of DRAM", least, "ns", "the gain ends there",
                 "prof: roofline model", (*where, "roofs.value")),
    )  # fmt: skip
    gain = max(0.0, 1 - least / spent) if least > 0 else math.nan
    gains = [(gain, gain)] * len(rows)
    return _finding(run, key, rows, gains, () if math.isnan(gain) else seen)


def _behind(run: Run, backend: dict[str, Any]) -> bool:
    """Tell whether the GPU has better kernels than these."""
    capability = _capability(run)
    if math.isnan(capability):
        return bool(backend.get("unknown_gpu"))
    return bool(backend["capability"] <= capability < backend.get("below_capability", math.inf))


def _capability(run: Run) -> float:
    """Return the highest compute capability of the GPUs; NaN where unknown."""
    try:
        return max(float(str(c)) for c in run.gpus["compute_capability"].dropna())
    except ValueError:
        return math.nan


def _told(row: Row | None) -> bool:
    """Tell whether a rule of kernels says what is wrong: no Tensor Cores, operands not aligned."""
    if row is None or TRANSFORM.search(text(row["name"])):
        return False
    return number(row["tensor_pct"]) < 1 or slow_name(row)


def _gain(run: Run, backend: dict[str, Any], counters: Row | None) -> tuple[float, float]:
    """Return the parts of a kernel's time that the better one saves at least and at most; or NaN.

    At most is at least where nothing tells that it saves something for sure.
    """
    if backend["gain"] == "reach":
        return _to_reach(run, backend, counters)
    if backend["gain"] != "roof":
        return float(backend.get("least", backend["gain"])), float(backend["gain"])
    if counters is None:
        known = _capability(run) in backend["rough_on"]
        return (float(backend["rough"]) if known else math.nan,) * 2
    needed = tensor_time(counters, ceilings(run.roofs)) / number(counters["duration_ns"])
    return (max(0.0, 1 - max(needed, number(counters["dram_pct"]) / 100)),) * 2


def _to_reach(run: Run, backend: dict[str, Any], counters: Row | None) -> tuple[float, float]:
    """Return what is saved where the FLOPs run at parts of the roof that better kernels reach."""
    parts = backend["reach"].get(_capability(run))
    if counters is None or parts is None:
        return math.nan, math.nan
    whole = tensor_time(counters, ceilings(run.roofs), counters["sm_clock_hz"])
    floor = number(counters["dram_pct"]) / 100
    saved = [1 - max(whole / part / number(counters["duration_ns"]), floor) for part in parts]
    return max(0.0, saved[0]), max(0.0, saved[1])


def _reached(
    run: Run, backend: dict[str, Any], counted_rows: list[Row | None]
) -> tuple[Evidence, ...]:
    """Return the FLOPs of one launch and their times at what better kernels reach of the roof."""
    parts = backend["reach"].get(_capability(run)) if backend["gain"] == "reach" else None
    lead = counted_rows[0]
    if parts is None or lead is None:
        return ()
    where = ("flops", "sm_clock_hz", "roofs.value")
    whole = tensor_time(lead, ceilings(run.roofs), lead["sm_clock_hz"])
    return (
        Evidence("duration of one launch", number(lead["duration_ns"]), "ns", "", "ncu",
                 ("duration_ns",)),
        Evidence("FLOPs of one launch", number(lead["flops"]), "FLOP", "", "ncu", ("flops",)),
        *(Evidence(f"these at {share(part)} of the Tensor Core roof", whole / part, "ns",
                   "what better kernels reach", "FLOPs / (part x roof at the clock of the kernel)",
                   where)
          for part in parts),
    )  # fmt: skip


def _beside(run: Run, backend: dict[str, Any]) -> tuple[Evidence, ...]:
    """Return the time of kernels that belong to a back end and are left out of its gain."""
    if "beside" not in backend:
        return ()
    spent = _time_beside(run, backend)
    words = f"{backend['beside_what']}, not counted here"
    return (
        (Evidence(words, spent, "ns", "", "nsys: sum over them", ("kernels.total_ns",)),)
        if spent > 0
        else ()
    )


def _time_beside(run: Run, backend: dict[str, Any]) -> float:
    ours = _named(run.kernels, {**backend, "name": backend["beside"]})
    return float(run.kernels.loc[ours, "total_ns"].sum())


def tensor_time(row: Row, roofs: Ceilings, clock_hz: float = math.nan) -> float:
    """Return the ns that the Tensor Cores would take for a kernel's FLOPs; NaN where unknown.

    At `clock_hz` where it is given, else at the clock of the roof.
    """
    dtype = text(row["tensor_dtype"]) or text(row["dtype"])
    roof = roofs.pipe("tensor", TENSOR_TYPES.get(dtype, dtype))
    if roof is None:
        return math.nan
    return number(row["flops"]) / roof.at_clock(number(clock_hz)) * 1e9


def _finding(
    run: Run,
    key: str,
    rows: list[Row],
    gains: list[tuple[float, float]],
    seen: tuple[Evidence, ...] = (),
) -> Finding:
    backend, total = backends()[key], kernel_time(run)
    spent = sum(number(row["total_ns"]) for row in rows)
    least, saved = (_saved(rows, [gain[end] for gain in gains]) for end in (0, 1))
    unknown = math.isnan(saved)
    rough = backend["gain"] == "roof" and {g for g, _ in gains} == {backend.get("rough")}
    names = list(dict.fromkeys(text(row["short_name"]) for row in rows))
    more = [f"{len(names) - NAMED} more"] if len(names) > NAMED else []
    words = (
        f"{share(spent / total)} of the GPU time ({duration(spent)}) goes to {backend['what']}: "
        f"{listed([*names[:NAMED], *more])}. {backend['why']} "
        f"{_much(least / total, saved / total, rough)}{_left_out(run, backend, total)}"
    )
    return finding(
        "slow_backend",
        key=str(backend.get("cause", "slow_backend")),
        cause=str(backend.get("cause", "slow_backend")),
        title=f"{share(spent / total)} of the GPU time goes to {backend['what']}",
        sentence=words,
        kernel_ids=tuple(text(row["kernel_id"]) for row in rows[:5]),
        share=spent / total,
        evidence=(
            Evidence("time in these kernels", spent, "ns",
                     f"{share(limit('slow_backend', 'share'))} of the GPU time",
                     str(backend["source"]), ("kernels.total_ns",)),
            *seen,
            *_from(backend, least, saved, rough),
        ),
        gain_kernel=saved / spent,
        gain_program=saved / total,
        gain_ns=saved,
        action=str(backend["action"]),
        advice=str(backend["advice"]),
        disprove=str(backend["disprove"]),
        confidence="low" if unknown or rough or backend["gain"] == "bytes" else "medium",
    )  # fmt: skip


def _saved(rows: list[Row], gains: list[float]) -> float:
    """Return the ns that gains (parts of the time of `rows`) save; NaN where none is known."""
    known = [number(r["total_ns"]) * g for r, g in zip(rows, gains, strict=True) if g == g]
    return sum(known) if known else math.nan


def _much(least: float, most: float, rough: bool) -> str:
    """Say what better kernels save, of the GPU time."""
    if math.isnan(most):
        return "How much a better one gains is not known without counters."
    if least < most:
        return f"Better ones could save {share(least)} to {share(most)} of the GPU time."
    return (
        f"Better ones could save {'about' if rough else 'at most'} {share(most)} of the GPU time."
    )


def _left_out(run: Run, backend: dict[str, Any], total: float) -> str:
    """Say which kernels belong to a back end and are not counted, as a sentence behind a space."""
    spent = _time_beside(run, backend) if "beside" in backend else 0.0
    if not spent > 0:
        return ""
    return (
        f" This leaves out {backend['beside_what']} ({share(spent / total)} of the GPU time): they "
        f"{backend['beside_why']}."
    )


def _from(backend: dict[str, Any], least_ns: float, saved_ns: float, rough: bool) -> list[Evidence]:
    """Return what the gain is worked out from; empty where it is not known."""
    if math.isnan(saved_ns):
        return []
    if backend["gain"] == "bytes":
        return [Evidence("could save", saved_ns, "ns", "", "the time less that at the roof")]
    if backend["gain"] == "reach":
        how = "their time x (1 - time at that part of the roof / duration)"
        where = ("flops", "duration_ns", "kernels.total_ns")
        ends = (("could save at least", least_ns), ("could save", saved_ns))
        return [Evidence(words, value, "ns", "", how, where) for words, value in ends]
    if backend["gain"] != "roof":
        parts = [backend.get("least"), backend["gain"]]
        said = zip(("could save at least", "could save"), (least_ns, saved_ns), parts, strict=True)
        return [
            Evidence(words, value, "ns", "", f"the time x {part:g}", ("kernels.total_ns",))
            for words, value, part in said
            if part is not None
        ]
    if rough:
        how = f"the time x {float(backend['rough']):g}, a rough value: no counters"
        return [Evidence("could save", saved_ns, "ns", "", how)]
    how = "the time x (1 - the nearer of the Tensor Core and the DRAM roof)"
    return [Evidence("could save", saved_ns, "ns", "", how, ("flops", "dram_pct", "roofs.value"))]


def _math_attention(run: Run, frame: pd.DataFrame) -> list[Finding]:
    """Return a finding where products, a softmax and products follow on each other."""
    spans = attention_spans(frame, int(limit("slow_backend", "between")))
    if not spans:
        return []
    index = np.concatenate([np.arange(a, b) for a, b in spans])
    part = frame.iloc[index]
    spent, total = float(part["duration_ns"].sum()), kernel_time(run)
    backend = backends()["math_attention"]
    needed = _needed(run, part)
    passing = float(part.loc[~part["category"].isin(PRODUCT), "duration_ns"].sum())
    # Without counters of the products, only what stands between them is known to vanish.
    saved = passing if math.isnan(needed) else max(0.0, spent - needed)
    kernels = part.groupby("kernel_id")["duration_ns"].sum().sort_values(ascending=False)
    between = share(passing / spent)
    words = (
        f"Attention runs as separate kernels {counted(len(spans), 'time')}, which takes "
        f"{share(spent / total)} of the GPU time ({duration(spent)}); {between} of this is "
        f"softmax, masks and casts between the products. {backend['why']} A fused kernel could "
        f"save about {share(saved / total)} of the GPU time ({duration(saved)})."
    )
    return [
        finding(
            "slow_backend",
            title=f"Attention is not fused and takes {share(spent / total)} of the GPU time",
            sentence=words,
            kernel_ids=tuple(str(k) for k in kernels.index[:5]),
            share=spent / total,
            evidence=(
                Evidence("softmax between two products", len(spans), "",
                         f"at most {limit('slow_backend', 'between'):.0f} kernels between them",
                         source_of("slow_backend", "between"), ("launches.start_ns",)),
                Evidence("time of these kernels", spent, "ns", "", "nsys",
                         ("launches.duration_ns",)),
                Evidence("of it not in products", passing, "ns", "", str(backend["source"]),
                         ("launches.duration_ns",)),
                *([] if math.isnan(needed) else [
                    Evidence("products at the roof of the Tensor Cores", needed, "ns", "", "ncu",
                             ("flops", "roofs.value"))]),
            ),
            gain_kernel=saved / spent,
            gain_program=saved / total,
            gain_ns=saved,
            action=str(backend["action"]),
            advice=str(backend["advice"]),
            disprove=str(backend["disprove"]),
            confidence="medium" if math.isnan(needed) else "high",
        )
    ]  # fmt: skip


def _needed(run: Run, part: pd.DataFrame) -> float:
    """Return the ns that the Tensor Cores need for the products; NaN where not all were counted."""
    roofs = ceilings(run.roofs)
    counters = {text(row["kernel_id"]): row for row in profiled(run)}
    products = part.loc[part["category"].isin(PRODUCT), "kernel_id"].value_counts()
    each = [
        tensor_time(counters[str(key)], roofs) * int(times) if str(key) in counters else math.nan
        for key, times in products.items()
    ]
    return sum(each) if each else math.nan


def attention_spans(frame: pd.DataFrame, between: int) -> list[tuple[int, int]]:
    """Return first and last (exclusive) positions of product, softmax, product in `frame`.

    `frame` is that of `timeline`; at most `between` other kernels that only touch elements stand
    between the softmax and each product, and all are of one stream.
    """
    category = frame["category"].to_numpy(object)
    queue = frame["queue"].to_numpy()
    found: list[tuple[int, int]] = []
    for at in np.flatnonzero(category == "softmax"):
        first = _product(category, queue, int(at), -1, between)
        last = _product(category, queue, int(at), 1, between)
        if first is not None and last is not None and (not found or first >= found[-1][1]):
            found.append((first, last + 1))
    return found


def _product(category: Any, queue: Any, at: int, step: int, between: int) -> int | None:
    """Return the position of the next product before or after `at`; None where another is."""
    for place in range(at + step, at + step * (between + 2), step):
        if not 0 <= place < len(category) or queue[place] != queue[at]:
            return None
        if category[place] in PRODUCT:
            return place
        if category[place] not in BETWEEN:
            return None
    return None
