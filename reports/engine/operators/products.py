"""Matrix products, operators and totals of a stage, by the operator view and by the trace.

A run of a stage is one time that it ran on one GPU: for a serving engine, one step.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

from nsight_prof.parsers.cells import Row, count, from_row, grouped, known, number, records, text
from nsight_prof.parsers.run.run import Run
from nsight_prof.parsers.torch.gemm_shapes import SIZES
from nsight_prof.reports.engine.stages.kinds import Kind, Stages, stages_of
from nsight_prof.reports.page import Link, Number, Ref, Text, Value, Verbatim

ALL = "(all)"
FLOPS = "FLOPs of matrix products"
ALL_KERNELS = "time of all kernels"
ATTENTION = "time of attention"
"""Quantities of views."""
EXCESS = 0.1
"""Part by which the operator view's kernel time may exceed the trace's without a sentence."""
COUNTED_LIKE = 0.02
"""Counted FLOPs within this part of those of whole tiles are of that shape (clusters round up)."""


@dataclass(frozen=True)
class Saving:
    """A kernel: its number on the page, and the part of its time that it could save.

    `part_of_time` is None where it was not judged. `advised`: a finding of the report says what to
    do about it.
    """

    number: int
    part_of_time: float | None
    advised: bool

    @property
    def name(self) -> Link:
        """What leads to the kernel's row in the table of what each kernel could save."""
        return Link(Text("kernel {n}", n=self.number), f"could-save-{self.number}")


Savings = Mapping[str, Saving]
"""Kernels of a run by kernel_id."""


def kernel_savings(
    run: Run, stage: Stage, lost_ns: float, kernel_ids: Set[str], savings: Savings
) -> Iterator[Text]:
    """Yield `lost_ns` of a run for all runs, with what the table has of it for the stage's kernels,
    the same as evidence, and kernels that no finding is about.
    """
    lost = Number(lost_ns * stage.runs, "ns")
    gpu_time = Number(run.kernels["total_ns"].sum(min_count=1), "ns")
    runs = Text("In {n} run", "In all {n} runs", n=stage.runs)
    in_all: dict[str, Value] = {"runs": runs, "lost": lost, "part": lost.share_of(gpu_time)}
    kernels = run.stage_kernels[run.stage_kernels["stage"] == stage.stage]
    gains = {key: s.part_of_time for key, s in savings.items() if s.part_of_time is not None}
    rows = [r for r in records(kernels) if r["kernel_id"] in kernel_ids & gains.keys()]
    evidence = Text("beyond the roof, in all runs: {lost} ({part} of the GPU time)",
                    lost=lost, part=in_all["part"])  # fmt: skip
    if not rows:
        yield Text("{runs} that is {lost}, {part} of the GPU time.", **in_all)
        yield evidence
        return
    judged = sorted({savings[text(r["kernel_id"])] for r in rows}, key=lambda s: s.number)
    saved = Number(sum(number(r["total_ns"]) * gains[text(r["kernel_id"])] for r in rows), "ns")
    yield Text(
        "{runs} that is {lost}, {part} of the GPU time; the table of what each kernel could save "
        "has {saved} of it for {kernels}, since it takes one launch of each, its roof at its own "
        "clock, and the cause that was found.",
        saved=saved,
        kernels=[saving.name for saving in judged],
        **in_all,
    )
    yield evidence
    yield Text("of it in the table of what each kernel could save: {saved}", saved=saved)
    if open_kernels := [saving.name for saving in judged if not saving.advised]:
        yield Text("no finding is about {kernels}", kernels=open_kernels)


def stages_of_operators(run: Run) -> tuple[Stage, ...]:
    """Return the stages of the operator view that had GPU work, the most of it first."""
    steps = stages_of(run)
    by_stage = grouped(records(run.operators), lambda row: text(row["stage"]))
    times = {stage: sum(number(r["gpu_ns"]) for r in rows) for stage, rows in by_stage.items()}
    order = sorted((stage for stage, time in times.items() if time > 0), key=lambda s: -times[s])
    return tuple(_stage(run, stage, by_stage[stage], steps) for stage in order)


def excess_operator(stage: Stage) -> Operator | None:
    """Return the operator that took most more time than its kernel in the trace.

    None where the operator view took about as long as the trace.
    """
    view = stage.view(ALL_KERNELS)
    if view is None or not view.operators > (1 + EXCESS) * view.kernels:
        return None
    operator = max(stage.operators, key=lambda operator: operator.excess_ns)
    return operator if operator.excess_ns > 0 else None


