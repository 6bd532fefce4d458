"""Section of the operator view: operators by stage, and matrix products with their kernels."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from nsight_prof.parsers.cells import Row, known, number, records, text
from nsight_prof.parsers.join.gemms import BY_BOTH, BY_NAME, BY_ORDER
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.analysis.stages import stage_words
from nsight_prof.reports.engine.operators.findings import calls, findings
from nsight_prof.reports.engine.operators.products import (
    ALL_KERNELS,
    ATTENTION,
    FLOPS,
    Operator,
    Product,
    Savings,
    Stage,
    View,
    stages_of_operators,
)
from nsight_prof.reports.engine.stage_memory import (
    PATHS,
    Outer,
    inner_path,
    memory_table,
    outer_functions,
    split_path,
    stage_name,
)
from nsight_prof.reports.page import (
    Bullets,
    Column,
    Figure,
    Link,
    Name,
    Number,
    Section,
    Table,
    Text,
    Value,
    Verbatim,
)
from nsight_prof.reports.page.charts import Bar, BarFigure, IcicleFigure, Slice
from nsight_prof.reports.page.formats import shorten
from nsight_prof.reports.page.units import percent, quantity
from nsight_prof.reports.serving.roofs import roof_name

LEAST = 0.004
"""Part of the whole below which boxes of one parent are one box."""
DEEPEST = 12
"""Rows of the icicle, the operator's included."""
OUTSIDE, OTHERS = "outside of stages", "others"
FILE = "operators.md"
MOST = 500
"""Rows of the page; the table of the run has all."""
SHOWN = 12
"""Operators of a table."""
SMALL = 0.01
"""Part of the GPU time of the operator view below which a stage is not shown."""
LARGEST = 4
"""Stages that are shown."""
JOINS = {
    BY_BOTH: Text("order, same kernel"),
    BY_ORDER: Text("order, other kernel"),
    BY_NAME: Text("name"),
}
NOT_JOINED = Text("not joined")
QUANTITIES = {
    FLOPS: Text("FLOPs of matrix products"),
    "weights that they read": Text("weights that they read"),
    "time of matrix products": Text("time of matrix products"),
    ATTENTION: Text("time of attention"),
    ALL_KERNELS: Text("time of all kernels"),
    "kernels": Text("kernels"),
}
METHOD = (
    Text(
        "Operators are of a run of their own under the torch profiler, with the shapes of their "
        "inputs. Its host times include the cost of the profiler, some microseconds per operator; "
        "times of products and rates are of the trace."
    ),
    Text(
        "A kernel of the trace gets the shape of the product at the same place in the order of the "
        "stage's products (order). That also works where the trace replays CUDA graphs and the "
        "operator view runs without them; the library may choose another kernel there. Where the "
        "counts do not fit, it is joined by its name and grid, if no other shape of the stage has "
        "them (name)."
    ),
    Text(
        "The share of the roof is the time that min(peak, intensity x bandwidth) allows over the "
        "mean time of a call in the trace, with 2MNK FLOPs and both factors and the output moved "
        "once. A split of K is read from the name of the kernel; its number of blocks along K is "
        "the blocks of the grid over its tiles."
    ),
)


@dataclass
class Node:
    """A stage, function or operator, and what it consists of."""

    value: float = 0.0
    children: dict[str, Node] = field(default_factory=dict)

    def add(self, path: list[str], value: float) -> None:
        """Add a time to what is at the end of a path, and to all above it."""
        self.value += value
        if path:
            self.children.setdefault(path[0], Node()).add(path[1:], value)


