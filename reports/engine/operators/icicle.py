"""The icicle of a run's operators: stages, the functions that call them, the operators."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from nsight_prof.parsers.cells import known, records, text
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.engine.stage_memory import inner_path, outer_functions, split_path
from nsight_prof.reports.page import Text
from nsight_prof.reports.page.charts import IcicleFigure, Slice

LEAST = 0.004
"""Part of the whole below which boxes of one parent are one box."""
DEEPEST = 12
"""Rows of the icicle, the operator's included."""
OUTSIDE, OTHERS = "outside of stages", "others"


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
