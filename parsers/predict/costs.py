"""Says how long an operator takes, and by which source: its tier.

Tiers, lowest first. T0: the roofline of a datasheet, which nothing can beat. T1: a smooth roofline
fitted to measured cases of other shapes, with what near shapes differ from it. T2: products of
exactly these outputs and inputs were measured (`measured`). T3: a recorded engine (`trace`).

Intervals come from held-out residuals: what was measured is left out of the fit in turn, and the
5th and 95th percentile of what the fit then misses bound the estimate.
"""

from __future__ import annotations

import bisect
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

from nsight_prof.parsers.errors import UsageError
from nsight_prof.parsers.packaged import packaged_yaml
from nsight_prof.parsers.predict.fit import HIGH, LOW
from nsight_prof.parsers.predict.operators import BF16, FP8, Kind, Operator
from nsight_prof.parsers.run.sentences import stored

T0, T1, T2, T3 = "T0", "T1", "T2", "T3"
DRAM_REACHED = 0.9
"""Part of the datasheet's bandwidth that long kernels reach: a copy moves 4.3 of 4.8 TB/s on an
H200, and 3.0 of 3.35 on an H100."""


class Note(NamedTuple):
    """What a prediction assumes or does not know: a key of `reports.predict.notes`, its values."""

    key: str
    values: tuple[tuple[str, int | str], ...] = ()


def note(key: str, **values: int | str) -> Note:
    """Return a note."""
    return Note(key, tuple(values.items()))


class Estimate(NamedTuple):
    """Seconds of one call with the bounds of its interval, and the tier of its source.

    `high` is infinite where nothing was measured.
    """

    seconds: float
    low: float
    high: float
    tier: str


class Costs(Protocol):
    """A source of costs."""

    def of(self, operator: Operator) -> Estimate:
        """Return how long one call of an operator takes."""


@dataclass(frozen=True)
class Gpu:
    """What the datasheet promises: FLOP/s (bf16 and fp8, dense), B/s of DRAM, bytes of memory.

    `fp8_flop_per_s` is 0 where its Tensor Cores have no fp8. GPUs of one `chip` differ in its
    clocks and memory alone.
    """

    name: str
    flop_per_s: float
    bytes_per_s: float
    memory_bytes: float
    source: str
    names: tuple[str, ...] = ()
    fp8_flop_per_s: float = 0.0
    chip: str = ""

    def rate(self, dtype: str) -> float:
        """Return the FLOP/s of products in a type.

        Raises:
            UsageError: its Tensor Cores do not have the type.
        """
        rate = self.fp8_flop_per_s if dtype == FP8 else self.flop_per_s
        if not rate:
            raise UsageError(
                stored(
                    "the Tensor Cores of {name} do not multiply in {dtype}",
                    name=self.name,
                    dtype=dtype,
                ),
                "give the model in 16 bits, or another GPU",
            )
        return rate

    def roofline(self, operator: Operator) -> float:
        """Return the least seconds of an operator: computing or moving, whichever is longer."""
        return max(operator.flops / self._rate(operator), operator.bytes / self.bytes_per_s)

    def bound(self, operator: Operator) -> str:
        """Return which of both that is: Tensor Cores or DRAM."""
        moving = operator.bytes / self.bytes_per_s
        return "tensor" if operator.flops / self._rate(operator) > moving else "dram"

    def _rate(self, operator: Operator) -> float:
        # Attention multiplies in 16 bits, whichever type the KV cache has.
        return self.rate(operator.dtype if operator.kind is Kind.PRODUCT else BF16)


def datasheets() -> dict[str, Gpu]:
    """Return the GPUs of gpus.yaml by key."""
    return {
        name: Gpu(
            name,
            float(facts["flop_per_s"]),
            float(facts["bytes_per_s"]),
            float(facts["memory_bytes"]),
            str(facts["source"]),
            tuple(facts["names"]),
            float(facts.get("fp8_flop_per_s", 0.0)),
            str(facts["chip"]),
        )
        for name, facts in packaged_yaml("nsight_prof.parsers.predict", "gpus.yaml").items()
    }


def datasheet(key: str) -> Gpu:
    """Return a GPU by its key or by the name that the driver gives it.

    Raises:
        UsageError: there is no datasheet of it.
    """
    known = datasheets()
    found = next((gpu for gpu in known.values() if key == gpu.name or key in gpu.names), None)
    if found is None:
        raise UsageError(
            f"the datasheet of the GPU {key} is not known", f"--gpu knows {', '.join(known)}"
        )
    return found


def same_chip(gpu: Gpu) -> list[str]:
    """Return the keys of the datasheets of GPUs with the same chip, its own first."""
    found = [sheet.name for sheet in datasheets().values() if sheet.chip == gpu.chip]
    return sorted(found, key=lambda name: name != gpu.name)


@dataclass(frozen=True)
class Datasheet:
    """T0: the roofline of a datasheet."""

    gpu: Gpu

    def of(self, operator: Operator) -> Estimate:
        """Return the roofline's time, which is the lower bound; there is no upper one."""
        if operator.kind is Kind.COLLECTIVE:
            raise no_collective()
        roofline_s = self.gpu.roofline(operator)
        return Estimate(roofline_s, roofline_s, math.inf, T0)


