"""What a pair is: a program with a planted defect, the repaired one, and what is said of both."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cache
from importlib import resources

import yaml

Step = Callable[[], object]
SIDES = ("defect", "twin")


@dataclass(frozen=True)
class Plan:
    """What is planted, in words: a row of defects.yaml.

    `expects` are keys of findings, any of which names the planted cause; `measure` is "kernel"
    (the time of the kernels counts) or "wall" (the time of the stage, gaps and all).
    """

    name: str
    title: str
    defect: str
    twin: str
    expects: tuple[str, ...]
    measure: str

    def record(self) -> dict[str, object]:
        """Return the plan as JSON has it."""
        return asdict(self)


@dataclass(frozen=True)
class Pair:
    """The two programs of a plan; a call does the whole work of a stage once.

    `repeats` is how often a stage calls it.
    """

    name: str
    defect: Step
    twin: Step
    repeats: int = 5

    def side(self, side: str) -> Step:
        """Return the program of "defect" or "twin"."""
        return self.defect if side == "defect" else self.twin


@cache
def plans() -> dict[str, Plan]:
    """Return what is planted, by name, in the order of defects.yaml."""
    text = resources.files("targets.defects").joinpath("defects.yaml").read_text(encoding="utf-8")
    rows = yaml.safe_load(text)
    return {
        name: Plan(name=name, **{**row, "expects": tuple(row["expects"])})
        for name, row in rows.items()
    }