def icicle(run: Run) -> IcicleFigure | None:
    """Return the icicle of table operators; None where no time is known.

    Widths are GPU time, or host time for a program that used no GPU.
    """
    rows = records(run.operators)
    on_gpu = any(known(row["gpu_ns"]) for row in rows)
    root, outer = Node(), outer_functions(run)
    for row in rows:
        value = known(row["gpu_ns" if on_gpu else "self_cpu_ns"])
        functions = split_path(inner_path(row, outer))
        if value:
            path = [text(row["stage"]) or OUTSIDE, *functions[: DEEPEST - 2]]
            root.add([*path, text(row["operator"])], value)
    if not root.value:
        return None
    what = Text("GPU time") if on_gpu else Text("host time")
    return IcicleFigure(
        "operators-icicle",
        Text("Where the {what} of the operators goes", what=what),
        "Icicle: time of each stage, of the functions in it, and of their operators",
        tuple(_slices(root, 0, 0.0, (), LEAST * root.value)),
        subtitle=Text(
            "Width is {what} under the torch profiler. Each row divides the box above it: stage, "
            "functions (file:line of the definition), operator.",
            what=what,
        ),
    )


def _slices(
    node: Node, depth: int, begin: float, above: tuple[str, ...], smallest: float
) -> Iterator[Slice]:
    """Give the boxes below a node, the widest first; small ones of one parent as one."""
    children = sorted(node.children.items(), key=lambda item: -item[1].value)
    rest = sum(child.value for _, child in children if child.value < smallest)
    for name, child in children:
        if child.value >= smallest:
            path = (*above, name)
            yield Slice(depth, begin, child.value, name, " > ".join(path), path[0])
            yield from _slices(child, depth + 1, begin, path, smallest)
            begin += child.value
    if rest > smallest:
        path = (*above, OTHERS)
        yield Slice(depth, begin, rest, OTHERS, " > ".join(path), path[0])


def operators_page(run: Run) -> Section | None:
    """Return the page; None for a run without an operator view."""
    rows = records(run.operators)
    if not rows:
        return None
    intro = Text(
        "All operators under the torch profiler, most GPU time first, by stage, shapes of the "
        "inputs and functions of the program around them. Host times hold the cost of the profiler."
    )
    memory = records(run.stage_memory)
    tables = [_table(rows, outer_functions(run)), *([memory_table(memory)] if memory else ())]
    return Section("all-operators", Text("Operators"), (intro, *tables))


def _table(rows: list[Row], outer: Outer) -> Table[Row]:
    def number(row: Row, column: str, unit: str) -> Number:
        return Number(known(row[column]), unit)

    def words(value: str) -> Verbatim | None:
        return Verbatim(value) if value else None

    columns = [
        Column(Text("Stage"), stage_name),
        Column(Text("Operator"), lambda row: Verbatim(text(row["operator"]))),
        Column(Text("Input shapes"), lambda row: words(text(row["input_shapes"]))),
        Column(Text("Types"), lambda row: words(text(row["dtypes"]))),
        Column(Text("Calls"), lambda row: number(row, "calls", "count")),
        Column(Text("GPU time"), lambda row: number(row, "gpu_ns", "ns")),
        Column(Text("Host time"), lambda row: number(row, "cpu_ns", "ns")),
        Column(Text("Host time itself"), lambda row: number(row, "self_cpu_ns", "ns")),
        Column(Text("Allocated"), lambda row: number(row, "allocated_bytes", "B")),
        Column(Text("Kernel"), lambda row: Name(text(row["kernel"]))),
        Column(Text("Functions"), lambda row: words(inner_path(row, outer))),
    ]
    title = Text("Operators by stage")
    return Table("all-operators", title, columns, rows, note=PATHS, preview=MOST)


