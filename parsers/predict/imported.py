"""Costs from table `imported_operators`: operators that a foreign benchmark measured (T1).

What was measured is returned as it is. Products of a measured (n, k) are interpolated along m, both
in the logarithm; those of other shapes, and attention, by their ratio to a smooth roofline, which
goes on beyond the largest size. Small operators were not measured.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pandas as pd

from nsight_prof.parsers.cells import Row, records
from nsight_prof.parsers.errors import UsageError
from nsight_prof.parsers.predict.aiconfigurator import ALL_GATHER, ALL_REDUCE
from nsight_prof.parsers.predict.costs import (
    T1,
    Costs,
    Datasheet,
    Estimate,
    Gpu,
    Note,
    Residuals,
    Spread,
    no_experts,
    note,
)
from nsight_prof.parsers.predict.fit import Array, fit
from nsight_prof.parsers.predict.measured import (
    Cases,
    Measured,
    Products,
    measured_costs,
    measured_products,
    perhaps_fused,
    roofline_fit,
)
from nsight_prof.parsers.predict.operators import BF16, FP8, Kind, Operator, Step, operators
from nsight_prof.parsers.run.sentences import stored
from nsight_prof.parsers.serving.model_shape import ModelShape

SEED, HELD_OUT = 20, 40
"""Shapes that are left out in turn, chosen at random: all of them would take minutes."""
FITTED = 3000
"""Products that the smooth roofline is fitted to."""
LOAD = "power_law_1.01"
"""How tokens spread over experts: the number of a step's tokens that an expert gets falls with its
rank as a power law, which is nearest to an even spread of those that were measured."""
ONE = Step(prefill=((1, 0),), decode=1, context=1)
"""A step that has every operator."""
NEAR = 0.3
"""Distance of shapes, in octaves, within which their ratios weigh alike."""
SMALL_FIXED_S, SMALL_EFFICIENCY, SMALL_HIGH = 3e-6, 0.8, 2.0
"""Small operators, not measured: 3 us and 80 % of the bandwidth, as aiconfigurator's description of
its systems has them (`mem_empirical_constant_latency`, `mem_bw_empirical_scaling_factor`); they lie
between the roofline of the datasheet and twice that."""
SMALL = Residuals(0.0, SMALL_HIGH)


@dataclass
class MatrixProducts:
    """Products of one type: for each (n, k) its measured m and their ratio to a smooth roofline."""

    gpu: Gpu
    curves: Mapping[tuple[int, int], tuple[Array, Array]]
    parameters: Array
    residuals: Residuals
    anchored: Residuals
    dtype: str = BF16
    _cache: dict[tuple[int, int], tuple[Array, Array]] = field(default_factory=dict, repr=False)

    @classmethod
    def fitted(cls, gpu: Gpu, sizes: Array, seconds: Array, dtype: str = BF16) -> MatrixProducts:
        """Return the curves, with residuals of shapes and of every other size left out."""
        random = np.random.default_rng(SEED)
        chosen = np.sort(random.permutation(len(sizes))[:FITTED])
        ones = np.ones(len(chosen))
        start = np.array(Products.START)
        parameters = fit(
            lambda p: roofline_fit(gpu, sizes[chosen], p, dtype), seconds[chosen], ones, start
        )
        logs = np.log(seconds / roofline_fit(gpu, sizes, parameters, dtype))
        ordered = np.lexsort((sizes[:, 0], sizes[:, 2], sizes[:, 1]))
        shapes, starts = np.unique(sizes[ordered, 1:], axis=0, return_index=True)
        curves = {
            (int(n), int(k)): (np.log(sizes[rows, 0]), logs[rows])
            for (n, k), rows in zip(shapes, np.split(ordered, starts[1:]), strict=True)
        }
        nothing = Residuals(0.0, math.inf)
        bare = cls(gpu, curves, parameters, nothing, nothing, dtype)
        names = sorted(curves)
        others: list[float] = []
        between: list[float] = []
        for index in random.permutation(len(names))[:HELD_OUT]:
            x, y = curves[names[index]]
            if len(names) > 1:
                blended = bare.blended(*names[index])
                others += np.exp(y - np.interp(x, *blended)).tolist()
            n, k = names[index]
            size = np.stack([np.exp(x), np.full(len(x), n), np.full(len(x), k)], axis=1)
            between += every_other(x, y + np.log(roofline_fit(gpu, size, parameters, dtype)))
        return cls(gpu, curves, parameters, bounds(others), bounds(between), dtype)

    def blended(self, n: int, k: int) -> tuple[Array, Array]:
        """Return the curve of a shape from those of all others, by inverse distance."""
        x, ratios, logs = self._others
        distances = ((logs - np.log2([n, k])) ** 2).sum(1)
        weights = (distances > 0) / (distances + NEAR**2) ** 2
        return x, weights @ ratios / weights.sum()

    @cached_property
    def _others(self) -> tuple[Array, Array, Array]:
        x = np.unique(np.concatenate([x for x, _ in self.curves.values()]))
        ratios = np.stack([np.interp(x, *curve) for curve in self.curves.values()])
        return x, ratios, np.log2(np.array(list(self.curves), dtype=float))

    def has(self, operator: Operator) -> bool:
        """Tell whether m lies between measured cases of these n and k."""
        x, _ = self.curves.get((operator.n, operator.k), (np.zeros(0), None))
        return len(x) >= 3 and bool(x[0] <= math.log(operator.m) <= x[-1])

    def of(self, operator: Operator) -> Estimate:
        """Return the estimate: the measured (n, k), or its neighbours."""
        key = (operator.n, operator.k)
        measured = key in self.curves
        if key not in self._cache:
            self._cache[key] = self.curves[key] if measured else self.blended(*key)
        x, ratios = self._cache[key]
        ms = [float(operator.m)]
        if measured:
            index = int(np.clip(np.searchsorted(x, math.log(operator.m)), 1, max(1, len(x) - 1)))
            ms += np.exp(x[index - 1 : index + 1]).tolist()
        sizes = np.array([(m, *key) for m in ms])
        smooth = roofline_fit(self.gpu, sizes, self.parameters, self.dtype)
        inside = measured and len(ms) == 3 and ms[1] <= ms[0] <= ms[2]
        wanted = math.log(operator.m)
        log_s = math.log(smooth[0]) + float(np.interp(wanted, x, ratios))
        if inside:
            ends = np.log(smooth[1:]) + ratios[index - 1 : index + 1]
            log_s = float(np.interp(wanted, x[index - 1 : index + 1], ends))
        seconds = math.exp(log_s)
        low, high = self.anchored if measured else self.residuals
        return Estimate(seconds, seconds * low, seconds * high, T1)


def bounds(measured_over_predicted: list[float]) -> Residuals:
    """Return the residuals; the estimate itself always lies within them."""
    low, high = Residuals.of(measured_over_predicted)
    return Residuals(min(1.0, low), max(1.0, high))


def every_other(x: Array, y: Array) -> list[float]:
    """Return measured over predicted of every other point, from those beside it."""
    if len(x) < 3:
        return []
    out = np.arange(1, len(x) - 1, 2)
    rest = np.setdiff1d(np.arange(len(x)), out)
    return [float(v) for v in np.exp(y[out] - np.interp(x[out], x[rest], y[rest]))]


@dataclass(frozen=True)
class Surface:
    """Attention of one configuration of heads: ratio to `fixed` + roofline by batch and length.

    Lengths are logarithms of tokens; `rows` has one curve for each batch.
    """

    batches: Array
    rows: tuple[tuple[Array, Array], ...]

    def ratio(self, batch: float, length: float) -> float:
        """Return the logarithm of the ratio, interpolated in both; at the ends it stays."""
        x, wanted = math.log(max(length, 1.0)), math.log(max(batch, 1.0))
        upper = bisect.bisect_left(self.batches, wanted)
        if upper == 0 or upper == len(self.rows):
            return float(np.interp(x, *self.rows[min(upper, len(self.rows) - 1)]))
        low, high = self.batches[upper - 1], self.batches[upper]
        ends = [float(np.interp(x, *self.rows[index])) for index in (upper - 1, upper)]
        return ends[0] + (ends[1] - ends[0]) * float((wanted - low) / (high - low))


@dataclass(frozen=True)
class Attention:
    """Attention of one kind for the heads of one GPU, from the configurations nearest to it."""

    kind: Kind
    gpu: Gpu
    shape: ModelShape
    fixed: float
    weighted: tuple[tuple[float, Surface], ...]
    residuals: Residuals

    @classmethod
    def fitted(cls, kind: Kind, frame: pd.DataFrame, gpu: Gpu, shape: ModelShape) -> Attention:
        """Return the surfaces of the shape's heads, or of the two nearest configurations.

        Raises:
            UsageError: heads of this dimension were not measured.
        """
        frame = frame[frame["kind"].eq(str(kind))]
        cache = BF16 if shape.kv_bytes == shape.weight_bytes else FP8
        frame = frame[frame["dtype"].eq(BF16) & frame["kv_dtype"].eq(cache)]
        known = sorted(frame["head_dim"].dropna().unique().tolist())
        frame = frame[frame["head_dim"].eq(shape.head_dim)]
        # Models with a window that nobody measured: what it leaves out is in the work already.
        windowed = frame[frame["window"].eq(shape.window or 0).fillna(False)]
        frame = frame[frame["window"].isna()] if windowed.empty else windowed
        if frame.empty:
            raise UsageError(
                stored(
                    "the imported tables have no {kind} with heads of {head_dim} values and a "
                    "KV cache in {cache}",
                    kind=kind,
                    head_dim=shape.head_dim,
                    cache=cache,
                ),
                f"they know {', '.join(map(str, known)) or 'none'}; import another version, or add "
                "a run of this GPU: prof run llm-kernels",
            )
        fixed = float(frame["seconds"].min())
        pairs = frame[["heads", "kv_heads"]].drop_duplicates().to_numpy(dtype=int)
        configurations = {
            (int(h), int(kv)): frame[frame["heads"].eq(h) & frame["kv_heads"].eq(kv)]
            for h, kv in pairs
        }
        weights = _nearest(configurations, shape.heads, shape.kv_heads)
        surfaces, ratios = [], []
        for key, weight in weights:
            rows = configurations[key]
            surface, held_out = _surface(kind, rows, gpu, fixed, shape.kv_bytes)
            surfaces.append((weight, surface))
            ratios += held_out
        return cls(kind, gpu, shape, fixed, tuple(surfaces), bounds(ratios))

    def of(self, operator: Operator) -> Estimate:
        """Return the estimate for requests of equal length that do the same work."""
        batch, length = self.requests(operator)
        shift = sum(weight * surface.ratio(batch, length) for weight, surface in self.weighted)
        seconds = (self.fixed + self.gpu.roofline(operator)) * math.exp(shift)
        if batch < 1:
            seconds = max(seconds, self.fixed)
        low, high = self.residuals
        return Estimate(seconds, seconds * low, seconds * high, T1)

    def requests(self, operator: Operator) -> tuple[float, float]:
        """Return number and length of such requests: of whole prompts, or of the KV cache."""
        shape = self.shape
        if self.kind is Kind.PREFILL:
            pairs = operator.flops / (4.0 * shape.heads * shape.head_dim)
            length = max(1.0, 2 * pairs / operator.m - 1)
            return operator.m / length, length
        wide, grouped = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
        moved = operator.bytes - 2 * operator.m * wide * shape.weight_bytes
        keys = moved / (2 * grouped * shape.kv_bytes)
        return float(operator.m), max(1.0, keys / operator.m)


def _nearest(
    known: Iterable[tuple[int, int]], heads: int, kv_heads: int
) -> list[tuple[tuple[int, int], float]]:
    """Return one configuration of heads, or two with their weights.

    As many key-value heads come first, then heads: those next below and above in the logarithm.
    """
    keys = list(known)
    if (heads, kv_heads) in keys:
        return [((heads, kv_heads), 1.0)]
    grouped = min({kv for _, kv in keys}, key=lambda kv: abs(math.log(kv / kv_heads)))
    same = sorted(h for h, kv in keys if kv == grouped)
    below = max((h for h in same if h <= heads), default=same[0])
    above = min((h for h in same if h >= heads), default=same[-1])
    if below == above or not below < heads < above:
        nearest = min((below, above), key=lambda h: abs(math.log(h / heads)))
        return [((nearest, grouped), 1.0)]
    weight = math.log(heads / below) / math.log(above / below)
    return [((below, grouped), 1 - weight), ((above, grouped), weight)]


def _surface(
    kind: Kind, rows: pd.DataFrame, gpu: Gpu, fixed: float, kv_bytes: float
) -> tuple[Surface, list[float]]:
    """Return the ratios of one configuration, and those of every other length left out."""
    curves: dict[int, dict[float, float]] = {}
    for row in records(rows):
        roofline, length = _work(kind, row, gpu, kv_bytes)
        ratio = math.log(row["seconds"] / (fixed + roofline))
        curves.setdefault(int(row["batch"]), {})[math.log(length)] = ratio
    found, held_out = [], []
    for batch in sorted(curves):
        x, y = (np.array(v) for v in zip(*sorted(curves[batch].items()), strict=True))
        found.append((x, y))
        held_out += every_other(x, y)
    return Surface(np.log(np.array(sorted(curves), dtype=float)), tuple(found)), held_out


def _work(kind: Kind, row: Row, gpu: Gpu, kv_bytes: float) -> tuple[float, float]:
    """Return the roofline of a measured attention, and its length: as `operators` counts them."""
    batch, tokens, context = (float(row[key]) for key in ("batch", "tokens", "context"))
    heads, kv_heads, dim = (float(row[key]) for key in ("heads", "kv_heads", "head_dim"))
    window: float = math.inf if pd.isna(row["window"]) else float(row["window"])
    length = tokens + context
    keys = min(length, window)
    growing = min(tokens, max(0.0, window - context))
    pairs = batch * growing * (context + (growing + 1) / 2)
    if growing < tokens:
        pairs += batch * (tokens - growing) * window
    moved = batch * (2 * 2 * tokens * heads + kv_bytes * 2 * keys * kv_heads) * dim
    flops = 4.0 * heads * dim * (pairs if kind is Kind.PREFILL else batch * keys)
    roofline = max(flops / gpu.flop_per_s, moved / gpu.bytes_per_s)
    return roofline, max(1.0, 2 * pairs / (batch * tokens) - 1) if kind is Kind.PREFILL else keys


@dataclass(frozen=True)
class Collective:
    """One collective among so many GPUs: seconds by bytes, as logarithms."""

    sizes: Array
    seconds: Array
    residuals: Residuals

    def of(self, moved: float) -> Estimate:
        """Return the estimate; above the largest size time grows with the bytes."""
        x = math.log(max(moved, 1.0))
        over = max(0.0, x - float(self.sizes[-1]))
        seconds = math.exp(float(np.interp(x, self.sizes, self.seconds)) + over)
        low, high = self.residuals
        return Estimate(seconds, seconds * low, seconds * high, T1)


@dataclass(frozen=True)
class RoutedProducts:
    """The products of one mixture of experts: logarithms of seconds by tokens.

    `curves`: one for each measured way in which tokens spread over the experts; `LOAD` is the
    estimate, and its interval holds the others.
    """

    curves: Mapping[str, tuple[Array, Array]]
    residuals: Residuals

    @classmethod
    def fitted(cls, frame: pd.DataFrame, shape: ModelShape) -> RoutedProducts:
        """Return the curves of the shape's experts, with residuals of every other size left out.

        Raises:
            UsageError: experts of this number and size were not measured.
        """
        frame = frame[frame["kind"].eq(str(Kind.ROUTED)) & frame["dtype"].eq(BF16)]
        if shape.experts is None or frame.empty:
            raise no_experts()
        wanted = {"experts": shape.experts.count, "used": shape.experts.used,
                  "n": shape.experts.width, "k": shape.hidden}  # fmt: skip
        rows = frame[(frame[list(wanted)] == pd.Series(wanted)).all(axis=1)]
        if not rows["load"].eq(LOAD).any():
            described = ", ".join(f"{key} {value:,}" for key, value in wanted.items())
            raise UsageError(
                stored(
                    "the imported tables have no routed products of such experts: {described}",
                    described=described,
                ),
                "n is the intermediate size of an expert on one GPU, k the hidden size; import "
                "tables that have them, or profile the model: prof run vllm-kernels",
            )
        curves, held_out = {}, []
        for load in rows["load"].unique().tolist():
            group = rows[rows["load"].eq(load)].sort_values("m")
            x, y = (np.log(group[name].to_numpy(dtype=float)) for name in ("m", "seconds"))
            curves[str(load)] = x, y
            held_out += every_other(x, y)
        return cls(curves, bounds(held_out))

    def of(self, operator: Operator) -> Estimate:
        """Return the estimate; beyond the most tokens time grows with them."""
        wanted = math.log(operator.m)
        found = {
            load: math.exp(float(np.interp(wanted, x, y)) + max(0.0, wanted - float(x[-1])))
            for load, (x, y) in self.curves.items()
        }
        low, high = self.residuals
        return Estimate(found[LOAD], min(found.values()) * low, max(found.values()) * high, T1)


@dataclass(frozen=True)
class SmallOperators:
    """Small operators by bytes alone: nobody measured them."""

    gpu: Gpu

    def of(self, operator: Operator) -> Estimate:
        """Return the estimate between the datasheet's roofline and twice the estimate."""
        roofline = self.gpu.roofline(operator)
        seconds = SMALL_FIXED_S + roofline / SMALL_EFFICIENCY
        return perhaps_fused(Estimate(seconds, roofline, SMALL_HIGH * seconds, T1), operator)