@dataclass(frozen=True)
class _Traced:
    """A run of a stage in the trace; times of kernels by the names that readers know."""

    runs: int
    kernel_ns: float
    launches: float
    by_name: Mapping[str, float]


def _stage(run: Run, stage: str, rows: Sequence[Row], steps: Stages | None) -> Stage:
    profiled_runs = max((count(row["instances"]) or 0 for row in rows), default=0) or 1
    traced = _traced(run, stage)
    gemms = [row for row in records(run.gemms) if text(row["stage"]) == stage]
    counters = {text(row["kernel_id"]): row for row in records(run.counters)}
    found = products(gemms, counters, profiled_runs, traced.runs)
    attends = run.kernels[run.kernels["category"] == "attention"]
    kind = steps.kind(stage) if steps else None
    return Stage(
        stage,
        found,
        _operators(rows, profiled_runs, traced.by_name),
        _views(stage, found, rows, profiled_runs, traced, set(attends["short_name"]), steps, kind),
        traced.kernel_ns,
        traced.runs,
        tuple(attends["kernel_id"]),
    )


def _traced(run: Run, stage: str) -> _Traced:
    """Return the stage in the trace; the whole trace for work outside of stages, if it has none."""
    stages = {text(row["stage"]): row for row in records(run.stages)}
    row = stages.get(stage) if stage else stages.get(ALL) if len(stages) == 1 else None
    runs = (count(row["instances"]) or 1) if row else 1
    names = dict(zip(run.kernels["kernel_id"], run.kernels["short_name"], strict=True))
    by_name: dict[str, float] = defaultdict(float)
    for kernel in records(run.stage_kernels):
        if text(kernel["stage"]) == stage:
            name = text(names.get(text(kernel["kernel_id"])))
            by_name[name] += number(kernel["total_ns"]) / runs
    kernel_ns = number(row["kernel_ns"]) / runs if row else math.nan
    return _Traced(runs, kernel_ns, number(row["launches"]) / runs if row else math.nan, by_name)


def _operators(rows: Sequence[Row], runs: int, traced: Mapping[str, float]) -> tuple[Operator, ...]:
    total = sum(number(row["gpu_ns"]) for row in rows)
    found = [
        Operator(
            name=text(row["operator"]),
            shapes=text(row["input_shapes"]),
            calls=(known(row["calls"]) or number(row["launches"])) / runs,
            gpu_ns=number(row["gpu_ns"]) / runs,
            self_cpu_ns=number(row["self_cpu_ns"]) / runs,
            kernel=text(row["kernel"]),
            share=number(row["gpu_ns"]) / total if total else math.nan,
            traced_ns=traced.get(text(row["kernel"]), 0.0),
        )
        for row in rows
    ]
    return tuple(sorted(found, key=lambda operator: -operator.gpu_ns))


def _views(
    stage: str,
    found: Sequence[Product],
    rows: Sequence[Row],
    runs: int,
    traced: _Traced,
    attention: set[str],
    steps: Stages | None,
    kind: Kind | None,
) -> tuple[View, ...]:
    """Return what more than one view has of a run; `rows` are of table `operators`."""
    multiplying = [row for row in rows if known(row["m"]) is not None]
    attending = [row for row in rows if text(row["kernel"]) in attention]
    shapes = {(p.module, p.m, p.n, p.k, p.batch, p.dtype): p for p in found}.values()
    flops, weights, attention_ns = _by_model(steps, kind)
    floor = _sum(p.total_ns * p.fraction for p in found)
    attention_traced = sum(time for name, time in traced.by_name.items() if name in attention)

    def mean(column: str, of: Sequence[Row]) -> float:
        return sum(number(row[column]) for row in of) / runs

    views = [
        View(stage, FLOPS, "FLOP", flops, mean("flops", multiplying),
             _sum(p.calls * p.hardware_flops for p in found)),
        View(stage, "weights that they read", "B", weights,
             _sum(p.operator_calls * p.weight_bytes for p in shapes),
             _sum(p.calls * p.dram_read for p in found)),
        View(stage, "time of matrix products", "ns", floor, mean("gpu_ns", multiplying),
             _sum(p.total_ns for p in found)),
        View(stage, ATTENTION, "ns", attention_ns, mean("gpu_ns", attending),
             attention_traced if traced.by_name else math.nan),
        View(stage, ALL_KERNELS, "ns", math.nan, mean("gpu_ns", rows), traced.kernel_ns),
        View(stage, "kernels", "", math.nan, mean("launches", rows), traced.launches),
    ]  # fmt: skip
    return tuple(view for view in views if view.operators > 0 or view.kernels > 0)