def section(run: Run, savings: Savings) -> Section | None:
    """Return the section; None for a run without an operator view.

    `savings` is what the report says of single kernels.
    """
    if run.operators.empty:
        return None
    every = stages_of_operators(run)
    times = {s.stage: sum(operator.gpu_ns for operator in s.operators) for s in every}
    stages = [s for s in every if times[s.stage] >= SMALL * sum(times.values())][:LARGEST]
    products = sorted(
        (product for stage in stages for product in stage.products),
        key=lambda p: (p.stage, -p.total_ns if math.isfinite(p.total_ns) else 0.0),
    )
    tables: list[Table[Product] | Table[View] | Table[Operator] | Table[Row]] = []
    if products:
        tables.append(_product_table(products, savings))
    if views := [view for stage in stages for view in stage.views]:
        tables.append(_view_table(views, stages))
    tables += [_operator_table(stage) for stage in stages] or [_host_table(run)]
    judged = [product for product in products if math.isfinite(product.fraction)]
    return Section(
        "operators",
        Text("Operators and matrix products"),
        (
            _intro(stages, products),
            *findings(run, stages, savings),
            *([Figure(_chart(judged))] if judged else ()),
            *([Figure(boxes)] if (boxes := icicle(run)) else ()),
            *tables,
            Text("All operators, with functions and what they allocate, are in operators.md."),
            Bullets(Text("How it was measured"), METHOD),
        ),
        numbers={
            "stages": {
                stage.stage or "(outside)": {
                    "kernel_ns": stage.kernel_ns,
                    "product_share": stage.product_share,
                    "products": [dataclasses.asdict(p) for p in stage.products],
                    "views": [dataclasses.asdict(view) for view in stage.views],
                }
                for stage in every
            }
        },
    )


def _intro(stages: Sequence[Stage], products: Sequence[Product]) -> Text:
    if not stages:
        return Text("The torch profiler recorded operators of the host alone: no kernel is theirs.")
    counts = {key: sum(product.join == key for product in products) for key in (*JOINS, "")}
    joined = [
        Text("{n} by {join}", n=n, join=JOINS[key])
        if key else Text("{n} without a kernel of the trace", n=n)
        for key, n in counts.items() if n
    ]  # fmt: skip
    return Text(
        "Matrix products of the operator view, by shape in {stages}: {n}{joined}. Calls and times "
        "are of one run of a stage: one step of an engine.",
        n=len(products),
        stages=[stage.label for stage in stages],
        joined=Text(", joined to the trace: {joined}", joined=joined) if joined else "",
    )


def _product_table(products: Sequence[Product], kernels: Savings) -> Table[Product]:
    """Return each matrix product with its kernel, rate and share of the roof."""

    def kernel(product: Product) -> Link | None:
        found = kernels.get(product.kernel_id)
        return Link(str(found.number), f"kernel-{found.number}") if found else None

    return Table(
        "operators-products",
        Text("Matrix products"),
        [
            Column(Text("Stage"), lambda p: p.stage or None),
            Column(Text("Matrix"), lambda p: Verbatim(p.name) if p.module else None),
            Column(Text("M x N x K"), lambda p: p.size),
            Column(Text("Type"), lambda p: p.dtype or None),
            Column(Text("Kernel"), kernel, right=True),
            Column(Text("Tile"), lambda p: p.tile or None),
            Column(Text("Split K"), lambda p: p.split_k),
            Column(Text("Calls"), lambda p: calls(p.calls if p.join else p.operator_calls)),
            Column(Text("Time per call"), lambda p: p.number("total_ns", p.mean_ns, "ns")),
            Column(Text("Time"), lambda p: p.number("total_ns", p.total_ns, "ns")),
            Column(Text("FLOP/s"), lambda p: p.flop_rate),
            Column(Text("B/s"), lambda p: p.byte_rate),
            Column(Text("Of the roof"), lambda p: p.roof_share),
            Column(Text("Roof"), lambda p: roof_name(p.roof_source) if p.roof_source else None),
            Column(
                Text("Padding"), lambda p: p.number("tile_padding", p.padding - 1, "fraction")
            ),
            Column(Text("Joined by"), lambda p: JOINS.get(p.join, NOT_JOINED)),
        ],
        products,
        note=Text(
            "Time: of all calls. Time per call, rates and share of the roof are of the mean call. "
            "Padding: FLOPs of whole tiles beyond 2MNK."
        ),
        refs=lambda p: [p.ref],
    )  # fmt: skip


