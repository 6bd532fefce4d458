"""Costs from measured cases of benchmarks on the same GPU (T1, T2), with held-out residuals."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from nsight_prof.parsers.cells import Row, records
from nsight_prof.parsers.errors import UsageError
from nsight_prof.parsers.predict.costs import (
    T1,
    T2,
    Anchors,
    Benchmarked,
    Costs,
    Estimate,
    Gpu,
    Residuals,
    Spread,
    no_collective,
    no_experts,
)
from nsight_prof.parsers.predict.fit import Array, fit
from nsight_prof.parsers.predict.operators import BF16, FP8, Kind, Operator, Step, operators
from nsight_prof.parsers.run.sentences import stored
from nsight_prof.parsers.serving.model_shape import ModelShape

ALIGNED = 16
"""Products whose outputs or inputs are no multiple of it take slower kernels; no model has any."""
LEAST_SHAPES = 4
"""Shapes of products, (n, k), that a fit needs at least."""
POINTWISE = ("rms-norm", "add-rms-norm", "silu-mul", "rotary")
"""Measured small operators that a decoder has; others move their bytes in other ways."""
FAMILY = "predict-op"
"""Family of the cases of targets/serving/predict_ops.py."""
COLLECTIVES = ("all_reduce", "all_gather")
LATER_RANK = 1.09
"""How much longer an all-reduce takes in an engine, where it waits for the later rank, than by
itself: of prompts 241.8 against 220.8 us, and 4.8 against 4.4 of decode (docs/accuracy.md)."""
VALUE_BYTES = 2
"""Bytes of a value that ranks exchange: that target measures in 16 bits."""
UNKNOWN = Residuals(0.0, math.inf)
"""What bounds estimates of operators of which nothing was left out."""


@dataclass(frozen=True)
class Products:
    """Measured products: rows m, n, k and seconds, and the fit through them.

    The smooth roofline is t0 + ((F (1 + s / mn) / e)^p + (B / b)^p)^(1/p) with F and B the
    seconds of the datasheet for computing and moving: a fixed cost, two efficiencies, how sharp
    the ridge is, and the output elements at which half of the GPU has work. What near shapes differ
    from it is weighted by inverse distance in log2 of the sizes. `dtype`: of weights and inputs.
    """

    gpu: Gpu
    sizes: Array
    seconds: Array
    parameters: Array
    residuals: Residuals
    anchored: Residuals
    held_out: tuple[tuple[tuple[int, int, int], float, float], ...] = ()
    dtype: str = BF16
    _logs: Array = field(default_factory=lambda: np.zeros(0), repr=False)

    START = (3e-6, 0.8, 0.9, 3.0, 3e5)
    STRETCH = (2.0, 1.0, 1.0)

    @classmethod
    def fitted(cls, gpu: Gpu, sizes: Array, seconds: Array, dtype: str = BF16) -> Products:
        """Return the fit, with its residuals: each (n, k) left out in turn."""
        full_fit = cls._once(gpu, sizes, seconds, np.array(cls.START), dtype)
        held_out_cases: list[tuple[tuple[int, int, int], float, float]] = []
        ratios: list[float] = []
        anchored: list[float] = []
        for n, k in sorted({(n, k) for _, n, k in sizes.tolist()}):
            out = (sizes[:, 1] == n) & (sizes[:, 2] == k)
            if out.all():
                break
            rest = cls._once(gpu, sizes[~out], seconds[~out], full_fit.parameters, dtype)
            predicted = rest.predict(sizes[out])
            ratio = seconds[out] / predicted
            # Many sizes of one matrix weigh no more than those of a model's.
            step = max(1, len(ratio) // 12)
            ratios += ratio[::step].tolist()
            anchored += _anchored(sizes[out][:, 0], np.log(ratio))[::step]
            held_out_cases += [
                ((int(row[0]), int(n), int(k)), float(t), float(p))
                for row, t, p in zip(sizes[out], seconds[out], predicted, strict=True)
            ]
        return cls(
            gpu, sizes, seconds, full_fit.parameters, Residuals.of(ratios),
            Residuals.of(np.exp(anchored)), tuple(held_out_cases), dtype, full_fit._logs,
        )  # fmt: skip

    @classmethod
    def _once(cls, gpu: Gpu, sizes: Array, seconds: Array, start: Array, dtype: str) -> Products:
        _, group, counts = np.unique(
            sizes[:, 1] + 1j * sizes[:, 2], return_inverse=True, return_counts=True
        )
        weights = 1 / np.sqrt(np.maximum(counts[group] / 8, 1))
        found = fit(lambda p: roofline_fit(gpu, sizes, p, dtype), seconds, weights, start)
        logs = np.log(seconds / roofline_fit(gpu, sizes, found, dtype))
        nothing = Residuals(0.0, math.inf)
        known = np.stack([logs, weights])
        return cls(gpu, sizes, seconds, found, nothing, nothing, (), dtype, known)

    def predict(self, sizes: Array) -> Array:
        """Return the seconds of products (rows of m, n, k)."""
        stretch = np.array(self.STRETCH)
        known, wanted = np.log2(self.sizes) * stretch, np.log2(sizes) * stretch
        shift = near_shift(known, wanted, self._logs[0], self._logs[1])
        smooth = roofline_fit(self.gpu, sizes, self.parameters, self.dtype)
        return np.asarray(smooth * np.exp(shift))

    def has(self, operator: Operator) -> bool:
        """Tell whether m lies between measured cases of these n and k."""
        rows = self.sizes[self._same(operator)][:, 0]
        return len(rows) >= 3 and bool(rows.min() <= operator.m <= rows.max())

    def _same(self, operator: Operator) -> np.typing.NDArray[np.bool_]:
        same = (self.sizes[:, 1] == operator.n) & (self.sizes[:, 2] == operator.k)
        return np.asarray(same)

    def of(self, operator: Operator) -> Estimate:
        """Return the estimate: along m between measured cases of these n and k, or by the fit."""
        size = np.array([[operator.m, operator.n, operator.k]], dtype=float)
        if not self.has(operator):
            seconds = float(self.predict(size)[0])
            low, high = self.residuals
            return Estimate(seconds, seconds * low, seconds * high, T1)
        same = self._same(operator)
        rows = self.sizes[same][:, 0]
        order = np.argsort(rows)
        logs = np.log(self.seconds[same] / self.predict(self.sizes[same]))[order]
        shift = np.interp(math.log(operator.m), np.log(rows[order]), logs)
        seconds = float(self.predict(size)[0] * math.exp(shift))
        low, high = self.anchored
        return Estimate(seconds, seconds * low, seconds * high, T2)


def roofline_fit(gpu: Gpu, sizes: Array, parameters: Array, dtype: str = BF16) -> Array:
    """Return the seconds of the smooth roofline of products (rows of m, n, k).

    Outputs are of 16 bits, weights and inputs of `dtype`.
    """
    m, n, k = sizes.T
    inputs = 2 if dtype == BF16 else 1
    computing_s = 2 * m * n * k / gpu.rate(dtype)
    moving_s = (inputs * (m * k + n * k) + 2 * m * n) / gpu.bytes_per_s
    return smooth_roofline(computing_s, moving_s, m * n, parameters)


def smooth_roofline(
    computing_s: Array, moving_s: Array, outputs: Array, parameters: Sequence[Any] | Array
) -> Array:
    """Return t0 + ((F (1 + s / outputs) / e)^p + (B / b)^p)^(1/p), p = 1 + sharpness.

    F and B are the seconds of the datasheet for computing and moving; parameters are t0, e, b,
    the sharpness and s, as `Products` has them.
    """
    fixed, computing, moving, sharp, half = parameters
    computed = computing_s * (1 + half / outputs) / computing
    power = 1 + sharp
    return np.asarray(fixed + (computed**power + (moving_s / moving) ** power) ** (1 / power))


NEAR = 1.0
"""Distance, in factors of two, within which measured sizes count about alike."""


def near_shift(known: Array, wanted: Array, logs: Array, weights: Array) -> Array:
    """Return what near sizes differ from a fit: their residuals by inverse distance.

    Args:
        known: logarithms of measured sizes, a row each.
        wanted: those of the sizes that are asked for.
        logs: residuals of the measured sizes.
        weights: of these.
    """
    squares = ((wanted[:, None, :] - known[None]) ** 2).sum(2)
    near = weights / (squares + NEAR**2) ** 2
    return np.asarray(near @ logs / near.sum(1))


def _anchored(rows: Array, logs: Array) -> list[float]:
    """Return what is missed between the smallest and the largest m where both are known."""
    if len(rows) < 3:
        return []
    order = np.argsort(rows)
    x, y = np.log(rows[order]), logs[order]
    return [float(v) for v in (y - np.interp(x, x[[0, -1]], y[[0, -1]]))[1:-1]]


@dataclass(frozen=True)
class Affine:
    """t0 + work / rate, for operators that one resource bounds."""

    fixed: float
    rate: float
    residuals: Residuals

    @classmethod
    def fitted(cls, work: Array, seconds: Array, groups: Sequence[str], start: float) -> Affine:
        """Return the fit, with residuals: each group left out in turn."""

        def once(chosen: Array) -> Array:
            return fit(
                lambda p: p[0] + work[chosen] / p[1],
                seconds[chosen],
                np.ones(int(chosen.sum())),
                np.array([3e-6, start]),
            )

        names = np.array(groups)
        ratios: list[float] = []
        for name in dict.fromkeys(groups):
            rest = names != name
            if rest.sum() >= 2:
                fixed, rate = once(rest)
                ratios += (seconds[~rest] / (fixed + work[~rest] / rate)).tolist()
        fixed, rate = once(np.ones(len(work), dtype=bool))
        return cls(float(fixed), float(rate), Residuals.of(ratios))

    def of(self, work: float) -> Estimate:
        """Return the estimate for FLOPs or bytes, whichever it was fitted to."""
        seconds = self.fixed + work / self.rate
        return Estimate(seconds, seconds * self.residuals.low, seconds * self.residuals.high, T1)


@dataclass(frozen=True)
class Measured:
    """T1 and T2: cases of benchmarks on the same GPU; products by their type."""

    products: Mapping[str, Products]
    attention: Mapping[Kind, Affine]
    pointwise: Affine

    def of(self, operator: Operator) -> Estimate:
        """Return the estimate of the fit of the operator's kind."""
        if operator.kind is Kind.PRODUCT:
            return product_of(self.products, operator)
        if operator.kind is Kind.COLLECTIVE:
            raise no_collective()
        if operator.kind is Kind.ROUTED:
            raise no_experts()
        if operator.kind is Kind.POINTWISE:
            return perhaps_fused(self.pointwise.of(operator.bytes), operator)
        if operator.dtype != BF16:
            raise UsageError(
                stored(
                    "the {kind} over a KV cache in {dtype} cannot be predicted: the runs have "
                    "it in 16 bits alone",
                    kind=operator.kind,
                    dtype=operator.dtype,
                ),
                "import tables that have it: prof import --aiconfigurator DIR",
            )
        work = operator.flops if operator.kind is Kind.PREFILL else operator.bytes
        return self.attention[operator.kind].of(work)

    def spread(self) -> Spread:
        """Return the residuals of products and of small operators."""
        products = self.products[BF16]
        return Spread(products.anchored, products.residuals, self.pointwise.residuals)


