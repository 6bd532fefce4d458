"""How fast the hosts of recorded runs were, and how much faster the one that will serve is."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from nsight_prof.parsers.cells import records
from nsight_prof.parsers.errors import UsageError
from nsight_prof.parsers.packaged import packaged_yaml
from nsight_prof.parsers.predict.costs import Note, note
from nsight_prof.parsers.predict.serving import ENGINE_TIMES, SERVER_TIMES, TRACE_TIMES, Host

AS_MEASURED = "as-measured"
"""What is given for a host that is as fast as those of the runs."""
FEWEST = 2
SPREAD = (5, 95)
"""Percentiles of recorded hosts that bound one that is not known."""


@dataclass(frozen=True)
class HostSpeed:
    """How long a fixed loop of Python takes a host, in s (table `host_speed`); NaN: as measured.

    `engine_s`: the same on the thread of an engine (table `host_loops`), NaN where none timed it.
    `python` and `clock`: what ran and timed it; empty: not known, taken to be those of the runs.
    """

    loop_s: float = math.nan
    python: str = ""
    name: str = AS_MEASURED
    clock: str = ""
    engine_s: float = math.nan

    @property
    def words(self) -> str:
        """The loop's time as a sentence has it."""
        return f"{1e6 * self.loop_s:.0f} µs"

    def times(self, recorded: HostSpeed, *, engine: bool) -> float:
        """Return how many times as long this host takes as a recorded one; NaN: not comparable.

        An `engine` is held against an engine where both timed their own thread: a core that waits
        for a GPU is slower than one that does not, and than one that is idle but for the loop.
        """
        if self.clock and recorded.clock not in ("", self.clock):
            return math.nan
        of_engine = self.engine_s / recorded.engine_s
        return of_engine if engine and math.isfinite(of_engine) else self.loop_s / recorded.loop_s


def recorded_speed(table: pd.DataFrame, loops: pd.DataFrame, name: str) -> HostSpeed | None:
    """Return how long the loop took beside the programs of a run, on average.

    None: nobody timed it. A machine of one core was timed before and after alone.

    Args:
        table: `host_speed` of the run.
        loops: `host_loops` of the run.
        name: of the run.
    """
    rows = records(table)
    rows = [row for row in rows if row["phase"] == "during"] or rows
    if not rows:
        return None
    counts = [float(row["loops"]) for row in rows]
    mean = float(np.average([float(row["mean_s"]) for row in rows], weights=counts))
    engine_s = float(loops["loop_s"].mean())
    return HostSpeed(mean, str(rows[0]["python"]), name, str(rows[0]["clock"]), engine_s)


def given_speed(given: str, recorded: HostSpeed | None) -> HostSpeed:
    """Return the host that was asked for: a time in microseconds, or that of a run.

    Args:
        given: what --host-speed says.
        recorded: how fast the host was of the run that it names; None: it names none, or it is not
            known.

    Raises:
        UsageError: it is neither, or nobody timed the host of the run.
    """
    if given == AS_MEASURED:
        return HostSpeed()
    if recorded is not None:
        return recorded
    if is_run(given):
        raise UsageError(
            f"{given} does not tell how fast its host was: it was recorded before prof timed "
            "hosts, or has no step that started a program",
            "record a run there once more (any recipe), or give the time in microseconds",
        )
    try:
        loop_s = float(given.removesuffix("us")) / 1e6
    except ValueError:
        loop_s = math.nan
    if not 1e-6 <= loop_s <= 1e-2:
        raise UsageError(
            f"--host-speed {given} is no run and no time in microseconds from 1 to 10,000",
            "give what table host_speed of a run on that machine has as mean_s, such as 105, "
            f"the run itself, or {AS_MEASURED}",
        )
    return HostSpeed(loop_s, "", given)


def is_run(given: str) -> bool:
    """Tell whether what was given names a folder."""
    return given not in ("", AS_MEASURED) and Path(given).is_dir()


Speeds = Mapping[str, HostSpeed | None]
"""Hosts of runs by their names; None: nobody timed it."""


@dataclass(frozen=True)
class Origins:
    """Runs that tell what the host needs: of an engine, of a server's loop, and under nsys."""

    engine: Speeds
    server: Speeds
    trace: Speeds

    @property
    def all_runs(self) -> Speeds:
        """The hosts of all of them."""
        return {**self.engine, **self.server, **self.trace}


def at_speed(host: Host, wanted: HostSpeed | None, origins: Origins) -> tuple[Host, list[Note]]:
    """Return what a host of the speed `wanted` needs, and what is to be said of it.

    Each time is scaled by how long the loop took beside the run that it is from; where nobody timed
    that, it stays as it is.
    """
    speeds, notes = origins.all_runs, []
    if speeds:
        words = {name: "–" if speed is None else speed.words for name, speed in speeds.items()}
        listed = ", ".join(f"{name} ({time})" for name, time in sorted(words.items()))
        notes.append(note("host-speed", runs=listed))
    if wanted is None or math.isnan(wanted.loop_s):
        return host, notes
    pythons = sorted({speed.python for speed in speeds.values() if speed is not None})
    versions = ", ".join(pythons) or "–"
    notes.append(
        note("host-speed-asked", time=wanted.words, own=wanted.python or versions, other=versions)
    )
    times: dict[str, float] = {}
    for names, runs in (
        (ENGINE_TIMES, origins.engine),
        (SERVER_TIMES, origins.server),
        (TRACE_TIMES, origins.trace),
    ):
        known = (speed for speed in runs.values() if speed is not None)
        found = [wanted.times(speed, engine=names is ENGINE_TIMES) for speed in known]
        if comparable := [factor for factor in found if math.isfinite(factor)]:
            times |= dict.fromkeys(names, float(np.mean(comparable)))
    return host.scaled(times), notes


def spread() -> tuple[float, float] | None:
    """Return how many times the median of recorded hosts the fast and slow ones take.

    Those by one clock are held against each other. None: too few were timed.
    """
    by_clock = packaged_yaml("nsight_prof.parsers.predict", "host_speeds.yaml")
    found = [np.array(list(runs.values())) for runs in by_clock.values()]
    if sum(map(len, found)) < FEWEST:
        return None
    low, high = np.percentile(np.concatenate([of / np.median(of) for of in found]), SPREAD)
    return float(low), float(high)
