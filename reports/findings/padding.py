"""Compares counted FLOPs with the 2MNK of GEMMs of known shape: how much the tile pads."""

from __future__ import annotations

import json
import lzma
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nsight_prof.parsers.cells import Row, known, names, number, text
from nsight_prof.parsers.metrics.formulas import tile_padding
from nsight_prof.parsers.run.run import Run, once
from nsight_prof.reports.analysis.evidence import source, threshold
from nsight_prof.reports.analysis.profiled import kernel_time, profiled
from nsight_prof.reports.findings.model import Finding
from nsight_prof.reports.page import Evidence, Number, Ref, Text, Verbatim

ADVICE = Text("choose sizes that are multiples of the block in which the GPU computes")
TOLERANCE = 0.005
"""Counted FLOPs of a GEMM equal 2MNK with M and N rounded up to the tile, exactly: 1.0156 for
8192^3 in 320x128 tiles (H200, ncu 2025.3.1). Half a per cent leaves room for rounded exports and
for clusters, which round the number of tiles up: 501 tiles in clusters of 2 count as 502."""


@dataclass(frozen=True)
class Shape:
    """A GEMM that the program says it does: m x n x k, `calls` times in `stage`."""

    name: str
    stage: str
    m: int
    n: int
    k: int

    @property
    def flops(self) -> float:
        """2MNK: a multiplication and an addition for each product."""
        return 2.0 * self.m * self.n * self.k


@dataclass(frozen=True)
class Padding:
    """A GEMM of known shape beside the kernel that ran it; `reason` where none could be told."""

    shape: Shape
    row: Row | None
    counted: float | None
    ratio: float | None
    reason: str


def read_shapes(run: Run) -> list[Shape]:
    """Return the GEMM shapes that the target printed as JSON ({"gemms": [...]}) in the trace."""
    path = run.directory.artifact("trace", "stdout.log")
    if path is None:
        return []
    found: dict[Shape, None] = {}
    for line in _lines(path):
        for item in _gemms(line):
            found.setdefault(item)
    return list(found)


def _lines(path: Path) -> list[str]:
    try:
        opener = lzma.open if path.suffix == ".xz" else open
        with opener(path, "rt", encoding="utf-8", errors="replace") as stream:
            return [line for line in stream if '"gemms"' in line]
    except (OSError, lzma.LZMAError, EOFError):
        return []


def _gemms(line: str) -> list[Shape]:
    try:
        items = json.loads(line[line.index("{") :])["gemms"]
        return [_shape(item) for item in items]
    except (ValueError, KeyError, TypeError):
        return []


def _shape(item: dict[str, Any]) -> Shape:
    sizes = (int(item["m"]), int(item["n"]), int(item["k"]))
    return Shape(str(item["name"]), str(item.get("stage", "")), *sizes)


def padded_flops(shape: Shape, tile: str) -> list[float]:
    """Return 2MNK rounded up to the tile "MxN" or "MxNxK", in both orientations.

    K is rounded up too where the tile tells, and is tried as it is as well.
    """
    sides = [int(part) for part in re.findall(r"\d+", tile)]
    if len(sides) < 2 or 0 in sides:
        return []
    deep = sides[2] if len(sides) > 2 else 1
    depth = math.ceil(shape.k / deep) * deep / shape.k
    ratios = tile_padding(shape.m, shape.n, sides[0], sides[1])
    return [shape.flops * ratio * along_k for ratio in ratios for along_k in (1.0, depth)]


@once
def paddings(run: Run) -> list[Padding]:
    """Return for each known shape the profiled kernel whose counted FLOPs it explains."""
    rows = [row for row in profiled(run) if row["category"] in ("gemm", "gemv")]
    return [_padding(shape, rows) for shape in read_shapes(run) if _was_captured(run, shape)]


def _was_captured(run: Run, shape: Shape) -> bool:
    """Tell whether the capture holds the stage of a shape: the target prints those of all."""
    stages = {name for cell in run.kernels["stage"] for name in names(cell)}
    return not shape.stage or not stages or shape.stage in stages


def _padding(shape: Shape, rows: list[Row]) -> Padding:
    if not rows:
        return Padding(shape, None, None, None, "no GEMM kernel has counters")
    fitting = [row for row in rows if _fits(shape, row)]
    staged = [row for row in fitting if shape.stage in names(row["stage"])]
    if shape.stage and fitting and not staged and any(names(r["stage"]) for r in fitting):
        fitting = []
    if not fitting:
        reason = "no counted launch has its FLOPs: one launch a kernel is, and shapes share kernels"
        return Padding(shape, None, None, None, reason)
    row = (staged or fitting)[0]
    counted = _counted(row)
    return Padding(shape, row, known(counted), known(counted / shape.flops), "")


def _fits(shape: Shape, row: Row) -> bool:
    counted = _counted(row)
    expected = padded_flops(shape, text(row["tile"])) or [shape.flops]
    return any(abs(counted / flops - 1) <= TOLERANCE for flops in expected)


def _counted(row: Row) -> float:
    tensor = number(row["flops_tensor"])
    return tensor if tensor > 0 else number(row["flops"])


def padding_findings(run: Run) -> list[Finding]:
    """Return a finding for each GEMM whose padding costs time: it is bound by arithmetic."""
    total = kernel_time(run)
    found = []
    for padding in paddings(run):
        row, ratio = padding.row, padding.ratio or 1.0
        costs = row is not None and text(row["bound_by"]) in ("tensor", "fp32", "fp16", "fp64")
        if row is not None and costs and ratio > threshold("padding"):
            found.append(_finding(padding.shape, row, ratio, total))
    return [f for f in found if f.gain_program >= threshold("small_gain")]


def _finding(shape: Shape, row: Row, ratio: float, total_ns: float) -> Finding:
    part, gain, kernel_id = number(row["share"]), 1 - 1 / ratio, text(row["kernel_id"])
    refs = (Ref("counters", kernel_id, "flops_tensor"), Ref("gemms", ""))
    name, times = Verbatim(shape.name), Number(ratio, "", refs).at_digits(3)
    return Finding(
        key="padding",
        rule="tile_padding",
        title=Text(
            "{gemm}: the tile pads the work by {padding}",
            gemm=name,
            padding=Number(ratio - 1, "fraction"),
        ),
        headline=Text(
            "{gemm} computes {times} times the FLOPs it needs (tile)", gemm=name, times=times
        ),
        verdict=Text(
            "The GEMM {gemm} ({size}) computes {times} times the FLOPs it needs, because its tile "
            "{tile} does not divide it. A tile that fits would save at most {gain} of the GPU time "
            "({time}).",
            gemm=name,
            size=Verbatim(f"{shape.m} x {shape.n} x {shape.k}"),
            times=times,
            tile=Verbatim(text(row["tile"])),
            gain=Number(part * gain, "fraction"),
            time=Number(part * gain * total_ns, "ns"),
        ),
        kernel_ids=(kernel_id,),
        share=part,
        evidence=(
            Evidence(
                Text("counted over needed FLOPs"),
                Number(ratio, "", refs),
                Text("over {limit}", limit=Verbatim(f"{threshold('padding'):g}")),
                Text("{source}", source=Verbatim(source("padding"))),
            ),
        ),
        gain_kernel=gain,
        gain_program=part * gain,
        gain_ns=part * gain * total_ns,
        bound=text(row["bound_by"]),
        action=Text("Choose sizes that are multiples of the tile, or a tile that divides them."),
        plain=ADVICE,
        confidence="medium",
        disproof=Text(
            "The same product with sizes that the tile divides takes as long, or counts as many "
            "FLOPs."
        ),
    )