def product_of(products: Mapping[str, Products], operator: Operator) -> Estimate:
    """Return the estimate of a product by those of its type.

    Raises:
        UsageError: products of its type were not measured.
    """
    if operator.dtype not in products:
        raise UsageError(
            stored(
                "products in {dtype} cannot be predicted: the runs hold too few of them",
                dtype=operator.dtype,
            ),
            "measure them on this GPU (prof run llm-kernels has bf16 and fp8), import tables that "
            "have them (prof import --aiconfigurator DIR), or predict from a slice of this model "
            "alone (prof run layer-slice), without runs of other kernels",
        )
    return products[operator.dtype].of(operator)


def perhaps_fused(estimate: Estimate, operator: Operator) -> Estimate:
    """Return the estimate of a small operator; a quantization may take no time of its own.

    vLLM's compiler merges it into the norm or activation before it where it can.
    """
    return estimate._replace(low=0.0) if operator.quantizes else estimate


class _Case(NamedTuple):
    """A measured case: its group, of which the residuals are held out together, work and time."""

    group: str
    work: float
    seconds: float


@dataclass
class Cases:
    """Measured cases: products by type and size, attention by kind and shape, small operators."""

    products: dict[str, dict[tuple[int, int, int], list[float]]] = field(default_factory=dict)
    attention: dict[Kind, dict[str, _Case]] = field(default_factory=dict)
    pointwise: list[_Case] = field(default_factory=list)

    @classmethod
    def of(cls, bench: pd.DataFrame) -> Cases:
        """Return the cold cases with random data that table `bench` holds of a decoder.

        They are of targets llm_kernels, gemm and gemm_staircase.
        """
        cases = cls()
        for params, row in _usable(bench):
            _sort_in(cases, params, row)
        return cases


