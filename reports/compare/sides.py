"""One side of a comparison: a run and its repeats, with the launches of each stage in order."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from nsight_prof.parsers.cells import from_row, number, records, text
from nsight_prof.parsers.errors import UsageError
from nsight_prof.parsers.run.directory import VARIANTS, RunDir, check_one_run, read_manifest
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.compare import settings
from nsight_prof.reports.page import Text

ALL = "(all)"
"""Stage of the tables that is the whole capture."""
MOST_STAGES = 24
"""Names of stages from which on they are no stages but ranges that a framework numbers."""
REPEAT = "target.env.REPEAT"
"""A sweep over this variable alone runs one program several times."""
VARIABLE = "env "
"""What the name of a variable of the environment begins with among settings."""
NO_UNITS = "none"
"""What --per takes for: no times per unit of work."""
Durations = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True)
class Kernel:
    """What a kernel is; the key into tables is `kernel_id`."""

    kernel_id: str
    short_name: str
    name: str
    category: str
    library: str
    grid: str
    block: str


@dataclass(frozen=True)
class Sequence:
    """Launches of one stage in order: device by device, by start; durations in ns.

    A kernel summary has no launches: there each entry is a kernel, and `summed` holds
    (calls, total ns, standard deviation ns) of each. Counters alone are summaries of one launch.
    """

    ids: tuple[str, ...]
    durations: Durations
    summed: tuple[tuple[int, float, float], ...] = ()


@dataclass(frozen=True)
class Side:
    """A run to compare, and further runs of the same program that show its noise."""

    label: str
    run: Run
    repeats: tuple[Run, ...] = ()

    @property
    def runs(self) -> tuple[Run, ...]:
        """All runs, the one that is shown first."""
        return (self.run, *self.repeats)

    @cached_property
    def kernels(self) -> Mapping[str, Kernel]:
        """Kernels of all runs by kernel_id."""
        return {
            text(row["kernel_id"]): from_row(Kernel, row)
            for run in self.runs
            for row in records(run.kernels)
        }


def open_side(label: str, path: Path, repeats: Iterable[Path] = ()) -> Side:
    """Open a run and its repeats, which have tables; a sweep over REPEAT is a run with its repeats.

    Raises:
        UsageError: a folder is no run directory, or a sweep of different programs.
        ArtifactUnreadable, SchemaTooNew: as read_manifest.
    """
    runs = [run for folder in (path, *repeats) for run in _runs(folder)]
    return Side(label, runs[0], tuple(runs[1:]))


def _runs(path: Path) -> list[Run]:
    check_one_run(path)
    run = Run(path, read_manifest(RunDir(path)))
    if not run.manifest.variants:
        return [run]
    sweep = run.manifest.recipe.get("sweep") or {}
    names = run.manifest.variants
    if set(sweep) != {REPEAT}:
        first = f"{path}/{VARIANTS}/{names[0]}"
        raise UsageError(
            f"{path} is a sweep of {len(names)} variants: {', '.join(names)}",
            f"name one of them, for example {first}; its own report compares them all",
        )
    return list(run.variants.values())


def sequences(run: Run, rename: Mapping[str, str]) -> dict[str, Sequence]:
    """Return the launches of each stage, called as `rename` says; "" is outside of stages."""
    frame = run.launches
    if frame.empty:
        return _summaries(run)
    order = frame[["device", "pid", "start_ns"]].fillna(0)
    frame = frame.loc[order.sort_values(["device", "pid", "start_ns"], kind="stable").index]
    stage = frame["stage"].astype("string").fillna("").map(lambda s: rename.get(s, s))
    found = {}
    for name, group in frame.groupby(stage, sort=False):
        durations = group["duration_ns"].to_numpy(dtype=float)
        found[str(name)] = Sequence(tuple(group["kernel_id"].astype(str)), durations)
    return found


def _summaries(run: Run) -> dict[str, Sequence]:
    """Return a kernel summary, or without any trace the launches that ncu measured."""
    rows = [row for row in records(run.kernels) if number(row["total_ns"]) > 0]
    if rows:
        kinds = [(int(r["calls"]), number(r["total_ns"]), number(r["std_ns"])) for r in rows]
    else:
        rows = [row for row in records(run.counters) if number(row["duration_ns"]) > 0]
        kinds = [(1, number(r["duration_ns"]), math.nan) for r in rows]
    if not rows:
        return {}
    means = np.array([total / calls for calls, total, _ in kinds])
    return {"": Sequence(tuple(text(r["kernel_id"]) for r in rows), means, tuple(kinds))}


def stage_names(a: Side, b: Side) -> tuple[dict[str, str], Text | None]:
    """Return new names of stages that let both sides match, and the reason; none where all match.

    Ranges that a framework numbers (`step 17`) are one stage; where no stage is on both sides,
    stages are left aside.
    """
    of_a, of_b = (_stages(side.runs) for side in (a, b))
    every = of_a | of_b
    if not every or (len(every) <= MOST_STAGES and of_a & of_b):
        return {}, None
    rename = {name: _without_number(name) for name in every}
    same = {rename[name] for name in of_a} & {rename[name] for name in of_b}
    if same and len(set(rename.values())) <= MOST_STAGES:
        return rename, Text("Stages whose names differ only in a number count as one stage.")
    return (
        dict.fromkeys(every, ""),
        Text("The runs share no stages, or have too many: kernels are matched without stages."),
    )


def _without_number(name: str) -> str:
    groups = groupby(name, str.isdigit)
    return "".join("*" if is_number else "".join(group) for is_number, group in groups)


def _stages(runs: Iterable[Run]) -> set[str]:
    frames = [run.stages["stage"] for run in runs if not run.stages.empty]
    if not frames:
        return set()
    return {str(name) for name in pd.concat(frames).dropna()} - {ALL}


def units(side: Side, expression: str) -> float:
    """Return the units of work of a run: an argument of its program, or a product (`batch*steps`).

    Raises:
        UsageError: the program was not given that argument, or it is no positive number.
    """
    given = arguments(side.run)
    product = 1.0
    for name in map(str.strip, expression.split("*")):
        found = amount(given.get(name))
        if found is None:
            known = [key for key, value in given.items() if amount(value) is not None]
            raise UsageError(
                f"--per {expression}: {side.label} has no number for the argument {name}",
                f"numbers among its arguments: {', '.join(known) or 'none'}",
            )
        product *= found
    return product


def counted_units(runs: Iterable[Run]) -> str:
    """Return the arguments that differ and count units of work, as --per takes them, or ""."""
    given = [arguments(run) for run in runs]
    names = [name for name in settings("work") if all(amount(of.get(name)) for of in given)]
    return "*".join(name for name in names if len({amount(of[name]) for of in given}) > 1)


def unit_of(expression: str) -> str:
    """Return what a unit of work of --per is called."""
    return str(settings("work").get(expression, expression))


def amount(value: Any) -> float | None:
    """Return the positive number that an argument is, as a number or as text; None for others."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        found = float(value)
    except ValueError:
        return None
    return found if 0 < found < math.inf else None


def arguments(run: Run) -> dict[str, Any]:
    """Return the arguments of the program that was traced: those of the step go before."""
    recipe = run.manifest.recipe
    target, trace = (recipe.get(key) or {} for key in ("target", "trace"))
    return {**mapping(target.get("args")), **mapping(trace.get("args"))}


def mapping(value: Any) -> dict[str, Any]:
    """Return arguments as a mapping; a list of words is one argument."""
    if isinstance(value, dict):
        return {str(key): inner for key, inner in value.items()}
    return {"args": value} if value else {}
