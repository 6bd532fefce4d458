"""What can be measured for predictions, and how far it would narrow the interval of a step."""

from __future__ import annotations

import math
from dataclasses import dataclass

from nsight_prof.parsers.packaged import packaged_yaml
from nsight_prof.parsers.predict.costs import T1, Spread
from nsight_prof.parsers.predict.operators import Kind
from nsight_prof.parsers.predict.serving import Part, StepTime


@dataclass(frozen=True)
class Measurement:
    """A recipe that is measured on a GPU.

    `arguments` of `prof run`, with {model}; `split`: further ones with {gpus}, where several GPUs
    share the model. `tier` of what it tells of `kinds` of
    operators. `host`: what it tells beside them, by the field of `Host`. `recorded`: the run of
    this repository that took `seconds`.
    """

    recipe: str
    arguments: str
    split: str
    tier: str
    kinds: tuple[str, ...]
    host: tuple[str, ...]
    recorded: str
    seconds: float

    def command(self, model: str, gpus: int) -> str:
        """Return the command that makes it."""
        more = f"{self.arguments} {self.split if gpus > 1 else ''}"
        return " ".join(f"prof run {self.recipe} {more}".format(model=model, gpus=gpus).split())


def measurements() -> tuple[Measurement, ...]:
    """Return what can be measured."""
    known = packaged_yaml("nsight_prof.parsers.predict", "measurements.yaml")
    return tuple(
        Measurement(
            recipe=name,
            arguments=str(facts.get("arguments", "")),
            split=str(facts.get("split", "")),
            tier=str(facts.get("tier", "")),
            kinds=tuple(facts.get("kinds", ())),
            host=tuple(facts.get("host", ())),
            recorded=str(facts["recorded"]),
            seconds=float(facts["seconds"]),
        )
        for name, facts in known.items()
    )


@dataclass(frozen=True)
class Narrowed:
    """The interval of a step, as parts of its time: `width` now and `after` a measurement.

    `share`: the part of the interval now that is due to operators which the measurement tells; of
    one without an upper end, their part of the time of all that have none. `after` is NaN where it
    is not known before something is measured, infinite where nothing bounds it.
    """

    width: float
    after: float
    share: float

    @property
    def narrows(self) -> bool:
        """Whether the measurement makes the interval narrower, or gives it an end."""
        return self.share > 0 and not self.after >= self.width


def narrowed(step: StepTime, found: Measurement, spread: Spread | None) -> Narrowed:
    """Return what a measurement does to the interval of a step.

    Args:
        step: as predicted.
        found: the measurement.
        spread: how far benchmarks on such a GPU lie from what they left out; None: none were made.
    """
    total = step.gpu_s
    now = after = improved = 0.0
    for item in step.breakdown:
        width = item.seconds.high - item.seconds.low
        weight = width if math.isfinite(step.seconds.high) else _unbounded(item)
        better = item.operator.kind in found.kinds and item.tier < found.tier
        now += width
        improved += weight if better else 0.0
        after += min(_width(item, found.tier, spread), width) if better else width
    total_width = now if math.isfinite(now) else sum(map(_unbounded, step.breakdown))
    return Narrowed(now / total, after / total, improved / total_width if total_width else 0.0)


def _unbounded(item: Part) -> float:
    """Return the seconds of an operator that nothing bounds above; 0 for others."""
    return 0.0 if math.isfinite(item.seconds.high) else item.seconds.value


def _width(item: Part, tier: str, spread: Spread | None) -> float:
    """Return the width of an operator's interval where it is measured for a tier, in seconds.

    NaN where no benchmark tells.
    """
    if spread is None:
        return math.nan
    residuals = spread.same if tier > T1 else spread.others
    if item.operator.kind in (Kind.POINTWISE, Kind.COLLECTIVE):
        residuals = spread.small
    return item.seconds.value * (residuals.high - residuals.low)
