"""Compares the FLOPs that counters have of a stage with those that the model needs for it.

More than needed is work on padding: tiles that reach out of a matrix, queries padded to a tile, and
CUDA graphs that compute more rows than there are tokens.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from nsight_prof.parsers.cells import Row, grouped, known, number, records, text
from nsight_prof.parsers.metrics.formulas import tile_padding
from nsight_prof.parsers.run.run import Run
from nsight_prof.parsers.torch.trace import is_reduction
from nsight_prof.reports.analysis.padding import TOLERANCE
from nsight_prof.reports.analysis.profiled import is_mixed
from nsight_prof.reports.engine.stages.kinds import Kind, Stages
from nsight_prof.reports.page import Number, Text

PRODUCTS, ATTENTION = "matrix products", "attention"
COMPONENTS = {"gemm": PRODUCTS, "gemv": PRODUCTS, "attention": ATTENTION}
"""Category of a kernel -> component of the model's FLOPs."""
COMPONENT_NAMES = {PRODUCTS: Text("matrix products"), ATTENTION: Text("attention")}
NEGLIGIBLE = 0.01
"""Part of the time of a component's kernels that may be without counters."""
NO_KERNEL = Text("the trace names no kernel of this kind")
NO_COUNTERS = Text("kernels without counters")
NO_FLOPS = Text("kernels whose operations were not counted")
MIXED_SIZES = Text("kernels whose launches do products of different sizes")


@dataclass(frozen=True)
class Counted:
    """FLOPs of one component in one kind of steps, on all GPUs: counted and required.

    Counted is calls x FLOPs of the launch that was profiled. Of a kernel whose launches do
    different products (`by_tile` FLOPs of all) it is calls x 2MNK rounded up to its tile, where the
    profiled launch has exactly such a number. `counted` is None where it is not known, and
    `reason` says why.
    """

    kind: str
    component: str
    counted: float | None
    required: float
    by_tile: float = 0.0
    reason: Text | None = None

    @property
    def ratio(self) -> float | None:
        """Counted over required."""
        return self.counted / self.required if self.counted and self.required > 0 else None


@dataclass(frozen=True)
class _Tables:
    """Rows by kernel_id; products by stage and kernel_id."""

    kernels: dict[str, Row]
    counters: dict[str, Row]
    products: dict[tuple[str, str], list[Row]]


def counted(run: Run, stages: Stages) -> tuple[Counted, ...]:
    """Return counted beside required FLOPs of each kind whose stage has kernels with counters.

    Stages of the recipe are matched by name: prefill, decode, mixed.
    """
    if run.counters.empty:
        return ()
    tables = _Tables(
        {text(row["kernel_id"]): row for row in records(run.kernels)},
        {text(row["kernel_id"]): row for row in records(run.counters)},
        grouped(records(run.gemms), lambda row: (text(row["stage"]), text(row["kernel_id"]))),
    )
    found = []
    for kind in stages.kinds:
        rows = records(run.stage_kernels[run.stage_kernels["stage"] == kind.kind])
        if kind.work is None or not rows:
            continue
        flops = kind.work.flops
        for component, required in (
            (PRODUCTS, flops.linear + flops.head),
            (ATTENTION, flops.attention),
        ):
            kernels = [row for row in rows if _component(tables, row) == component]
            found.append(_counted(kind, component, required * stages.gpus, kernels, tables))
    return tuple(found)


def _component(tables: _Tables, row: Row) -> str:
    kernel = tables.kernels.get(text(row["kernel_id"]))
    # What adds up the blocks of a split K multiplies nothing.
    if kernel is None or is_reduction(text(kernel["name"])):
        return ""
    return COMPONENTS.get(text(kernel["category"]), "")


def _counted(
    kind: Kind, component: str, required: float, rows: list[Row], tables: _Tables
) -> Counted:
    if not rows:
        return Counted(kind.kind, component, None, required, reason=NO_KERNEL)
    time = sum(number(row["total_ns"]) for row in rows)
    unknown: dict[Text, float] = defaultdict(float)
    total = by_tile = 0.0
    for row in rows:
        flops, tiled = _of_kernel(kind.kind, row, tables)
        if isinstance(flops, Text):
            unknown[flops] += number(row["total_ns"])
            continue
        total += flops
        by_tile += flops if tiled else 0.0
    if sum(unknown.values()) > NEGLIGIBLE * time:
        cause = max(unknown, key=unknown.__getitem__)
        share = Number(unknown[cause] / time, "fraction")
        reason = Text("{cause} ({share} of their time)", cause=cause, share=share)
        return Counted(kind.kind, component, None, required, reason=reason)
    return Counted(kind.kind, component, total, required, by_tile)


def _of_kernel(stage: str, row: Row, tables: _Tables) -> tuple[float | Text, bool]:
    """Return the FLOPs of a kernel in a stage, or why they are unknown; and whether by tile."""
    key = text(row["kernel_id"])
    counter = tables.counters.get(key)
    if counter is None:
        return NO_COUNTERS, False
    profiled = known(counter["flops_tensor"]) or known(counter["flops"])
    if profiled is None:
        return NO_FLOPS, False
    calls = number(row["calls"])
    if not is_mixed(tables.kernels[key]):
        return calls * profiled, False
    padded = _by_tile(tables.products.get((stage, key), []), profiled, calls)
    return (MIXED_SIZES, False) if padded is None else (padded, True)


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