def measured_costs(
    cases: Cases,
    gpu: Gpu,
    leave_out: frozenset[tuple[int, int]] = frozenset(),
    dtypes: Sequence[str] = (BF16,),
) -> Measured:
    """Return the costs that measured cases tell.

    Args:
        cases: what was measured.
        gpu: the GPU that they were measured on.
        leave_out: (outputs, inputs) of products that are held out.
        dtypes: types of the products that are asked for.

    Raises:
        UsageError: there are too few cases of some kind.
    """
    products = measured_products(cases, gpu, leave_out, dtypes)
    _enough(len(cases.pointwise), "small operators (norm, SiLU, rotary)", 4)
    attention = {}
    for kind, rate in ((Kind.PREFILL, gpu.flop_per_s), (Kind.DECODE, gpu.bytes_per_s)):
        cases_of_kind = list(cases.attention.get(kind, {}).values())
        _enough(len(cases_of_kind), str(kind), 3)
        attention[kind] = _affine(tuple(cases_of_kind), rate)
    pointwise = _affine(tuple(cases.pointwise), gpu.bytes_per_s)
    return Measured(products, attention, pointwise)


def measured_products(
    cases: Cases,
    gpu: Gpu,
    leave_out: frozenset[tuple[int, int]] = frozenset(),
    dtypes: Sequence[str] = (BF16,),
) -> dict[str, Products]:
    """Return the products alone, by type; arguments and errors are those of `measured_costs`.

    Of types other than bf16 there may be too few: then there are none.
    """
    found = {}
    for dtype in dict.fromkeys((BF16, *dtypes)):
        times = {
            size: float(np.median(seconds))
            for size, seconds in sorted(cases.products.get(dtype, {}).items())
            if size[1:] not in leave_out
        }
        shapes = len({size[1:] for size in times})
        if dtype == BF16:
            _enough(shapes, "matrix products", LEAST_SHAPES)
        if shapes >= LEAST_SHAPES:
            found[dtype] = _fitted(gpu, tuple(times.items()), dtype)
    return found


