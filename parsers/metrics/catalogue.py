"""The metric catalogue, metrics.yaml, as objects: what to ask ncu for, and how to read it.

`catalogue().tool_metrics(...)` is the list for ``ncu --metrics``; `columns` say how each column of
the counters table is made of them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from nsight_prof.parsers.errors import UsageError
from nsight_prof.parsers.packaged import packaged_yaml, tables

_MAKER = re.compile(r"\b(?:NVIDIA|GEFORCE|TESLA)\b")
_SERIES = re.compile(r"\b([GR]TX)(\d)")
UTILIZATION = ".avg.pct_of_peak_sustained_elapsed"
"""How ncu calls the part of all cycles in which a unit works, the mean over the chip."""
TENSOR_PREFIX = "sm__ops_path_tensor_"
# Inputs that parsers/metrics/tensor.py makes of the operation counters of the dtypes that a
# capture has.
TENSOR_INPUTS = ("tensor_operations", "tensor_operations_dtype", "tensor_operations_peak")


@dataclass(frozen=True)
class Source:
    """One way to make a column: a formula over tool metrics and earlier columns.

    `chips` are those that have the metrics (empty: all); see metrics.yaml for the flags.
    """

    formula: str
    of: tuple[str, ...]
    chips: tuple[str, ...] = ()
    strict: bool = False
    foreign: bool = False
    final: bool = False
    note: str = ""

    def fits(self, chip: str) -> bool:
        """Whether the chip has the metrics."""
        return not self.chips or chip in self.chips


@dataclass(frozen=True)
class MetricColumn:
    """One column: unit and meaning as the tables declare them, and its sources in order.

    `gate` is the closed range outside of which a value, and those of the columns in
    `gate_closes`, are not available. `empty` says why the formula may give nothing: one reason, or
    one an input that is 0; `unclear` says it where known inputs do not decide. A `helper` only
    gates and is in no table.
    """

    name: str
    label: str
    unit: str
    meaning: str
    literature: str
    sources: tuple[Source, ...]
    gate: tuple[float, float] | None = None
    gate_closes: tuple[str, ...] = ()
    empty: tuple[str, ...] = ()
    unclear: str = ""
    quiet: bool = False
    helper: bool = False


@dataclass(frozen=True)
class MetricSet:
    """A named set: our columns, tool metrics for those who dig deeper, roofs, stall reasons."""

    name: str
    meaning: str
    columns: tuple[str, ...]
    extra: tuple[str, ...] = ()
    roofs: bool = False
    stalls: bool = False


@dataclass(frozen=True)
class Roof:
    """A roof that the capture holds: peak a cycle x factor x clock."""

    level: str
    peak: str
    factor: float
    clock: str
    dtype: str = ""
    foreign: bool = False


@dataclass(frozen=True)
class Datasheet:
    """Dense FLOP per clock and SM, by pipe and by Tensor dtype, with the vendor's document.

    `tensor_clock_hz` is the clock of the published rates of the Tensor Cores but FP64, where that
    is not the maximum clock.
    """

    source: str
    pipes: dict[str, float]
    tensor: dict[str, float]
    tensor_clock_hz: float = math.inf


@dataclass(frozen=True)
class Unit:
    """A part of the chip whose utilization, in per cent of elapsed cycles, can bound a kernel.

    `bound` is the bound that it stands for; of several `metrics` the largest counts.
    """

    name: str
    bound: str
    metrics: tuple[str, ...]


@dataclass(frozen=True)
class StallReason:
    """A reason why warps wait, with the metric that counts it and the one that samples it."""

    reason: str
    label: str
    metric: str
    sampled: str
    chips: tuple[str, ...] = ()


@dataclass(frozen=True)
class TensorCounter:
    """Metrics that count the operations of one dtype, and the one that holds the dense roof."""

    operations: tuple[str, ...]
    peak: str


@dataclass(frozen=True)
class Catalogue:
    """The whole catalogue; `chips` are the families, `families` every chip like one."""

    chips: tuple[str, ...]
    products: dict[str, str]
    names: dict[str, re.Pattern[str]]
    families: dict[str, str]
    sets: dict[str, MetricSet]
    columns: dict[str, MetricColumn]
    units: tuple[Unit, ...]
    stalls: tuple[StallReason, ...]
    tensor: dict[str, dict[str, TensorCounter]]
    roofs: tuple[Roof, ...]
    datasheets: dict[str, Datasheet]
    recorded_passes: dict[str, dict[str, dict[str, int]]]

    def family(self, chip: str) -> str:
        """Return the chip of the catalogue that `chip` (any case) is like, or ""."""
        return self.families.get(chip.upper(), "")

    def chip_of(self, name: str) -> str:
        """Return the chip that `name` is, or that the GPU of this name has.

        "H100", "RTX 4090", "rtx4090" and "NVIDIA A100-SXM4-80GB" are names of GPUs. The chip of a
        GPU is that of its family in the catalogue: all have the same counters.

        Raises:
            UsageError: neither a chip of the catalogue nor a GPU that has one.
        """
        if self.family(name):
            return name.upper()
        words = _SERIES.sub(r"\1 \2", _MAKER.sub(" ", name.upper().replace("-", " ")))
        gpu = " ".join(words.split())
        for chip, pattern in self.names.items():
            if pattern.match(gpu):
                return chip
        known = ", ".join(self.products.values())
        raise UsageError(
            f"the metric catalogue does not have the chip {name}",
            f"chips: {', '.join(sorted(self.families))}; or the name of a GPU: {known}",
        )

    def tool_metrics(
        self, sets: Sequence[str], chip: str, tensor_dtypes: Sequence[str]
    ) -> list[str]:
        """Return the names for ``ncu --metrics``, without repeats.

        A dtype that the chip has no counter for is left out; no set is an empty list on any chip.

        Raises:
            UsageError: a set or a chip that the catalogue does not have.
        """
        family = self._known(sets, chip) if sets else ""
        names: dict[str, None] = {}
        for name in sets:
            self._add_set(names, self.sets[name], family, tensor_dtypes)
        return list(names)

    def passes(self, sets: Sequence[str], chip: str, dtypes: Sequence[str]) -> int | None:
        """Return the recorded hardware passes (CUPTI's planner; ncu adds one), or None."""
        key = " ".join(name for name in self.sets if name in sets)
        counts = self.recorded_passes.get(self.family(chip), {}).get(key, {})
        return counts.get(" ".join(sorted(dtypes)) or "none")

    def _known(self, sets: Iterable[str], chip: str) -> str:
        unknown = [name for name in sets if name not in self.sets]
        if unknown:
            raise UsageError(
                f"no metric set is called {', '.join(unknown)}", f"sets: {', '.join(self.sets)}"
            )
        family = self.family(chip)
        if not family:
            raise UsageError(
                f"the metric catalogue does not have the chip {chip or '(unknown)'}",
                f"chips: {', '.join(sorted(self.families))}; for another one name the metrics "
                "yourself: counters: {sets: [], extra_args: [--metrics, …]}",
            )
        return family

    def _add_set(
        self, names: dict[str, None], chosen: MetricSet, chip: str, dtypes: Sequence[str]
    ) -> None:
        for column in chosen.columns:
            self._add_column(names, column, chip, dtypes)
        names.update(dict.fromkeys(chosen.extra))
        if chosen.roofs:
            for roof in self.roofs:
                if not roof.foreign:
                    names.update(dict.fromkeys((roof.peak, roof.clock)))
            names.update(dict.fromkeys(c.peak for c in self.tensor[chip].values()))
        if chosen.stalls:
            names.update(
                (stall.metric, None)
                for stall in self.stalls
                if not stall.chips or chip in stall.chips
            )

    def _add_column(
        self, names: dict[str, None], column: str, chip: str, dtypes: Sequence[str]
    ) -> None:
        source = self.source(column, chip)
        if source is None:
            return
        for name in source.of:
            if name in self.columns:
                self._add_column(names, name, chip, dtypes)
            elif name == "tensor_operations":
                names.update(dict.fromkeys(self._operations(chip, dtypes)))
            elif name == "tensor_operations_peak":
                operations = self._operations(chip, dtypes)
                names.update((f"{name}.peak_sustained", None) for name in operations)
            elif name not in TENSOR_INPUTS:
                names[name] = None

    def _operations(self, chip: str, dtypes: Sequence[str]) -> list[str]:
        counters = self.tensor[chip]
        return [name for d in dtypes if d in counters for name in counters[d].operations]

    def source(self, column: str, chip: str) -> Source | None:
        """Return how `prof` collects a column on a chip of the catalogue, or None."""
        fitting = (s for s in self.columns[column].sources if s.fits(chip) and not s.foreign)
        return next(fitting, None)


@cache
def catalogue() -> Catalogue:
    """Return the catalogue of metrics.yaml."""
    data = packaged_yaml("nsight_prof.parsers", "metrics.yaml")
    families = {chip: chip for chip in data["chips"]}
    for chip, facts in data["chips"].items():
        families.update(dict.fromkeys(facts["like"], chip))
    return Catalogue(
        chips=tuple(data["chips"]),
        products={chip: facts["products"] for chip, facts in data["chips"].items()},
        names={
            chip: re.compile(rf"(?:{facts['names']})(?!\w)")
            for chip, facts in data["chips"].items()
        },
        families=families,
        sets={name: _set(name, facts) for name, facts in data["sets"].items()},
        columns={name: _column(name, facts) for name, facts in data["columns"].items()},
        units=tuple(
            Unit(name, bound, tuple(f"{metric}{UTILIZATION}" for metric in metrics))
            for bound, units in data["units"].items()
            for name, metrics in units.items()
        ),
        stalls=_stalls(data["stalls"]),
        tensor={chip: _tensor(dtypes) for chip, dtypes in data["tensor"].items()},
        roofs=tuple(Roof(**facts) for facts in data["roofs"]),
        datasheets={chip: Datasheet(**facts) for chip, facts in data["datasheet"].items()},
        recorded_passes=data["passes"],
    )


def _set(name: str, facts: dict[str, Any]) -> MetricSet:
    lists = {key: tuple(facts.get(key, ())) for key in ("columns", "extra")}
    return MetricSet(**{"name": name, **facts, **lists})


def _column(name: str, facts: dict[str, Any]) -> MetricColumn:
    declared = {c.name: c for c in tables()["counters"]}.get(name)
    gate = facts.get("gate")
    return MetricColumn(
        name=name,
        label=facts["label"],
        unit=declared.unit if declared else "%",
        meaning=declared.meaning if declared else facts["label"],
        literature=facts["source"],
        sources=tuple(_source(source) for source in facts["from"]),
        gate=(gate[0], gate[1]) if gate else None,
        gate_closes=tuple(gate[2:]) if gate else (),
        empty=tuple(facts.get("empty", ())),
        unclear=facts.get("unclear", ""),
        quiet=facts.get("quiet", False),
        helper=facts.get("helper", False),
    )


def _source(facts: dict[str, Any]) -> Source:
    lists = {key: tuple(facts.get(key, ())) for key in ("of", "chips")}
    return Source(**{**facts, **lists})


def _stalls(facts: dict[str, Any]) -> tuple[StallReason, ...]:
    return tuple(
        StallReason(
            reason=reason,
            label=item["label"],
            metric=facts["metric"].format(reason=reason),
            sampled=facts["sampled"].format(reason=item["sampled"]),
            chips=tuple(item.get("chips", ())),
        )
        for reason, item in facts["reasons"].items()
    )


def _tensor(dtypes: dict[str, Any]) -> dict[str, TensorCounter]:
    return {
        dtype: TensorCounter(
            operations=tuple(f"{TENSOR_PREFIX}{name}.sum" for name in facts["ops"]),
            peak=f"{TENSOR_PREFIX}{facts['peak']}.sum.peak_sustained",
        )
        for dtype, facts in dtypes.items()
    }