def _by_model(steps: Stages | None, kind: Kind | None) -> tuple[float, float, float]:
    """Return FLOPs and weight bytes of a step's products, and the floor of its attention in ns."""
    if steps is None or kind is None or kind.work is None or steps.shard is None:
        return math.nan, math.nan, math.nan
    shard, flops, traffic = steps.shard, kind.work.flops, kind.work.traffic
    values = sum(linear.values for linear in shard.linears()) + shard.head().values
    memory, compute = steps.roofs.memory, steps.roofs.fastest
    floor = math.nan
    if memory is not None and compute is not None:
        floor = max(flops.attention / compute.value, traffic.kv_read / memory.value)
    of_products = (flops.linear + flops.head) / kind.steps
    weights = values * shard.weight_bytes - sum(map(shard.saved, shard.linears()))
    return of_products, weights, floor / kind.steps * 1e9


def _sum(values: Iterable[float]) -> float:
    """Return the sum; NaN for nothing, and where one is unknown."""
    terms = list(values)
    return float(sum(terms)) if terms else math.nan


@dataclass(frozen=True)
class Product:
    """A matrix product of a stage; numbers are of one call, `calls` and `total_ns` of a run.

    `fraction` is the part of its roof that a call reached in the mean; NaN where unknown, as all
    other numbers. Rates are of the mean, too, so that calls, time and rate fit each other.
    `counted` is FLOPs by counters; NaN where no launch of this shape was counted.
    """

    stage: str
    module: str
    m: int
    n: int
    k: int
    batch: int
    dtype: str
    kernel: str
    operator_kernel: str
    join: str
    reason: str
    tile: str
    split_k: int | None
    calls: float
    operator_calls: float
    median_ns: float
    total_ns: float
    operator_ns: float
    flops: float
    bytes: float
    padding: float
    counted: float
    dram_read: float
    roof: str
    roof_source: str
    fraction: float
    kernel_id: str = ""

    @property
    def name(self) -> str:
        """Name of the matrix without the path to it, else its size."""
        inside = self.module.rpartition("*.")[2]
        return (inside if inside != self.module else inside.rpartition(".")[2]) or self.size

    @property
    def size(self) -> str:
        """M x N x K, with the number of products where a call has several."""
        size = f"{self.m} x {self.n} x {self.k}"
        return size if self.batch == 1 else f"{self.batch} of {size}"

    @property
    def full_name(self) -> Verbatim:
        """Name and size."""
        return Verbatim(f"{self.name} ({self.size})" if self.module else self.size)

    @property
    def mean_ns(self) -> float:
        """Time of a call in the trace."""
        return self.total_ns / self.calls if self.calls > 0 else math.nan

    @property
    def flop_rate(self) -> Number:
        """FLOP/s in the trace."""
        return self.number("flop_per_s", self.flops / self.mean_ns * 1e9, "FLOP/s")

    @property
    def byte_rate(self) -> Number:
        """B/s in the trace, of the bytes that the product must move."""
        return self.number("bytes_per_s", self.bytes / self.mean_ns * 1e9, "B/s")

    @property
    def rate(self) -> Number:
        """The rate that its roof limits."""
        return self.byte_rate if self.roof == "dram" else self.flop_rate

    @property
    def roof_share(self) -> Number:
        """Part of its roof that a call reached."""
        return self.number("roof_fraction", self.fraction, "fraction")

    @property
    def weight_bytes(self) -> float:
        """Bytes of the second factor."""
        return float(self.batch * self.n * self.k * SIZES.get(self.dtype, math.nan))

    @property
    def hardware_flops(self) -> float:
        """FLOPs of a call by counters, else those of whole tiles."""
        return self.flops * self.padding if math.isnan(self.counted) else self.counted

    @property
    def lost_ns(self) -> float:
        """Time of a run beyond what the roof allows: all calls less calls x the floor of one."""
        return self.total_ns * (1 - self.fraction)

    @property
    def ref(self) -> Ref:
        """Its row in table `gemms`."""
        return Ref("gemms", f"{self.stage} {self.name} {self.m}")

    def number(self, column: str, value: float, unit: str) -> Number:
        """Return a value from a column of its row; where it is missing, with the reason."""
        return Number(value, unit, (Ref("gemms", self.ref.row, column),), self.reason)


