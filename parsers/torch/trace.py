"""The trace of a torch profiler: table `operators`, and the matrix products that kernels computed.

Host times hold the profiler's own cost, which is some microseconds an operator. GPU times do not.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from nsight_prof.parsers import tables
from nsight_prof.parsers.errors import ArtifactUnreadable
from nsight_prof.parsers.names.kernel_names import classify
from nsight_prof.parsers.names.ranges import Stages, name_stages
from nsight_prof.parsers.run.sentences import stored
from nsight_prof.parsers.torch.events import read_events
from nsight_prof.parsers.torch.gemm_shapes import DTYPES, Gemm
from nsight_prof.parsers.torch.items import GpuWork, Instance, Item, Items, Kind, read_items
from nsight_prof.parsers.torch.modules import torch_modules

NO_OPERATOR = "(no operator)"
"""Operator of kernels that a program launches itself, as Triton kernels are."""
CUDA_GRAPH = "(CUDA graph)"
"""Operator of kernels that a CUDA graph launches: it has none of the operators it was made of."""
_NO_TYPE = ("", "Scalar", "ScalarList", "TensorList", "GenericList")


@dataclass(frozen=True)
class GemmKernel:
    """A kernel of a matrix product as the operator view saw it.

    `gemm` is None where its operator is not known, or does not tell its shapes. `name` and `grid`
    are Kineto's; `duration` in ns.
    """

    name: str
    grid: str
    duration: int
    operator: str
    module: str
    gemm: Gemm | None


class TorchTrace:
    """A trace of the torch profiler, read as a whole; `warnings` says what it does not tell."""

    def __init__(self, items: Items, stages: Stages = ()) -> None:
        self._items = items
        self.warnings = _warnings(items, stages)

    def operators(self) -> pd.DataFrame:
        """Return table `operators`: most GPU time first, then most time of the host itself."""
        rows: dict[tuple[str, ...], _Row] = {}
        instances = Counter(instance.stage for instance in self._items.instances)
        for item in self._items.items:
            if item.kind is Kind.OPERATOR:
                _row(rows, _stage(item), item).add(item)
            elif item.kind is Kind.MEMORY and item.parent is not None:
                _row(rows, _stage(item), item.parent).allocated += max(item.bytes, 0)
        for work in self._items.work:
            _row(rows, _stage(work.item), work).give(work)
        frame = pd.DataFrame(
            [
                {"stage": key[0], "instances": instances.get(key[0])} | row.cells()
                for key, row in rows.items()
            ],
            columns=[column.name for column in tables.tables()["operators"]],
        )
        order = ["gpu_ns", "self_cpu_ns", "operator", "input_shapes", "kernel", "call_path"]
        up = [False, False, True, True, True, True]
        frame = frame.sort_values(order, ascending=up, kind="stable", na_position="last")
        return tables.check(frame, "operators")

    def stage_memory(self) -> pd.DataFrame:
        """Return table `stage_memory`; empty for a trace without profile_memory."""
        found: dict[tuple[str, int], list[Item]] = defaultdict(list)
        for item in self._items.items:
            if item.kind is Kind.MEMORY:
                found[_stage(item), item.device].append(item)
        rows = [
            {
                "stage": stage,
                "device": device,
                "allocations": sum(item.bytes > 0 for item in items),
                "allocated_bytes": sum(item.bytes for item in items if item.bytes > 0),
                "freed_bytes": -sum(item.bytes for item in items if item.bytes < 0),
                # what was held before the first change of the stage counts, too
                "peak_bytes": max(item.allocated - min(item.bytes, 0) for item in items),
            }
            for (stage, device), items in found.items()
        ]
        columns = [column.name for column in tables.tables()["stage_memory"]]
        return tables.check(pd.DataFrame(rows, columns=columns), "stage_memory")

    def modules(self) -> pd.DataFrame:
        """Return table `modules`; empty without vLLM's ranges of modules."""
        return torch_modules(self._items)

    def gemm_kernels(self) -> dict[str, list[list[GemmKernel]]]:
        """Return, stage by stage, the matrix product kernels of each time it ran, in their order.

        "" is what ran outside of every stage, as one. Reductions behind a split K are left out.
        """
        found: dict[str, dict[int, list[GemmKernel]]] = defaultdict(lambda: defaultdict(list))
        for work in self._items.work:
            if work.is_kernel and is_product(work.name):
                instance = _instance(work.item)
                number = -1 if instance is None else instance.number
                found[_stage(work.item)][number].append(_gemm_kernel(work))
        return {stage: [runs[n] for n in sorted(runs)] for stage, runs in found.items()}


def open_torch_trace(path: Path, stages: Stages = ()) -> TorchTrace:
    """Read a Kineto chrome trace (.json, also .gz or .xz).

    `stages` names the stages by ranges, as for a trace of Nsight Systems: patterns of range names,
    or stage -> pattern; without any, each outermost range is one.

    Raises:
        ArtifactUnreadable: the file is damaged, no chrome trace, or holds no operator and kernel.
    """
    known: dict[str, str | None] = {}

    def stage_of(name: str) -> str | None:
        if name not in known:
            known[name] = name_stages([_domain_and_name(name)], stages)[0]
        return known[name]

    try:
        items = read_items(read_events(path), stage_of)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise ArtifactUnreadable(
            f"{path} has an event that is not as the torch profiler writes it: {error!r}",
            "record it again with a released torch (2.4 or newer)",
        ) from error
    if not items.work and not any(item.kind is Kind.OPERATOR for item in items.items):
        raise ArtifactUnreadable(
            f"{path} holds no operator and no kernel",
            "let the recorded part of the script run something: operators.capture: all",
        )
    return TorchTrace(items, stages)