@lru_cache(maxsize=16)
def _fitted(
    gpu: Gpu, times: tuple[tuple[tuple[int, int, int], float], ...], dtype: str
) -> Products:
    """Return the fit of products (m, n, k) with their seconds: choices have the same ones."""
    sizes, seconds = zip(*times, strict=True)
    return Products.fitted(gpu, np.array(sizes, dtype=float), np.array(seconds), dtype)


def _usable(bench: pd.DataFrame) -> Iterator[tuple[dict[str, object], Row]]:
    rows = bench[
        bench["status"].eq("ok")
        & bench["mode"].eq("cold")
        & bench["data"].eq("normal")
        & bench["dtype"].isin((BF16, FP8))
        & bench["median_s"].gt(0)
    ]
    for row in records(rows[["params", "dtype", "median_s", "bytes", "flops"]]):
        yield json.loads(row["params"]), row


def _sort_in(cases: Cases, params: dict[str, object], row: Row) -> None:
    """Put a case where it belongs; what says nothing about a decoder is left out."""
    family, variant, seconds = params.get("family"), str(params.get("variant")), row["median_s"]
    if (family == "linear" and variant == "graph") or (family is None and variant == "cublas"):
        numbers = (params.get("tokens", params.get("m")), params.get("n"), params.get("k"))
        m, n, k = (int(str(value)) for value in numbers)
        if n % ALIGNED == 0 and k % ALIGNED == 0:
            products = cases.products.setdefault(row["dtype"], {})
            products.setdefault((m, n, k), []).append(seconds)
    elif row["dtype"] != BF16:
        return
    elif family == "attention" and variant == "graph":
        kind = Kind.PREFILL if params.get("stage") == "prefill" else Kind.DECODE
        shape = {k: v for k, v in params.items() if k not in ("backend", "variant")}
        key = json.dumps(shape, sort_keys=True)
        known = cases.attention.setdefault(kind, {})
        # Of all back ends the fastest: none of them is vLLM's.
        if key not in known or seconds < known[key].seconds:
            work = row["flops"] if kind is Kind.PREFILL else row["bytes"]
            known[key] = _Case(key, work, seconds)
    elif params.get("op") in POINTWISE and variant == "compiled-graph":
        cases.pointwise.append(_Case(str(params["op"]), row["bytes"], seconds))


def _enough(found: int, what: str, minimum: int) -> None:
    if found < minimum:
        raise UsageError(
            stored(
                "the runs hold too few cases of {what} to predict from: {found}",
                what=what,
                found=found,
            ),
            "measure them on this GPU: prof run llm-kernels",
        )


