"""Models of the kernels of networks: how long an operation takes at sizes that were not measured.

One model for each operation, type, layout and state of the cache, from cases of the target
network_kernels: a smooth roofline, moved by what near sizes differ from it. Each says how far
it lies from shapes, and from batches of a known shape, that were left out of it.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from nsight_prof.parsers.cells import records
from nsight_prof.parsers.predict.costs import T1, T2, Estimate, Gpu, Residuals
from nsight_prof.parsers.predict.fit import Array, fit
from nsight_prof.parsers.predict.measured import near_shift, smooth_roofline

TARGET = "network_kernels"
COLD, HOT = "cold", "hot"
TYPES = {"tf32": "fp32", "fp16": "bf16"}
"""Types whose kernels are one: torch convolves FP32 in TF32, and fp16 takes as long as bf16."""
IN_LAYOUTS = ("conv2d", "depthwise-conv2d", "batch-norm", "group-norm", "max-pool2d", "avg-pool2d")
"""Operations whose kernels are others in another order of images."""
MULTIPLIED = ("conv2d", "linear", "attention", "lstm")
"""Operations that the Tensor Cores compute; all others are bound by what they move."""
FEWEST = 3
"""Cases that a model needs at least: two parameters, and one case to judge them by."""
ALIGNED, FAR = 8, 3.0
"""Sizes that are a multiple of it take other kernels; how far apart both lie, in factors of two."""
WELL_KNOWN = 8
"""Cases from which on the ridge and the size of a full GPU are fitted too."""


class Key(NamedTuple):
    """What has a model of its own."""

    op: str
    dtype: str
    layout: str

    def __str__(self) -> str:
        return " ".join(word for word in self if word)


@dataclass(frozen=True)
class Operation:
    """An operation of a network at a batch: see targets/network_kernels/operations.py.

    `rows` grow with the batch, and so do `flops` and `activation_bytes`; the other sizes and
    `weight_bytes` do not. `calls`: of the same operation in a row. `dtype`: bf16, fp16, fp32, tf32.
    """

    op: str
    rows: int
    sizes: tuple[tuple[str, int], ...]
    flops: float
    activation_bytes: float
    weight_bytes: float
    layout: str
    dtype: str
    calls: int = 1

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Operation:
        """Return an operation from its fields, `sizes` being a mapping."""
        return cls(**{**facts, "sizes": tuple(sorted(facts["sizes"].items()))})

    @property
    def key(self) -> Key:
        """The model that it belongs to."""
        layout = self.layout if self.op in IN_LAYOUTS else ""
        return Key(self.op, TYPES.get(self.dtype, self.dtype), layout)

    @cached_property
    def size(self) -> dict[str, int]:
        """The sizes by name."""
        return dict(self.sizes)

    def at(self, batch: int) -> Operation:
        """Return it for so many times its images or sequences."""
        return replace(
            self, rows=self.rows * batch, flops=self.flops * batch,
            activation_bytes=self.activation_bytes * batch,
        )  # fmt: skip

    @property
    def moved(self) -> float:
        """Bytes that a call moves at least; an LSTM reads its weights in each step."""
        return self.activation_bytes + self.weight_bytes * self.size.get("steps", 1)

    @property
    def outputs(self) -> float:
        """Values that are computed apart from each other: what fills the GPU."""
        if self.op == "conv2d":
            return float(self.rows * self.size["outputs"] * self.size["filters"])
        if self.op == "attention":
            return float(self.rows * self.size["heads"] * self.size["queries"])
        return float(self.rows * self.size.get("n", self.size.get("hidden", 1)))

    @property
    def serial(self) -> int:
        """Steps that wait for each other."""
        return self.size.get("steps", 1) * self.size.get("layers", 1)

    @cached_property
    def coordinates(self) -> tuple[float, ...]:
        """Where it lies among the sizes of its operation: logarithms to base 2.

        Sizes that are no multiple of 8 (16 bytes of a 16-bit type) take other kernels, and so do
        kernels that skip pixels and LSTMs of one layer: they lie far from the others.
        """
        size = self.size
        values: tuple[float, ...] = (self.rows, *(value for _, value in self.sizes))
        far: tuple[float, ...] = ()
        if self.op == "conv2d":
            taps = size["kernel"] ** 2
            depth = size["channels"] // size["groups"] * taps
            values = (self.rows * size["outputs"], size["filters"], depth, taps, size["stride"])
            far = (
                FAR * any(size[side] % ALIGNED for side in ("channels", "filters")),
                FAR * (size["stride"] > size["kernel"]),
            )
        elif self.op == "batch-norm":
            elements = self.rows * size["channels"] * size["pixels"]
            values = (elements, self.rows, size["channels"])
        elif self.op == "linear":
            far = (FAR * any(size[side] % ALIGNED for side in ("n", "k")),)
        elif self.op == "lstm":
            far = (FAR * bool(size["hidden"] % ALIGNED), FAR * (size["layers"] > 1))
        return (*(math.log2(1 + value) for value in values), *far)


class HeldOut(NamedTuple):
    """A measured case, and what the model said of it when its shape, or its rows, were left out."""

    operation: Operation
    measured: float
    predicted: float
    known_shape: bool

    @property
    def error(self) -> float:
        """Predicted over measured - 1."""
        return self.predicted / self.measured - 1


@dataclass(frozen=True)
class KernelModel:
    """The smooth roofline of one kind of operation in one state of the cache, with its cases.

    `parameters`: those of `smooth_roofline`, then the part of the DRAM's bandwidth at which the L2
    cache serves what fits it; `l2_bytes` is 0 where nothing is served from it. `logs`: what the
    cases differ from the roofline. `shapes` and `rows`: residuals of shapes that were left out, and
    of rows between others of a known shape.
    """

    gpu: Gpu
    l2_bytes: float
    operations: tuple[Operation, ...]
    seconds: Array
    parameters: Array
    logs: Array = field(repr=False)
    shapes: Residuals = Residuals(0.0, math.inf)
    rows: Residuals = Residuals(0.0, math.inf)
    held_out: tuple[HeldOut, ...] = ()

    START = (3e-6, 0.8, 0.5, 3.0, 3e5, 2.0)
    FIXED, COMPUTING, MOVING, SHARP, HALF, CACHED = range(6)

    @classmethod
    def fitted(cls, gpu: Gpu, cases: Mapping[Operation, float], l2_bytes: float) -> KernelModel:
        """Return the model with its residuals: each shape left out in turn, and inner rows."""
        model = cls._once(gpu, cases, l2_bytes)
        by_shape: dict[Any, dict[Operation, float]] = defaultdict(dict)
        for operation, seconds in cases.items():
            by_shape[operation.sizes][operation] = seconds
        held_out: list[HeldOut] = []
        for same in by_shape.values():
            rest = {operation: s for operation, s in cases.items() if operation not in same}
            if len(rest) >= FEWEST and len(by_shape) > 1:
                without = cls._once(gpu, rest, l2_bytes)
                held_out += [HeldOut(o, s, without.near(o), False) for o, s in same.items()]
            held_out += model._between(same)
        shapes, rows = (
            Residuals.of(h.measured / h.predicted for h in held_out if h.known_shape is known)
            for known in (False, True)
        )
        return replace(model, shapes=shapes, rows=rows, held_out=tuple(held_out))

    @classmethod
    def _once(cls, gpu: Gpu, cases: Mapping[Operation, float], l2_bytes: float) -> KernelModel:
        operations, seconds = tuple(cases), np.array(list(cases.values()))
        free = [cls.FIXED, cls.MOVING]
        if operations[0].op in MULTIPLIED:
            free.append(cls.COMPUTING)
            free += [cls.SHARP, cls.HALF] if len(cases) >= WELL_KNOWN else []
        if l2_bytes and _spans(operations, l2_bytes):
            free.append(cls.CACHED)
        given = dict(enumerate(cls.START)) | {cls.CACHED: 1.0}
        roofline = _smooth(gpu, operations, l2_bytes)

        def smooth(values: Array) -> Array:
            return roofline([*(given | dict(zip(free, values, strict=True))).values()])

        start = np.array(cls.START)[free]
        found = fit(smooth, seconds, np.ones(len(seconds)), start)
        parameters = np.array([*(given | dict(zip(free, found, strict=True))).values()])
        logs = np.log(seconds / roofline(parameters))
        return cls(gpu, l2_bytes, operations, seconds, parameters, logs)

    def _between(self, same: Mapping[Operation, float]) -> list[HeldOut]:
        """Return what is missed at inner rows of one shape when those next to them are known."""
        ordered = sorted(same, key=lambda operation: operation.rows)
        rows = np.log([float(operation.rows) for operation in ordered])
        logs = np.log([same[o] for o in ordered]) - np.log(self._roofline(ordered))
        found = []
        for index in range(1, len(ordered) - 1):
            ends = [index - 1, index + 1]
            missed = logs[index] - np.interp(rows[index], rows[ends], logs[ends])
            measured = same[ordered[index]]
            found.append(HeldOut(ordered[index], measured, measured / math.exp(missed), True))
        return found

    def _roofline(self, operations: Sequence[Operation]) -> Array:
        return _smooth(self.gpu, operations, self.l2_bytes)(self.parameters)

    def near(self, operation: Operation) -> float:
        """Return the seconds of an operation by the fit and what near sizes differ from it."""
        known = np.array([measured.coordinates for measured in self.operations])
        shift = near_shift(known, np.array([operation.coordinates]), self.logs, np.ones(len(known)))
        return float(self._roofline((operation,))[0] * np.exp(shift[0]))

    def of(self, operation: Operation) -> Estimate:
        """Return the estimate: along the rows between measured ones of this shape, else `near`."""
        same = [
            i for i, measured in enumerate(self.operations) if measured.sizes == operation.sizes
        ]
        rows = np.array([self.operations[i].rows for i in same], dtype=float)
        if not len(rows) or not min(rows) <= operation.rows <= max(rows):
            # Of an operation without other sizes there is but one shape.
            residuals = self.shapes if operation.sizes else self.rows
            return _bounded(self.near(operation), residuals, T1)
        order = np.argsort(rows)
        shift = np.interp(math.log(operation.rows), np.log(rows[order]), self.logs[same][order])
        return _bounded(float(self._roofline((operation,))[0] * math.exp(shift)), self.rows, T2)


def _bounded(seconds: float, residuals: Residuals, tier: str) -> Estimate:
    return Estimate(seconds, seconds * residuals.low, seconds * residuals.high, tier)


def _missed(operations: Sequence[Operation], l2_bytes: float) -> Array:
    """Return the part of the bytes that DRAM serves: half where they are as many as L2 holds."""
    moved = np.array(
        [operation.activation_bytes + operation.weight_bytes for operation in operations]
    )
    return np.asarray(1 / (1 + (l2_bytes / moved) ** 4))


def _spans(operations: Sequence[Operation], l2_bytes: float) -> bool:
    """Tell whether there are operations that the L2 cache serves, and such that DRAM does."""
    missed = _missed(operations, l2_bytes)
    return bool(missed.min() < 0.5 < missed.max())


def _smooth(
    gpu: Gpu, operations: Sequence[Operation], l2_bytes: float
) -> Callable[[Sequence[Any] | Array], Array]:
    """Return the smooth roofline of some operations: its fixed time each serial step takes."""
    multiplied = operations[0].op in MULTIPLIED
    computing = (
        np.array([operation.flops * multiplied for operation in operations]) / gpu.flop_per_s
    )
    moving = np.array([operation.moved for operation in operations]) / gpu.bytes_per_s
    outputs = np.array([operation.outputs for operation in operations])
    serial = np.array([float(operation.serial) for operation in operations])
    missed = _missed(operations, l2_bytes) if l2_bytes else np.ones(len(operations))

    def seconds(parameters: Sequence[Any] | Array) -> Array:
        fixed, *rest, cached = parameters
        moved = moving * (missed + (1 - missed) / cached)
        return np.asarray(serial * fixed + smooth_roofline(computing, moved, outputs, (0.0, *rest)))

    return seconds


@dataclass(frozen=True)
class NetworkKernels:
    """The models of all operations of some runs, and what the host needs to launch each.

    `models`: by key and state of the cache; what torch.compile makes one kernel of is "fused".
    `host_s`: seconds of the host by key, of a call or of each serial step of it.
    """

    models: Mapping[tuple[Key, str], KernelModel]
    host_s: Mapping[Key, float]

    def knows(self, operation: Operation) -> bool:
        """Tell whether such operations were measured, on used and on unused buffers."""
        return all((operation.key, mode) in self.models for mode in (COLD, HOT))

    def estimate(self, operation: Operation, mode: str) -> Estimate:
        """Return how long one call takes in a state of the cache."""
        return self.models[operation.key, mode].of(operation)

    def host(self, operation: Operation) -> float:
        """Return what the host needs to launch one, or the median of others; NaN without any."""
        known = list(self.host_s.values())
        usual = float(np.median(known)) if known else math.nan
        return operation.serial * self.host_s.get(operation.key, usual)


def network_kernels(bench: pd.DataFrame, gpu: Gpu, l2_bytes: float) -> NetworkKernels:
    """Return the models that table `bench` allows: measured cases of the target network_kernels.

    Args:
        bench: of one or more runs on one kind of GPU.
        gpu: its datasheet.
        l2_bytes: size of its L2 cache; 0: not known.
    """
    cases: dict[tuple[Key, str], dict[Operation, float]] = defaultdict(dict)
    eager: dict[Key, tuple[Operation, float]] = {}
    rows = bench[bench["target"].eq(TARGET) & bench["status"].eq("ok") & bench["data"].eq("normal")]
    for row in records(rows[["params", "dtype", "mode", "flops", "bytes", "median_s"]]):
        params = json.loads(row["params"])
        if params["family"] in NO_KERNEL:
            continue
        operation, seconds = _operation(params, row), float(row["median_s"])
        if params["variant"] == "eager":
            eager[operation.key] = operation, seconds
        else:
            cases[operation.key, row["mode"]][operation] = seconds
    models = {
        (key, mode): KernelModel.fitted(gpu, known, l2_bytes if mode == HOT else 0.0)
        for (key, mode), known in cases.items()
        if len(known) >= FEWEST
    }
    # Where the GPU took as long as the call, its time says nothing about the host.
    host = {
        key: seconds / operation.serial
        for key, (operation, seconds) in eager.items()
        if seconds > HOST_BOUND * cases.get((key, HOT), {}).get(operation, math.inf)
    }
    return NetworkKernels(models, host)


NO_KERNEL = ("network", "side-by-side", "fine")
"""Families that no model is fitted to: evenly spaced sizes would outweigh all others."""
HOST_BOUND = 1.2
"""A call that the host launches takes at least so many times as long as in a graph."""
FUSED = "fused"
"""What torch.compile makes one kernel of, by its bytes alone."""
OWN = ("family", "op", "layout", "variant", "rows", "weight_bytes")


def _operation(params: Mapping[str, Any], row: Mapping[str, Any]) -> Operation:
    weights = float(params["weight_bytes"])
    sizes = {name: int(value) for name, value in params.items() if name not in OWN}
    return Operation(
        op=FUSED if params["family"] == "fused" else str(params["op"]),
        rows=int(params["rows"]),
        sizes=tuple(sorted(sizes.items())),
        flops=float(row["flops"]),
        activation_bytes=float(row["bytes"]) - weights,
        weight_bytes=weights,
        layout=str(params["layout"]),
        dtype=str(row["dtype"]),
    )