def no_collective() -> UsageError:
    """Return the refusal of tensor parallelism whose communication nothing tells."""
    return UsageError(
        stored("the time of the collectives of tensor parallelism is not known"),
        "add a recorded run of an engine on as many GPUs, or of what they exchange (prof run "
        "predict-ops --set target.args.ranks=N): --on RUN",
    )


def not_recorded(what: str, arguments: str) -> UsageError:
    """Return the refusal of a head or adapters that no recorded engine had.

    Args:
        what: is not known.
        arguments: of the slice that would tell.
    """
    return UsageError(
        stored("the time of {what} is not known: no run has them", what=what),
        f"record a few layers with them: prof run layer-slice {arguments}",
    )


def no_experts() -> UsageError:
    """Return the refusal of experts whose routed products nothing tells."""
    return UsageError(
        stored("the time of the experts' routed products is not known: no run has them"),
        "record a few layers of the model (prof run layer-slice --set target.args.model=MODEL), or "
        "import tables that have them: prof import --aiconfigurator DIR",
    )


@dataclass(frozen=True)
class Carried:
    """T0 for a GPU of which nothing is measured: the part of its roofline that another reached.

    On one chip only what waits for DRAM changes with another memory: the difference of the
    rooflines, at DRAM_REACHED of the bandwidth or more. What a kernel needs beside it stays.
    """

    base: Costs
    measured: Gpu
    gpu: Gpu

    def of(self, operator: Operator) -> Estimate:
        """Return the estimate; the roofline bounds it below, nothing does above.

        What lies in the cache or is part of another kernel takes less than the roofline.
        """
        if operator.kind is Kind.COLLECTIVE:
            raise no_collective()
        roofline_s, known_s = self.gpu.roofline(operator), self.measured.roofline(operator)
        seconds = self.base.of(operator).seconds
        if self.gpu.chip == self.measured.chip:
            slower = min(1 / DRAM_REACHED, seconds / known_s)
            carried = seconds + (roofline_s - known_s) * slower
        else:
            carried = seconds * roofline_s / known_s
        return Estimate(carried, min(carried, roofline_s), math.inf, T0)


class Power(NamedTuple):
    """How the power limit slows a GPU: after `burst_s` of prompts all takes `slowdown` as long."""

    burst_s: float = math.inf
    slowdown: float = 1.0

    def stretched(self, seconds: float, loaded_s: float) -> float:
        """Return how long work of so many seconds takes after `loaded_s` of such work."""
        quick = max(0.0, self.burst_s - loaded_s)
        return seconds if seconds <= quick else quick + (seconds - quick) * self.slowdown


class Residuals(NamedTuple):
    """Factors that bound an estimate: percentiles of measured over predicted, held out."""

    low: float
    high: float

    @classmethod
    def of(cls, measured_over_predicted: Iterable[float]) -> Residuals:
        """Return the percentiles LOW and HIGH; none at all bound nothing from above."""
        found = np.array(list(measured_over_predicted))
        if not len(found):
            return cls(0.0, math.inf)
        return cls(*(float(value) for value in np.percentile(found, [LOW, HIGH])))

    @property
    def width(self) -> float:
        """Logarithm of the upper over the lower bound: the narrower, the better it follows."""
        return math.log(self.high / self.low) if self.low > 0 else math.inf


class Spread(NamedTuple):
    """How far benchmarks lie from what they left out: products of a known and of another shape,
    and small operators."""

    same: Residuals
    others: Residuals
    small: Residuals


@runtime_checkable
class Benchmarked(Costs, Protocol):
    """A source of costs that rests on measured operators."""

    def spread(self) -> Spread:
        """Return how far it lies from what it left out."""