@lru_cache(maxsize=16)
def _affine(cases: tuple[_Case, ...], rate: float) -> Affine:
    """Return the fit of cases, which all choices have in common."""
    work, times = np.array([c.work for c in cases]), np.array([c.seconds for c in cases])
    return Affine.fitted(work, times, [c.group for c in cases], rate / 2)


@dataclass(frozen=True)
class Exact:
    """T2: what predict-ops measured of this very model, drawn between the measured sizes.

    Each time has the gap before the kernel in it. Intervals are those that sizes had which were
    left out; how far the engine lies from such measurements is not in them.
    """

    base: Costs
    anchors: Mapping[tuple[str, str], Anchors]
    residuals: Mapping[Kind, Residuals]

    def of(self, operator: Operator) -> Estimate:
        """Return the estimate; what was not measured is of the lower tier."""
        anchors = self.anchors.get((operator.name, operator.dtype))
        if anchors is None:
            return self.base.of(operator)
        seconds, (low, high) = anchors.seconds(operator), self.residuals[operator.kind]
        return Estimate(seconds, seconds * low, seconds * high, T2)

    def spread(self) -> Spread:
        """Return how far products and small operators lie from what was left out."""
        found = self.residuals.get
        others = self.base.spread().others if isinstance(self.base, Benchmarked) else UNKNOWN
        return Spread(found(Kind.PRODUCT, UNKNOWN), others, found(Kind.POINTWISE, UNKNOWN))

    @property
    def has_products(self) -> bool:
        """Tell whether the model itself was measured, and not only what its ranks exchange."""
        return Kind.PRODUCT in self.residuals


def exact_costs(base: Costs, bench: pd.DataFrame, shape: ModelShape) -> Costs:
    """Return the costs with what table `bench` holds of the operators of the shard `shape`.

    Collectives are those of any model on as many GPUs: they depend on their bytes alone.
    """
    found: dict[tuple[str, str], list[tuple[Operator, float]]] = defaultdict(list)
    for operator, seconds in _exact_cases(bench, shape):
        found[operator.name, operator.dtype].append((operator, seconds))
    if not found:
        return base
    anchors = {key: Anchors.of(base, items) for key, items in found.items()}
    ratios: dict[Kind, list[float]] = defaultdict(list)
    for key, items in found.items():
        ratios[items[0][0].kind] += anchors[key].left_out()
    return Exact(base, anchors, {kind: Residuals.of(found) for kind, found in ratios.items()})


def _exact_cases(bench: pd.DataFrame, shape: ModelShape) -> Iterator[tuple[Operator, float]]:
    """Yield the measured operators of the shard with the seconds of a call."""
    here = {
        "hidden": shape.hidden, "heads": shape.heads, "kv_heads": shape.kv_heads,
        "head_dim": shape.head_dim, "intermediate": shape.intermediate,
        "vocabulary": shape.vocabulary,
    }  # fmt: skip
    measured = bench["status"].eq("ok") & bench["median_s"].gt(0)
    of_family = bench["params"].str.contains(f'"{FAMILY}"', regex=False)
    for row in records(bench[measured & of_family]):
        params = json.loads(row["params"])
        if params["operator"] in COLLECTIVES:
            if params["ranks"] == shape.tensor_parallel:
                waits = LATER_RANK if params["operator"] == "all_reduce" else 1.0
                yield _collective(params), row["median_s"] * waits
        elif all(params[key] == value for key, value in here.items()):
            step = _step(params)
            same = (o for o in operators(shape, step) if o.name == params["operator"])
            for operator in same:
                yield operator, row["median_s"]


def _collective(params: Mapping[str, int | str]) -> Operator:
    name, tokens = str(params["operator"]), int(params["tokens"])
    shares = int(params["ranks"]) if name == "all_gather" else 1
    moved = float(VALUE_BYTES * tokens * int(params["width"]) * shares)
    return Operator(name, Kind.COLLECTIVE, 1, tokens, bytes=moved)


def _step(params: Mapping[str, int | str]) -> Step:
    """Return the step whose operator was measured: rows of a product are requests that generate."""
    if "requests" not in params:
        return Step(decode=int(params["tokens"]), context=1)
    requests, new, before = (int(params[key]) for key in ("requests", "new", "before"))
    if params["operator"] == "attention_decode":
        return Step(decode=requests, context=before)
    return Step(prefill=((new, before),) * requests)