@dataclass(frozen=True)
class Quantizations:
    """Quantization of activations: logarithms of seconds by tokens, for each measured width.

    Between two widths, and beyond them, time per call lies on the line through the nearest two.
    """

    curves: Mapping[int, tuple[Array, Array]]
    residuals: Residuals

    @classmethod
    def of_rows(cls, rows: pd.DataFrame) -> Quantizations:
        """Return the curves of the measured widths."""
        curves, held_out = {}, []
        for width in rows["k"].unique().astype(int).tolist():
            group = rows[rows["k"].eq(width)].sort_values("m")
            x, y = (np.log(group[name].to_numpy(dtype=float)) for name in ("m", "seconds"))
            curves[width] = x, y
            held_out += every_other(x, y)
        return cls(curves, bounds(held_out))

    def of(self, operator: Operator) -> Estimate:
        """Return the estimate; the compiler may merge it with what is before, so that low is 0."""
        known = sorted(self.curves)
        upper = min(max(1, bisect.bisect_left(known, operator.k)), len(known) - 1)
        nearest = known[max(0, upper - 1) : upper + 1]
        wanted = math.log(operator.m)
        ends = [math.exp(float(np.interp(wanted, *self.curves[width]))) for width in nearest]
        seconds = ends[0]
        if len(nearest) > 1:
            rate = (ends[1] - ends[0]) / (nearest[1] - nearest[0])
            seconds = max(min(ends) / 2, ends[0] + rate * (operator.k - nearest[0]))
        return Estimate(seconds, 0.0, seconds * self.residuals.high, T1)


