"""The delay factor of measured sweeps: whether time oscillates over a size, and how much."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from nsight_prof.parsers.operations.delay_factor import DelayFactor, delay_factor
from nsight_prof.reports.page import Column, Evidence, Finding, Json, Number, Table, Text

NORMAL_95 = 1.96
"""Half of a 95 % interval over the standard error."""


@dataclass(frozen=True)
class Sweep:
    """Times over a size, with the strongest oscillation; `expected`: period of waves of tiles."""

    name: str
    factor: DelayFactor
    expected: float | None = None

    @property
    def amplitude(self) -> Number:
        """Its relative amplitude, of one that fades after a period, with its 95 % interval."""
        value, half = self.factor.amplitude, NORMAL_95 * self.factor.error
        return Number(value, "fraction", low=max(0.0, value - half), high=value + half)


def sweep(
    name: str,
    sizes: Sequence[float],
    times: Sequence[tuple[float, float, float]],
    expected: float | None = None,
) -> Sweep | None:
    """Return the oscillation of a sweep; None for too few sizes.

    Args:
        name: what was swept.
        sizes: rising.
        times: median and ends of its 95 % interval at each, in seconds.
        expected: period that waves of tiles would give.
    """
    seconds, low, high = np.array(times, dtype=float).T
    noise = (high - low) / 2 / NORMAL_95 / seconds
    factor = delay_factor(np.array(sizes, dtype=float), seconds, noise)
    return None if factor is None else Sweep(name, factor, expected)


def finding(sweeps: Sequence[Sweep]) -> Finding | None:
    """State the strongest oscillation that is real, or that none is; None without sweeps."""
    if not sweeps:
        return None
    real = [sweep for sweep in sweeps if sweep.factor.is_real]
    verdict = Text(
        "No oscillation of the time over sizes can be told from noise and from what a smooth "
        "roofline misses anyway."
    )
    if real:
        best = max(real, key=lambda sweep: sweep.factor.amplitude)
        verdict = Text(
            "Time oscillates over sizes: that of {name} by {amplitude} around a smooth roofline, "
            "with a period of {period}.",
            name=best.name,
            amplitude=best.amplitude,
            period=Number(best.factor.period, digits=3),
        )
    evidence = (
        Evidence(
            Text(
                "{name}: error of sizes left out {without} without it, with it",
                name=sweep.name,
                without=Number(sweep.factor.without, "fraction"),
            ),
            Number(sweep.factor.with_it, "fraction"),
        )
        for sweep in sweeps
    )
    stairs = Text("Choose sizes at the ends of periods: just before a new wave begins.")
    return Finding(
        "delay_factor",
        verdict,
        tuple(evidence),
        action=stairs if any(sweep.expected for sweep in real) else None,
        disproof=Text(
            "One cosine for each sweep; waves of tiles are steps, which the tile model follows "
            "more closely where the tile is known."
        ),
        technical=True,
    )


def table(sweeps: Sequence[Sweep]) -> Table[Sweep]:
    """Return period, amplitude and what tells each from noise."""
    return Table(
        "delay-factors",
        Text("The delay factor: oscillation of the time over sizes"),
        [
            Column(Text("Sweep"), lambda row: row.name),
            Column(Text("Period"), lambda row: Number(row.factor.period, digits=3)),
            Column(
                Text("Period of waves"),
                lambda row: None if row.expected is None else Number(row.expected, digits=3),
            ),
            Column(Text("Amplitude"), lambda row: row.amplitude),
            Column(Text("Fades"), lambda row: Text("yes") if row.factor.fades else Text("no")),
            Column(Text("Noise"), lambda row: Number(row.factor.noise, "fraction")),
            Column(Text("By chance"), lambda row: Number(row.factor.chance, "fraction")),
            Column(
                Text("Left out, smooth alone"), lambda row: Number(row.factor.without, "fraction")
            ),
            Column(Text("Left out, with it"), lambda row: Number(row.factor.with_it, "fraction")),
            Column(Text("Real"), lambda row: Text("yes") if row.factor.is_real else Text("no")),
            Column(Text("Sizes"), lambda row: row.factor.points),
        ],
        sweeps,
        note=Text(
            "Real: the amplitude lies above the noise, shuffled residuals do not explain as much "
            "(1 %), and sizes that were left out are predicted better. An amplitude that fades is "
            "that after one period."
        ),
    )


def numbers(sweeps: Sequence[Sweep]) -> list[Json]:
    """Return them for metrics.json."""
    return [
        {
            "name": sweep.name,
            "period": sweep.factor.period,
            "period_of_waves": sweep.expected,
            "amplitude": sweep.factor.amplitude,
            "amplitude_error": sweep.factor.error,
            "fades": sweep.factor.fades,
            "chance": sweep.factor.chance,
            "noise": sweep.factor.noise,
            "left_out_error_smooth": sweep.factor.without,
            "left_out_error": sweep.factor.with_it,
            "real": sweep.factor.is_real,
        }
        for sweep in sweeps
    ]
