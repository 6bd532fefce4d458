"""Compares the FLOPs that counters saw in a stage with those that the model needed for it.

More than needed is work on padding: tiles that reach out of a matrix, queries padded to a tile, and
CUDA graphs that compute more rows than there are tokens.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass

from reports.cells import Row, known, number, records, text
from reports.load import Run
from reports.profiled import is_mixed
from reports.serving.stage_rows import Kind, Stages

PARTS = {"gemm": "matrix products", "gemv": "matrix products", "attention": "attention"}
"""Category of a kernel -> part of the model's FLOPs."""
NEGLIGIBLE = 0.01
"""Part of the time of a part's kernels that may be without counters."""


@dataclass(frozen=True)
class Counted:
    """FLOPs of one part in one kind of steps, on all GPUs: counted (calls x one launch) and needed.

    `counted` is None where it cannot be told, and `reason` says why.
    """

    kind: str
    part: str
    counted: float | None
    needed: float
    reason: str

    @property
    def ratio(self) -> float | None:
        """Counted over needed."""
        return self.counted / self.needed if self.counted and self.needed > 0 else None


def counted(run: Run, stages: Stages) -> tuple[Counted, ...]:
    """Return counted beside needed FLOPs of each kind whose stage has kernels with counters.

    Stages of the recipe are matched by name: prefill, decode, mixed.
    """
    if run.counters.empty:
        return ()
    kernels = {text(row["kernel_id"]): row for row in records(run.kernels)}
    counters = {text(row["kernel_id"]): row for row in records(run.counters)}
    found = []
    for kind in stages.kinds:
        rows = records(run.stage_kernels[run.stage_kernels["stage"] == kind.kind])
        if kind.needed is None or not rows:
            continue
        needed = {
            "matrix products": kind.needed.flops.linear + kind.needed.flops.head,
            "attention": kind.needed.flops.attention,
        }
        for part, flops in needed.items():
            mine = [row for row in rows if _part(kernels, row) == part]
            found.append(_counted(kind, part, flops * stages.gpus, mine, kernels, counters))
    return tuple(found)


def _part(kernels: dict[str, Row], row: Row) -> str:
    kernel = kernels.get(text(row["kernel_id"]))
    return PARTS.get(text(kernel["category"]), "") if kernel else ""


def _counted(
    kind: Kind,
    part: str,
    needed: float,
    rows: list[Row],
    kernels: dict[str, Row],
    counters: dict[str, Row],
) -> Counted:
    if not rows:
        return Counted(kind.kind, part, None, needed, "the trace names no kernel of this kind")
    whole = sum(number(row["total_ns"]) for row in rows)
    lost: dict[str, float] = defaultdict(float)
    total = 0.0
    for row in rows:
        key = text(row["kernel_id"])
        why, flops = _of_one(kernels[key], counters.get(key))
        if why:
            lost[why] += number(row["total_ns"])
        else:
            total += number(row["calls"]) * flops
    if sum(lost.values()) > NEGLIGIBLE * whole:
        why = max(lost, key=lost.__getitem__)
        part_lost = 100 * lost[why] / whole
        return Counted(kind.kind, part, None, needed, f"{why} ({part_lost:.0f} % of their time)")
    return Counted(kind.kind, part, total, needed, "")


def _of_one(kernel: Row, counter: Row | None) -> tuple[str, float]:
    """Return why one launch's FLOPs do not stand for all, or the FLOPs."""
    if counter is None:
        return "kernels without counters", math.nan
    tensor = known(counter["flops_tensor"])
    flops = tensor if tensor else known(counter["flops"])
    if flops is None:
        return "kernels whose operations were not counted", math.nan
    if is_mixed(kernel):
        return "kernels whose launches do different amounts of work", math.nan
    return "", flops