@dataclass
class Imported:
    """T1: what a foreign benchmark measured on the same kind of GPU, for the shard `shape`."""

    frame: pd.DataFrame
    gpu: Gpu
    shape: ModelShape
    leave_out: frozenset[tuple[int, int]] = frozenset()
    _products: dict[str, MatrixProducts] = field(default_factory=dict, repr=False)
    _attention: dict[Kind, Attention] = field(default_factory=dict, repr=False)
    _collectives: dict[str, Collective] = field(default_factory=dict, repr=False)
    _quantizations: dict[str, Quantizations | SmallOperators] = field(
        default_factory=dict, repr=False
    )

    def of(self, operator: Operator) -> Estimate:
        """Return the estimate of the operator's kind.

        Raises:
            UsageError: the tables have nothing like it.
        """
        if operator.kind is Kind.PRODUCT:
            return self.products(operator.dtype).of(operator)
        if operator.kind is Kind.COLLECTIVE:
            return self.collective(operator.name).of(operator.bytes)
        if operator.kind is Kind.ROUTED:
            return self.experts.of(operator)
        if operator.quantizes:
            return self.quantizations(operator.dtype).of(operator)
        if operator.kind is Kind.POINTWISE:
            return SmallOperators(self.gpu).of(operator)
        if operator.kind not in self._attention:
            fitted = Attention.fitted(operator.kind, self.frame, self.gpu, self.shape)
            self._attention[operator.kind] = fitted
        return self._attention[operator.kind].of(operator)

    def spread(self) -> Spread:
        """Return the residuals of products, and of small operators, which nobody measured."""
        found = self.products(BF16)
        return Spread(found.anchored, found.residuals, SMALL)

    def products(self, dtype: str) -> MatrixProducts:
        """Return the products of a type.

        Raises:
            UsageError: there are too few.
        """
        if dtype not in self._products:
            kind = self.frame["kind"].eq(str(Kind.PRODUCT)) & self.frame["dtype"].eq(dtype)
            rows = self.frame[kind]
            shapes = pd.Series(list(zip(rows["n"], rows["k"], strict=True)), index=rows.index)
            rows = rows[~shapes.isin(self.leave_out)]
            if rows.groupby(["n", "k"]).ngroups < 2:
                raise UsageError(
                    stored(
                        "the imported tables hold too few products in {dtype}: {rows}",
                        dtype=dtype,
                        rows=len(rows),
                    ),
                    "import other tables: prof import --aiconfigurator DIR",
                )
            sizes = rows[["m", "n", "k"]].to_numpy(dtype=float)
            seconds = rows["seconds"].to_numpy(dtype=float)
            self._products[dtype] = MatrixProducts.fitted(self.gpu, sizes, seconds, dtype)
        return self._products[dtype]

    @cached_property
    def experts(self) -> RoutedProducts:
        """The routed products of the shape's experts."""
        return RoutedProducts.fitted(self.frame, self.shape)

    def has_quantization(self, operator: Operator) -> bool:
        """Tell whether the tables have the quantization that the operator is."""
        return operator.quantizes and bool(self.frame["kind"].eq(operator.dtype).any())

    def quantizations(self, how: str) -> Quantizations | SmallOperators:
        """Return the quantizations of activations, or small operators where none was measured."""
        if how not in self._quantizations:
            rows = self.frame[self.frame["kind"].eq(how)]
            found = SmallOperators(self.gpu) if rows.empty else Quantizations.of_rows(rows)
            self._quantizations[how] = found
        return self._quantizations[how]

    def collective(self, name: str) -> Collective:
        """Return a collective among the GPUs that share the model.

        Raises:
            UsageError: it was not measured among so many.
        """
        if name not in self._collectives:
            gpus = self.shape.tensor_parallel
            rows = self.frame[self.frame["kind"].eq(name)]
            known = sorted(rows["gpus"].dropna().unique().tolist())
            rows = rows[rows["gpus"].eq(gpus)].sort_values("bytes")
            if rows.empty or name not in (ALL_REDUCE, ALL_GATHER):
                raise UsageError(
                    stored(
                        "the imported tables have no {name} among {gpus} GPUs", name=name, gpus=gpus
                    ),
                    f"they know {', '.join(map(str, known)) or 'none'} GPUs; or add a recorded run "
                    "of an engine on as many GPUs: --on RUN",
                )
            x = np.log(rows["bytes"].to_numpy(dtype=float))
            y = np.log(rows["seconds"].to_numpy(dtype=float))
            self._collectives[name] = Collective(x, y, bounds(every_other(x, y)))
        return self._collectives[name]


