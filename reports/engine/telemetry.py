"""Section of the GPU beside the program: power, clocks, temperature and throttling by step."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from nsight_prof.parsers.cells import text
from nsight_prof.parsers.run.run import Run
from nsight_prof.parsers.serving.engine import held_by
from nsight_prof.reports.page import (
    Column,
    Figure,
    Json,
    Number,
    Ref,
    Section,
    Table,
    Text,
    Value,
    Verbatim,
)
from nsight_prof.reports.serving.timeline import step_timeline

KEY, TITLE = "telemetry", Text("Power, clock and temperature of the GPU")
INTRO = Text(
    "NVML was asked beside each step, also while the program loaded; power is a mean over about a "
    "second on recent GPUs."
)
_COLUMNS = (
    ("power_w", "mean", Text("Power, mean"), "W"),
    ("power_w", "max", Text("Power, highest"), "W"),
    ("sm_clock_hz", "min", Text("SM clock, lowest"), "Hz"),
    ("sm_clock_hz", "max", Text("SM clock, highest"), "Hz"),
    ("temperature_c", "max", Text("Temperature, highest"), "°C"),
    ("memory_used_bytes", "max", Text("Memory, highest"), "B"),
)
_UNITS = (
    ("sm_active_pct", "mean", Text("SMs active, mean"), "%"),
    ("sm_active_pct", "max", Text("SMs active, highest"), "%"),
    ("sm_occupancy_pct", "mean", Text("Warps of the most, mean"), "%"),
    ("tensor_active_pct", "mean", Text("Tensor Cores active, mean"), "%"),
    ("tensor_active_pct", "max", Text("Tensor Cores active, highest"), "%"),
    ("dram_active_pct", "mean", Text("DRAM active, mean"), "%"),
    ("dram_active_pct", "max", Text("DRAM active, highest"), "%"),
)


def section(run: Run) -> Section | None:
    """Return the section; None where nothing was sampled beside the steps."""
    samples = run.telemetry[run.telemetry["source"] != "bench"]
    if samples.empty or not run.serving_points.empty:
        return None
    groups = [
        (str(rows["source"].iloc[0]), int(rows["device"].iloc[0]), rows)
        for _, rows in samples.groupby(["source", "device"], sort=False)
    ]
    numbers = {"telemetry": _numbers(groups, _COLUMNS)}
    units = [group for group in groups if group[2]["sm_active_pct"].notna().any()]
    if units:
        numbers["units"] = _numbers(units, _UNITS)
    steps = [group[0] for group in groups]
    figure = step_timeline(run, "trace" if "trace" in steps else steps[0])
    drawn = () if figure is None else (Figure(figure),)
    blocks = (
        INTRO,
        *drawn,
        _table(groups),
        *([_units_table(units)] if units else ()),
        *_reasons(groups),
    )
    return Section(KEY, TITLE, blocks, numbers=numbers)


Group = tuple[str, int, pd.DataFrame]


def _value(group: Group, column: str, statistic: str, unit: str) -> Number:
    step, _, rows = group
    found = rows[column].agg(statistic)
    return Number(None if pd.isna(found) else float(found), unit, (Ref("telemetry", step, column),))


def _throttling(rows: pd.DataFrame) -> Value:
    """During how many samples something limited the clocks, and what."""
    reasons = [text(cell) for cell in rows["throttle"]]
    limited = [names for cell in reasons if (names := held_by(cell))]
    if rows["throttle"].isna().all():
        return Text("not known")
    if not limited:
        return Text("nothing")
    return Text(
        "{reasons}, in {share} of the samples",
        reasons=[n.replace("_", " ") for n in dict.fromkeys(n for names in limited for n in names)],
        share=Number(len(limited) / len(rows), "fraction"),
    )


def _table(groups: Sequence[Group]) -> Table[Group]:
    return Table(
        KEY,
        Text("Telemetry (NVML) of each step"),
        [
            Column(Text("Step"), lambda group: Verbatim(group[0])),
            Column(Text("GPU"), lambda group: Number(group[1], "count")),
            Column(Text("Samples"), lambda group: Number(len(group[2]), "count")),
            *(_column(*column) for column in _COLUMNS),
            Column(Text("Clocks held down by"), lambda group: _throttling(group[2])),
        ],
        groups,
    )


def _units_table(groups: Sequence[Group]) -> Table[Group]:
    return Table(
        "units",
        Text("How busy the units of the GPU were during each step"),
        [
            Column(Text("Step"), lambda group: Verbatim(group[0])),
            Column(Text("GPU"), lambda group: Number(group[1], "count")),
            *(_column(*column) for column in _UNITS),
        ],
        groups,
        note=Text(
            "By NVML's performance monitoring (GPM), over the time between two samples, also while "
            "the program loaded: what ran for shorter is averaged with what was idle."
        ),
    )


def _reasons(groups: Sequence[Group]) -> list[Text]:
    """Why steps lack the units, where that was asked."""
    found: dict[str, list[str]] = {}
    for step, _, rows in groups:
        if rows["sm_active_pct"].isna().all():
            for reason in filter(None, rows["gpm_problem"].dropna().unique().tolist()):
                if step not in found.setdefault(reason, []):
                    found[reason].append(step)
    return [
        Text(
            "How busy the units were is not available for {steps}: {reason}.",
            steps=[Verbatim(step) for step in steps],
            reason=Verbatim(reason),
        )
        for reason, steps in found.items()
    ]


def _column(name: str, statistic: str, heading: Text, unit: str) -> Column[Group]:
    return Column(heading, lambda group: _value(group, name, statistic, unit))


def _numbers(groups: Sequence[Group], columns: Sequence[tuple[str, str, Text, str]]) -> list[Json]:
    return [
        {"step": group[0], "gpu": group[1], "samples": len(group[2])}
        | {
            f"{column}_{how}": _value(group, column, how, unit).value
            for column, how, _, unit in columns
        }
        for group in groups
    ]