def _view_table(views: Sequence[View], stages: Sequence[Stage]) -> Table[View]:
    """Return the analytical, the operator and the kernel view of each stage side by side."""
    labels = {stage.stage: stage.label for stage in stages}

    def beyond(view: View, value: str, base: str) -> Number:
        return (view.number(value) - view.number(base)).share_of(view.number(base))

    return Table(
        "operators-views",
        Text("Three views of a run of a stage"),
        [
            Column(Text("Stage"), lambda v: labels[v.stage]),
            Column(Text("Quantity"), lambda v: QUANTITIES[v.quantity]),
            Column(Text("Analytical"), lambda v: v.number("analytical")),
            Column(Text("Operators"), lambda v: v.number("operators")),
            Column(Text("Kernels"), lambda v: v.number("kernels")),
            Column(
                Text("Operators over analytical"),
                lambda v: beyond(v, "operators", "analytical"),
            ),
            Column(Text("Kernels over operators"), lambda v: beyond(v, "kernels", "operators")),
        ],
        views,
        note=Text(
            "Analytical: the model's configuration; for time, what the roofs allow for the shapes. "
            "Operators: shapes and times under the torch profiler. Kernels: times of the trace; "
            "FLOPs by counters, and of whole tiles where no launch of the shape was counted; bytes "
            "read from DRAM by counters."
        ),
    )


def _operator_table(stage: Stage) -> Table[Operator]:
    """Return the operators of a stage that took most GPU time."""
    working = [operator for operator in stage.operators if operator.gpu_ns > 0]
    note = Text("Under the torch profiler, of one run.")
    if (rest := len(working) - SHOWN) > 0:
        note = Text("Under the torch profiler, of one run. More in table operators: {n}.", n=rest)
    return Table(
        f"operators-{stage.stage or 'outside'}",
        Text("Operators of {stage}", stage=stage.label),
        [
            Column(Text("Operator"), lambda o: o.name),
            Column(Text("Input shapes"), lambda o: _shapes(o.shapes)),
            Column(Text("Calls"), lambda o: calls(o.calls)),
            Column(Text("GPU time"), lambda o: Number(o.gpu_ns, "ns")),
            Column(Text("Share"), lambda o: Number(o.share, "fraction")),
            Column(Text("Host time itself"), lambda o: Number(o.self_cpu_ns, "ns")),
            Column(Text("Kernel"), lambda o: Name(o.kernel)),
        ],
        working[:SHOWN],
        note=note,
        folded=True,
    )


def _host_table(run: Run) -> Table[Row]:
    """Return the operators that took most host time, for a program that used no GPU."""
    rows = records(run.operators.sort_values("self_cpu_ns", ascending=False).head(SHOWN))
    return Table(
        "operators-host",
        Text("Operators"),
        [
            Column(Text("Operator"), lambda r: text(r["operator"])),
            Column(Text("Input shapes"), lambda r: _shapes(text(r["input_shapes"]))),
            Column(Text("Calls"), lambda r: Number(number(r["calls"]), "count")),
            Column(Text("Host time itself"), lambda r: Number(number(r["self_cpu_ns"]), "ns")),
        ],
        rows,
    )


def _shapes(shapes: str) -> Value | None:
    return Verbatim(shorten(shapes.replace(",", ", "), 60)) if shapes else None


def _chart(products: Sequence[Product]) -> BarFigure:
    """Return a bar for each product: its share of the roof."""
    return BarFigure(
        "matrix-products",
        "Matrix products and their roof",
        "Bars: share of its roof that each matrix product of each stage reached",
        "% of the roof",
        tuple(
            Bar(
                Text("{stage}: {name}", stage=stage_words(p.stage), name=Verbatim(p.name))
                if p.stage
                else p.name,
                100 * p.fraction,
                group=p.stage,
                text=f"{percent(100 * p.fraction, 2)}, {quantity(p.total_ns, 'ns', 3)}",
            )
            for p in products
        ),
        subtitle="Behind each bar: time of all its calls in a run of the stage.",
    )