def products(
    rows: Sequence[Row], counters: dict[str, Row], profiled_runs: int, traced_runs: int
) -> tuple[Product, ...]:
    """Return the products of a stage.

    Args:
        rows: those of the stage in table `gemms`.
        counters: rows of table `counters` by kernel_id.
        profiled_runs: how often the stage ran under the torch profiler.
        traced_runs: how often it ran in the trace.
    """
    shapes: dict[str, int] = {}
    for row in rows:
        shapes[text(row["kernel_id"])] = shapes.get(text(row["kernel_id"]), 0) + 1
    found = []
    for row in rows:
        key = text(row["kernel_id"])
        counted, dram_read = _counted(row, counters.get(key), shapes[key])
        found.append(
            from_row(
                Product,
                row,
                calls=number(row["calls"]) / traced_runs,
                operator_calls=number(row["operator_calls"]) / profiled_runs,
                total_ns=number(row["total_ns"]) / traced_runs,
                padding=number(row["tile_padding"]),
                counted=counted,
                dram_read=dram_read,
                roof=text(row["roof_used"]),
                roof_source=text(row["roof_source"]),
                fraction=number(row["roof_fraction"]),
            )
        )
    return tuple(found)


def _counted(row: Row, counter: Row | None, shapes: int) -> tuple[float, float]:
    """Return FLOPs and DRAM bytes that counters have of a launch of this shape.

    The counted launch of a kernel that several shapes share is of the one whose tiles explain it.
    """
    if counter is None:
        return math.nan, math.nan
    flops = known(counter["flops_tensor"]) or known(counter["flops"])
    if flops is None:
        return math.nan, math.nan
    tiled = number(row["flops"]) * number(row["tile_padding"])
    if shapes > 1 and not abs(flops / tiled - 1) <= COUNTED_LIKE:
        return math.nan, math.nan
    return flops, number(counter["dram_read_bytes"])


@dataclass(frozen=True)
class Operator:
    """An operator of a stage with the shapes of its inputs; calls and times are of a run.

    `traced_ns` is what kernels of the same name as its largest take in the trace.
    """

    name: str
    shapes: str
    calls: float
    gpu_ns: float
    self_cpu_ns: float
    kernel: str
    share: float
    traced_ns: float

    @property
    def excess_ns(self) -> float:
        """Time of a run beyond that of the same kernel in the trace."""
        return self.gpu_ns - self.traced_ns


@dataclass(frozen=True)
class View:
    """One quantity of a run of a stage in three views; NaN where a view does not have it."""

    stage: str
    quantity: str
    unit: str
    analytical: float
    operators: float
    kernels: float

    def number(self, view: str) -> Number:
        """Return the value of one view, with its unit."""
        value = getattr(self, view)
        return Number(value, self.unit, missing="the view does not have it")


@dataclass(frozen=True)
class Stage:
    """A stage in the operator view, with its products in the trace.

    `attention` are the ids of the kernels of attention; `runs` is how often the stage ran in the
    trace.
    """

    stage: str
    products: tuple[Product, ...]
    operators: tuple[Operator, ...]
    views: tuple[View, ...]
    kernel_ns: float
    runs: int
    attention: tuple[str, ...] = ()

    @property
    def label(self) -> Value:
        """What a reader calls the stage."""
        return Verbatim(self.stage) if self.stage else Text("outside of stages")

    @property
    def product_share(self) -> float:
        """Part of the trace's kernel time in products; NaN where one did not join."""
        return sum(product.total_ns for product in self.products) / self.kernel_ns

    def share(self, time_ns: float) -> Number:
        """Return a part of the kernel time of a run."""
        return Number(time_ns / self.kernel_ns, "fraction")

    def view(self, quantity: str) -> View | None:
        """Return one quantity in the three views; None where it is not known."""
        return next((view for view in self.views if view.quantity == quantity), None)
