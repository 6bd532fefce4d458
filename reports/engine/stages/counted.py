"""Compares the FLOPs that counters saw in a stage with those that the model needed for it.

More than needed is work on padding: tiles that reach out of a matrix, queries padded to a tile, and
CUDA graphs that compute more rows than there are tokens.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from nsight_prof.parsers.cells import Row, known, number, records, text
from nsight_prof.parsers.formulas import tile_padding
from nsight_prof.parsers.torch_trace import is_reduction
from nsight_prof.reports.engine.stages.kinds import Kind, Stages
from nsight_prof.reports.gemm import TOLERANCE
from nsight_prof.reports.load import Run
from nsight_prof.reports.profiled import is_mixed

PARTS = {"gemm": "matrix products", "gemv": "matrix products", "attention": "attention"}
"""Category of a kernel -> part of the model's FLOPs."""
NEGLIGIBLE = 0.01
"""Part of the time of a part's kernels that may be without counters."""


@dataclass(frozen=True)
class Counted:
    """FLOPs of one part in one kind of steps, on all GPUs: counted and needed.

    Counted is calls x FLOPs of the launch that was profiled. Of a kernel whose launches do
    different products (`by_tile` FLOPs of all) it is calls x 2MNK rounded up to its tile, where the
    profiled launch has exactly such a number. `counted` is None where it cannot be told, and
    `reason` says why.
    """

    kind: str
    part: str
    counted: float | None
    needed: float
    by_tile: float
    reason: str

    @property
    def ratio(self) -> float | None:
        """Counted over needed."""
        return self.counted / self.needed if self.counted and self.needed > 0 else None


@dataclass(frozen=True)
class _Tables:
    """Rows by kernel_id; products by stage and kernel_id."""

    kernels: dict[str, Row]
    counters: dict[str, Row]
    products: dict[tuple[str, str], list[Row]]


def counted(run: Run, stages: Stages) -> tuple[Counted, ...]:
    """Return counted beside needed FLOPs of each kind whose stage has kernels with counters.

    Stages of the recipe are matched by name: prefill, decode, mixed.
    """
    if run.counters.empty:
        return ()
    products: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in records(run.gemms):
        products[text(row["stage"]), text(row["kernel_id"])].append(row)
    tables = _Tables(
        {text(row["kernel_id"]): row for row in records(run.kernels)},
        {text(row["kernel_id"]): row for row in records(run.counters)},
        products,
    )
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
            mine = [row for row in rows if _part(tables, row) == part]
            found.append(_counted(kind, part, flops * stages.gpus, mine, tables))
    return tuple(found)


def _part(tables: _Tables, row: Row) -> str:
    kernel = tables.kernels.get(text(row["kernel_id"]))
    # What adds up the parts of a split K multiplies nothing.
    if kernel is None or is_reduction(text(kernel["name"])):
        return ""
    return PARTS.get(text(kernel["category"]), "")


def _counted(kind: Kind, part: str, needed: float, rows: list[Row], tables: _Tables) -> Counted:
    if not rows:
        why = "the trace names no kernel of this part"
        return Counted(kind.kind, part, None, needed, 0.0, why)
    whole = sum(number(row["total_ns"]) for row in rows)
    lost: dict[str, float] = defaultdict(float)
    total = by_tile = 0.0
    for row in rows:
        why, flops, tiled = _of_kernel(kind.kind, row, tables)
        if why:
            lost[why] += number(row["total_ns"])
        total += flops
        by_tile += flops if tiled else 0.0
    if sum(lost.values()) > NEGLIGIBLE * whole:
        why = max(lost, key=lost.__getitem__)
        why = f"{why} ({100 * lost[why] / whole:.0f} % of their time)"
        return Counted(kind.kind, part, None, needed, 0.0, why)
    return Counted(kind.kind, part, total, needed, by_tile, "")


def _of_kernel(stage: str, row: Row, tables: _Tables) -> tuple[str, float, bool]:
    """Return why the FLOPs of a kernel in a stage are not known, or them; and whether by tile."""
    key = text(row["kernel_id"])
    counter = tables.counters.get(key)
    if counter is None:
        return "kernels without counters", 0.0, False
    tensor = known(counter["flops_tensor"])
    one = tensor if tensor else known(counter["flops"])
    if one is None:
        return "kernels whose operations were not counted", 0.0, False
    calls = number(row["calls"])
    if not is_mixed(tables.kernels[key]):
        return "", calls * one, False
    padded = _by_tile(tables.products.get((stage, key), []), one, calls)
    if padded is None:
        return "kernels whose launches do products of different sizes", 0.0, False
    return "", padded, True


def _by_tile(products: list[Row], profiled: float, calls: float) -> float | None:
    """Return the FLOPs of products of known sizes, in the orientation that the counters show.

    None where the sizes of some launches are not known, or no product has the FLOPs of the
    profiled launch.
    """
    if not products or sum(number(row["calls"]) for row in products) != calls:
        return None
    sides = [int(side) for side in text(products[0]["tile"]).split("x")[:2] if side.isdigit()]
    if len(sides) < 2:
        return None
    for turned in (0, 1):
        each = [_padded(row, sides[0], sides[1], turned) for row in products]
        if any(abs(profiled / flops - 1) <= TOLERANCE for flops in each):
            return sum(
                number(row["calls"]) * flops for row, flops in zip(products, each, strict=True)
            )
    return None


def _padded(row: Row, tile_m: int, tile_n: int, turned: int) -> float:
    m, n, k = (round(number(row[side])) for side in ("m", "n", "k"))
    batch = known(row["batch"]) or 1.0
    return 2.0 * batch * m * n * k * tile_padding(m, n, tile_m, tile_n)[turned]