def is_product(name: str) -> bool:
    """Tell whether a kernel of this name computes matrix products itself."""
    known = classify(name)
    return known.category in ("gemm", "gemv") and not is_reduction(name)


def is_reduction(name: str) -> bool:
    """Tell whether a kernel adds up the parts of a product whose K was split."""
    return "splitKreduce" in name


def _domain_and_name(name: str) -> tuple[str, str]:
    """Split `domain:name`; ranges of vLLM have a colon and a space, which is no domain."""
    domain, colon, rest = name.partition(":")
    return (
        (domain, rest) if colon and domain.isidentifier() and rest[:1] not in " :" else ("", name)
    )


def _instance(item: Item | None) -> Instance | None:
    return None if item is None else item.stage


def _stage(item: Item | None) -> str:
    instance = _instance(item)
    return "" if instance is None else instance.stage


def _gemm_kernel(work: GpuWork) -> GemmKernel:
    product = None if work.item is None or work.graph else work.item.product()
    operator = None if work.item is None or work.graph else work.item.operator
    label = product or operator
    return GemmKernel(
        name=work.name,
        grid=work.grid,
        duration=work.duration,
        operator=label.name if label else CUDA_GRAPH if work.graph else NO_OPERATOR,
        module="" if work.item is None or work.graph else work.item.module,
        gemm=product.gemm if product else None,
    )


class _Row:
    """Sums of one row of table `operators`."""

    def __init__(self, operator: str, shapes: str, dtypes: str, path: str) -> None:
        self.operator, self.shapes, self.dtypes, self.path = operator, shapes, dtypes, path
        self.allocated = 0
        self.calls = self.cpu = self.own = self.gpu = self.memory = self.launches = 0
        self.flops = 0.0
        self.gemm: Gemm | None = None
        self.kernels: Counter[str] = Counter()

    def add(self, item: Item) -> None:
        """Count a call."""
        self.calls += 1
        self.cpu += item.end - item.start
        self.own += item.end - item.start - item.inside
        if item.gemm is not None and not item.nested:
            self.gemm = item.gemm
            self.flops += item.gemm.flops

    def give(self, work: GpuWork) -> None:
        """Count GPU work that an operator, or none, issued."""
        if work.is_kernel:
            self.gpu += work.duration
            self.launches += 1
            self.kernels[work.name] += work.duration
        else:
            self.memory += work.duration

    def cells(self) -> dict[str, Any]:
        """Return the row; what operators have, kernels without an operator do not."""
        is_operator = self.operator not in (NO_OPERATOR, CUDA_GRAPH)
        largest = max(self.kernels, key=lambda name: self.kernels[name], default="")
        gemm = self.gemm
        return {
            "operator": self.operator,
            "input_shapes": self.shapes,
            "dtypes": self.dtypes,
            "calls": self.calls if is_operator else None,
            "cpu_ns": self.cpu if is_operator else None,
            "self_cpu_ns": self.own if is_operator else None,
            "gpu_ns": self.gpu,
            "memory_ns": self.memory,
            "launches": self.launches,
            "kernel": classify(largest).short_name if largest else "",
            "kernels": len(self.kernels),
            "batch": gemm.batch if gemm else None,
            "m": gemm.m if gemm else None,
            "n": gemm.n if gemm else None,
            "k": gemm.k if gemm else None,
            "flops": self.flops if gemm else None,
            "call_path": self.path,
            "allocated_bytes": self.allocated if is_operator else None,
        }


def _row(rows: dict[tuple[str, ...], _Row], stage: str, of: Item | GpuWork) -> _Row:
    """Return the row of an operator, or of GPU work by the operator that issued it."""
    graph = isinstance(of, GpuWork) and of.graph
    item = of if isinstance(of, Item) else of.item
    operator = None if item is None or graph else item.operator
    if operator is not None:
        path = " > ".join(operator.path)
        columns = (operator.name, _shapes(operator.dims), _dtypes(operator.types), path)
        key: tuple[str, ...] = (stage, *columns)
    elif graph:
        columns = (CUDA_GRAPH, "", "", "")
        key = (stage, *columns)
    else:
        columns = (NO_OPERATOR, "", "", "")
        key = (stage, *columns, of.name)
    if key not in rows:
        rows[key] = _Row(*columns)
    return rows[key]


def _shapes(dims: Any) -> str:
    return json.dumps(dims, separators=(",", ":")) if isinstance(dims, list) else ""


def _dtypes(types: Any) -> str:
    if not isinstance(types, list):
        return ""
    names = [DTYPES.get(str(t), str(t)) for t in types if str(t) not in _NO_TYPE]
    return ", ".join(dict.fromkeys(names))


def _warnings(items: Items, stages: Stages) -> list[str]:
    found = []
    if stages and not items.instances:
        present = ", ".join(sorted(items.ranges)[:8]) or "none"
        found.append(
            stored(
                "no range of the operator view is a stage (there are: {present})", present=present
            )
        )
    kernels = [work for work in items.work if work.is_kernel]
    if not kernels:
        found.append(
            stored("the torch profiler saw no kernel: times of operators are the host's alone")
        )
    graphs = sum(work.graph for work in kernels)
    if graphs:
        found.append(
            stored(
                "{graphs} of {kernels} kernels were launched by CUDA graphs, which have no "
                "operators: let the operators step run without them",
                graphs=graphs,
                kernels=len(kernels),
            )
        )
    return found
