"""What a pair is: a program with a planted defect, the repaired one, and what is said of both."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cache
from importlib import resources
from typing import Any

import yaml

Step = Callable[[], object]
SIDES = ("defect", "twin")
SETS = {"first": "defects.yaml", "second": "second.yaml", "third": "third.yaml"}
"""What each set plants, by file; all have the same kinds of defects, in other programs."""


class Mismatch(RuntimeError):
    """Defect and twin of a pair have not computed the same; the text names the pair."""


@dataclass(frozen=True)
class Plan:
    """What is planted, in words: a row of a file of SETS.

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

    `repeats` is how often a stage calls it. `results` returns the tensors that the two programs
    have written (views of equal shape); they may differ by `tolerance` x the largest value of the
    twin's.
    """

    name: str
    defect: Step
    twin: Step
    repeats: int = 5
    results: Callable[[], tuple[Any, Any]] | None = None
    tolerance: float = 0.0

    def side(self, side: str) -> Step:
        """Return the program of "defect" or "twin"."""
        return self.defect if side == "defect" else self.twin

    def compare(self) -> None:
        """Compare what the two programs wrote, each called as often as the other.

        Raises:
            Mismatch: they differ by more than the tolerance, or are not finite, or all zero.
        """
        if self.results is None:
            return
        found, wanted = self.results()
        if found.shape != wanted.shape:
            raise Mismatch(f"{self.name}: shapes {tuple(found.shape)} and {tuple(wanted.shape)}")
        scale = float(wanted.abs().max())
        if not 0 < scale < math.inf:  # NaN, too
            raise Mismatch(f"{self.name}: the largest value of the twin is {scale}")
        if bool((found == wanted).all()):
            return
        worst = float((found.double() - wanted.double()).abs().max())
        if not worst <= self.tolerance * scale:
            raise Mismatch(
                f"{self.name}: defect and twin differ by {worst:.3g} where the largest value is "
                f"{scale:.3g} and {self.tolerance:g} of it is allowed"
            )


@cache
def plans(which: str = "first") -> dict[str, Plan]:
    """Return what a set plants, by name, in the order of its file (see SETS)."""
    text = resources.files(__package__).joinpath(SETS[which]).read_text(encoding="utf-8")
    rows = yaml.safe_load(text)
    return {
        name: Plan(name=name, **{**row, "expects": tuple(row["expects"])})
        for name, row in rows.items()
    }