@dataclass(frozen=True)
class Anchors:
    """What one call of an operator took at recorded sizes, in seconds.

    `sizes`: size -> work per size -> (operator, seconds), both in rising order. The size is m, and
    the bytes of what only moves them. `base` are the costs that they correct.
    """

    base: Costs
    sizes: Mapping[float, Mapping[float, tuple[Operator, float]]]

    @classmethod
    def of(cls, base: Costs, items: Sequence[tuple[Operator, float]]) -> Anchors:
        """Return the anchors; of equal sizes the median counts."""
        found: dict[tuple[float, float], list[tuple[Operator, float]]] = defaultdict(list)
        for item in items:
            found[coordinates(item[0])].append(item)
        sizes: dict[float, dict[float, tuple[Operator, float]]] = defaultdict(dict)
        for (size, work), same in sorted(found.items()):
            sizes[size][work] = (same[0][0], float(np.median([seconds for _, seconds in same])))
        return cls(base, sizes)

    def seconds(self, operator: Operator) -> float:
        """Return the seconds of one call."""
        size, work = coordinates(operator)
        if operator.kind is Kind.ROUTED:  # measured at all sizes: no lower tier has its experts
            known = [(at, math.log(found[1.0][1])) for at, found in self.sizes.items()]
            return math.exp(_between(size, known))
        if operator.kind is Kind.DRAFT:  # nor a head: by requests, and by how long these are
            drafts = [(at, _line(work, self._seconds(at))) for at in self._near(size)]
            return _line(size, drafts)
        first = next(iter(self.sizes.values()))
        if len(self.sizes) == len(first) == 1 and operator.kind not in (Kind.PRODUCT, Kind.PREFILL):
            return self._shifted(operator, *next(iter(first.values())))
        if operator.kind is Kind.ADAPTER:  # by tokens, among steps that read as many adapters
            counts = {count for by_count in self.sizes.values() for count in by_count}
            count = min(counts, key=lambda count: abs(count - work))
            times = [(at, found[count][1]) for at, found in self.sizes.items() if count in found]
            return _line(size, times)
        if operator.kind in (Kind.POINTWISE, Kind.COLLECTIVE):
            return _line(size, [(at, found[1.0][1]) for at, found in self.sizes.items()])
        near = self._near(size)
        if operator.kind is Kind.DECODE:
            factors = [self._decode_factor(operator, at) for at in near]
        else:
            factors = [_between(work, self._factors[self._with_work(at, work)]) for at in near]
        factor = _between(size, list(zip(near, factors, strict=True)))
        return self.base.of(operator).seconds * math.exp(factor)

    def _near(self, size: float) -> list[float]:
        """Return the recorded sizes on both sides of one, or the last one beside it."""
        sizes = list(self.sizes)
        next_up = min(bisect.bisect_left(sizes, size), len(sizes) - 1)
        return sizes[max(0, next_up - 1) : next_up + 1]

    def _with_work(self, size: float, work: float) -> float:
        """Return a recorded size that tells of so much work: the next one that has as much.

        Long prompts were recorded at a few sizes alone. It is `size` where no other has more.
        """
        known = {at: min(work, max(found)) for at, found in self.sizes.items()}
        enough = [at for at, longest in known.items() if longest == max(known.values())]
        return min(enough, key=lambda at: abs(math.log(at / size)))

    def _seconds(self, size: float) -> list[tuple[float, float]]:
        """Return the recorded seconds at a size, by work."""
        return [(work, seconds) for work, (_, seconds) in self.sizes[size].items()]

    def left_out(self) -> list[float]:
        """Return measured over estimated seconds of each size between others, left out in turn."""
        found = []
        for at in list(self.sizes)[1:-1]:
            rest = Anchors(self.base, {k: v for k, v in self.sizes.items() if k != at})
            found += [known / rest.seconds(item) for item, known in self.sizes[at].values()]
        return found

    @cached_property
    def _factors(self) -> dict[float, list[tuple[float, float]]]:
        """Logarithms of recorded over base costs, by work, of each size."""
        return {
            size: [(at, math.log(s / self.base.of(o).seconds)) for at, (o, s) in found.items()]
            for size, found in self.sizes.items()
        }

    def _decode_factor(self, operator: Operator, size: float) -> float:
        """Return the logarithm of recorded over base costs of as long a context at another size.

        A fixed time and one by the bytes of the cache: the seconds are on a line, not the factor.
        """
        _, work = coordinates(operator)
        known = self._seconds(size)
        if not known[0][0] <= work <= known[-1][0] or len(known) == 1:
            return _between(work, self._factors[size])
        fraction = size / operator.m
        same = replace(
            operator,
            m=round(size),
            flops=operator.flops * fraction,
            bytes=operator.bytes * fraction,
        )
        return math.log(_line(work, known) / self.base.of(same).seconds)

    def _shifted(self, operator: Operator, known: Operator, seconds: float) -> float:
        if operator.kind is Kind.COLLECTIVE:
            more = seconds * (operator.bytes / known.bytes - 1)
        else:
            more = self.base.of(operator).seconds - self.base.of(known).seconds
        return max(seconds + more, seconds / 2)


def coordinates(operator: Operator) -> tuple[float, float]:
    """Return size and work per size of an operator, along which its costs are interpolated."""
    if operator.kind is Kind.PREFILL:
        return operator.m, operator.flops / operator.m
    if operator.kind is Kind.DECODE:
        return operator.m, operator.bytes / operator.m
    if operator.kind in (Kind.DRAFT, Kind.ADAPTER):
        return operator.m, max(1.0, operator.n)
    by_tokens = operator.kind in (Kind.PRODUCT, Kind.ROUTED)
    return (operator.m if by_tokens else operator.bytes), 1.0


def _between(at: float, known: Sequence[tuple[float, float]]) -> float:
    """Return the value at `at`, between the known ones along the logarithm."""
    sizes, values = zip(*known, strict=True)
    return float(np.interp(math.log(at), np.log(sizes), values))


def _line(work: float, known: Sequence[tuple[float, float]]) -> float:
    """Return the seconds on the line through the next two known ones; it does not fall."""
    if len(known) == 1:
        return known[0][1]
    index = min(max(bisect.bisect_left(known, (work,)), 1), len(known) - 1)
    (first, low), (last, high) = known[index - 1], known[index]
    rate = max(0.0, (high - low) / (last - first))
    return max(low + rate * (work - first), min(low, high) / 2)