@dataclass(frozen=True)
class Completed:
    """Own measurements beside imported tables.

    A product comes from where its outputs and inputs were measured, own cases first; of other
    shapes from the source that leaves less out of itself. Small operators are own ones where there
    are enough, and all else is imported: the attention of the tables is that of the engine's own
    back end, ours is PyTorch's, which is faster.
    """

    products: Mapping[str, Products]
    small: Measured | None
    imported: Imported

    @classmethod
    def of_both(cls, measured: Measured | Mapping[str, Products], imported: Imported) -> Completed:
        """Return own products and small operators with the tables."""
        if isinstance(measured, Measured):
            return cls(measured.products, measured, imported)
        return cls(measured, None, imported)

    def of(self, operator: Operator) -> Estimate:
        """Return the estimate of the source that is chosen."""
        return self.source(operator).of(operator)

    def source(self, operator: Operator) -> Products | MatrixProducts | Measured | Imported:
        """Return the source of an operator."""
        if operator.kind is Kind.PRODUCT:
            return self._of_products(operator)
        if self.small is None or operator.kind is not Kind.POINTWISE:
            return self.imported
        return self.imported if self.imported.has_quantization(operator) else self.small

    def _of_products(self, operator: Operator) -> Products | MatrixProducts:
        measured, imported = self.products.get(operator.dtype), self._imported(operator.dtype)
        if measured is None or imported is None:
            return measured or self.imported.products(operator.dtype)
        if measured.has(operator):
            return measured
        nearer = imported.has(operator) or imported.residuals.width < measured.residuals.width
        return imported if nearer else measured

    def _imported(self, dtype: str) -> MatrixProducts | None:
        try:
            return self.imported.products(dtype)
        except UsageError:
            return None

    def both(self) -> tuple[Products | MatrixProducts, ...]:
        """Return own products in bf16, and imported ones where there are enough."""
        imported = self._imported(BF16)
        return self.products[BF16], *([imported] if imported else [])

    def spread(self) -> Spread:
        """Return the residuals of products, of the narrower source, and of small operators."""
        same, others = (
            min(found, key=lambda residuals: residuals.width)
            for found in zip(
                *((source.anchored, source.residuals) for source in self.both()), strict=True
            )
        )
        return Spread(same, others, self.small.spread().small if self.small else SMALL)


