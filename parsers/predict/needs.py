"""What can be measured for predictions, and how far it would narrow the interval of a step."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass

from nsight_prof.parsers.packaged import packaged_yaml
from nsight_prof.parsers.predict.costs import T1, Spread
from nsight_prof.parsers.predict.operators import Kind, Operator
from nsight_prof.parsers.predict.serving import Part, StepTime

ENGINE, SERVER = "engine", "server"


@dataclass(frozen=True)
class Measurement:
    """A recipe that is measured on a GPU.

    `arguments` of `prof run`, with {model}; `split`: further ones with {gpus}, where several GPUs
    share the model; `options`: how an engine is told what it would not do by itself. `tier` of what
    it tells of `kinds` of operators in `dtypes`, in any where none is named. `host`: what it tells
    beside them, by the field of `Host`. `recorded`: the run of this repository that took `seconds`.
    """

    recipe: str
    arguments: str
    split: str
    options: str
    tier: str
    kinds: tuple[str, ...]
    dtypes: tuple[str, ...]
    host: tuple[str, ...]
    recorded: str
    seconds: float

    def command(
        self, model: str, gpus: int, asked: Mapping[str, str], of_target: Mapping[str, str]
    ) -> str:
        """Return the command that makes it.

        Args:
            model: as it was named.
            gpus: that share it.
            asked: options of the engine with their values.
            of_target: arguments of the target for a head or adapters; servers have none.
        """
        more = f"{self.arguments} {self.split if gpus > 1 else ''}".format(model=model, gpus=gpus)
        if self.options == ENGINE:
            more += "".join(f" --set target.args.{key}={value}" for key, value in of_target.items())
        if asked and self.options == ENGINE:  # a JSON text in YAML
            more += f" --set 'target.args.engine_args={json.dumps(json.dumps(asked))}'"
        elif asked and self.options == SERVER:
            words = " ".join(f"--{key.replace('_', '-')} {value}" for key, value in asked.items())
            more += f" --set 'target.args.server_args={words}'"
        return " ".join(f"prof run {self.recipe} {more}".split())

    def measures(self, operator: Operator) -> bool:
        """Tell whether it measures an operator; the engine alone quantizes activations."""
        known = not self.dtypes or (operator.dtype in self.dtypes and not operator.quantizes)
        return operator.kind in self.kinds and known


def measurements() -> tuple[Measurement, ...]:
    """Return what can be measured."""
    known = packaged_yaml("nsight_prof.parsers.predict", "measurements.yaml")
    return tuple(
        Measurement(
            recipe=name,
            arguments=str(facts.get("arguments", "")),
            split=str(facts.get("split", "")),
            options=str(facts.get("options", "")),
            tier=str(facts.get("tier", "")),
            kinds=tuple(facts.get("kinds", ())),
            dtypes=tuple(facts.get("dtypes", ())),
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
        better = found.measures(item.operator) and item.tier < found.tier
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