def benchmarked(
    cases: Cases,
    foreign: pd.DataFrame,
    gpu: Gpu,
    shape: ModelShape,
    leave_out: frozenset[tuple[int, int]],
) -> tuple[Costs, list[Note]]:
    """Return the costs of measured operators, own ones first, and notes on what stands in.

    Args:
        cases: own ones.
        foreign: table `imported_operators`.
        gpu: the GPU that both were measured on.
        shape: shard of one GPU.
        leave_out: (outputs, inputs) of products that are held out.

    Raises:
        UsageError: there are own cases, too few, and no imported ones.
    """
    dtypes = tuple(dict.fromkeys(o.dtype for o in operators(shape, ONE) if o.kind is Kind.PRODUCT))
    if foreign.empty:
        known = bool(cases.products)
        return measured_costs(cases, gpu, leave_out, dtypes) if known else Datasheet(gpu), []
    imported = Imported(foreign, gpu, shape, leave_out)
    measured: Measured | Mapping[str, Products] | None = None
    if cases.products:
        try:
            measured = measured_costs(cases, gpu, leave_out, dtypes)
        except UsageError:
            measured = measured_products(cases, gpu, leave_out, dtypes)
    costs: Costs = imported if measured is None else Completed.of_both(measured, imported)
    asked = operators(shape, ONE)
    taken = [str(kind) for kind in Kind if any(_imports(costs, o) for o in asked if o.kind is kind)]
    notes = _choice(costs) if isinstance(costs, Completed) else []
    notes += [note("imported", kinds=", ".join(taken))]
    if shape.experts:
        notes.append(note("expert-spread"))
    if str(Kind.POINTWISE) in taken:
        fixed, efficiency = f"{SMALL_FIXED_S * 1e6:g} us", f"{100 * SMALL_EFFICIENCY:.0f} %"
        notes.append(note("small-operators", time=fixed, part=efficiency))
    return costs, notes


def _imports(costs: Costs, operator: Operator) -> bool:
    source = costs.source(operator) if isinstance(costs, Completed) else costs
    return isinstance(source, Imported | MatrixProducts)


def _choice(costs: Completed) -> list[Note]:
    """Return how products are chosen, where own cases and tables both have them."""
    ends = [
        f"{source.residuals.low - 1:+.0%} to {source.residuals.high - 1:+.0%}"
        for source in costs.both()
    ]
    if len(ends) < 2:
        return []
    return [note("products-chosen", own=ends[0], tables=ends[1])]
