"""Draws measured roofs for `prof roofs show`: a table of them, and the ridge points."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pandas as pd
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from nsight_prof.orchestrator.terminal.console import make_console
from nsight_prof.parsers.roofs.confirm import verdict_name
from nsight_prof.parsers.roofs.file import RoofsFile
from nsight_prof.parsers.roofs.roofs import Measured, build_roofs, ridge_points
from nsight_prof.parsers.tables import empty
from nsight_prof.reports.page import formats

PIPE_WIDTH = 140  # columns where stdout is no terminal
PER_CLOCK = {"B/s": "B", "FLOP/s": "FLOP"}
ORDER = ("dram", "l2", "l1", "shared", "fp64", "fp32", "fp16", "tensor", "host")


def console() -> Console:
    """Return a console for stdout that keeps whole lines where stdout is no terminal."""
    return make_console(PIPE_WIDTH)


def ridges(file: RoofsFile) -> pd.DataFrame:
    """Return table `ridge_points` of the roofs of a file."""
    measured = Measured(file.roofs, file.measured, file.run_id)
    return ridge_points(build_roofs(empty("gpus"), empty("metrics"), measured))


def as_data(file: RoofsFile) -> dict[str, Any]:
    """Return roofs and ridge points as plain data in base units; what is unknown is null."""
    return {
        "measured": file.measured,
        "run": file.run_id,
        "gpu": dict(file.gpu),
        "roofs": _rows(file.roofs),
        "ridge_points": _rows(ridges(file)),
    }


def render(file: RoofsFile, path: Path) -> None:
    """Print the roofs of a file to stdout."""
    gpu, out = file.gpu, console()
    facts = [
        str(gpu["name"] or "GPU unknown"),
        str(gpu["uuid"] or "UUID unknown"),
        f"driver {gpu['driver'] or 'unknown'}",
        f"SM clock up to {formats.clock(gpu['max_sm_clock_hz'])}",
        f"power limit {formats.quantity(gpu['power_limit_w'], 'W')}",
    ]
    out.print(", ".join(facts), markup=False, soft_wrap=True)
    origin = f"measured {file.measured} by run {file.run_id}; {path}"
    out.print(origin, markup=False, soft_wrap=True)
    out.print(_roofs_table(file.roofs))
    _print_reasons(file.roofs, out)
    points = ridges(file)
    if len(points):
        out.print("ridge points: from this intensity on the pipe limits, not the level")
        out.print(_ridge_table(points))


def _roofs_table(roofs: pd.DataFrame) -> Table:
    repeated = bool((roofs["repeats"] > 1).any())
    right = ("value", "per clk, SM", *(["repeats to"] if repeated else []))
    table = Table(box=SIMPLE_HEAD, pad_edge=False, caption=CAPTION if len(roofs) else None)
    table.caption_justify = "left"
    for heading in ("  roof", *right, "confirmed", "case"):
        table.add_column(
            heading,
            justify="right" if heading in right else "left",
            overflow="fold",
            no_wrap=heading != "case",
        )
    position = {key: number for number, key in enumerate(ORDER)}
    rows = [row for row in roofs.to_dict("records") if row["unit"] != "cycles"]
    for row in sorted(rows, key=lambda row: position.get(str(row["level_or_pipe"]), len(position))):
        table.add_row(
            ("* " if _is(row["is_ceiling"], True) else "  ") + _name(row),
            _value(row["value"], str(row["unit"])),
            _per_clock(row),
            *([formats.share(row["repeatability"])] if repeated else []),
            _confirmed(row["accepted"]),
            _text(row["case_id"]).partition("|")[0],
        )
    return table


CAPTION = "* the roof that later reports use; confirmed: counters saw the probe load that part"


def _name(row: dict[Any, Any]) -> str:
    """Return level or pipe, type and kind; the type of a pipe of one type is its name."""
    key, dtype = str(row["level_or_pipe"]), _text(row["dtype"])
    return " ".join(word for word in (key, dtype if dtype != key else "", row["kind"]) if word)


def _print_reasons(roofs: pd.DataFrame, out: Console) -> None:
    """Print why roofs were rejected or could not be judged, once a reason."""
    doubtful = roofs[~roofs["accepted"].fillna(False).astype(bool) & roofs["reason"].notna()]
    verdicts = doubtful["accepted"].map(verdict_name)
    for reason, rows in doubtful.groupby(verdicts + ": " + doubtful["reason"], sort=False):
        names = ", ".join(dict.fromkeys(_name(row) for row in rows.to_dict("records")))
        out.print(f"{names}: {reason}", markup=False)
    if len(doubtful):
        out.print()


def _ridge_table(points: pd.DataFrame) -> Table:
    levels = list(dict.fromkeys(points["level"]))
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("FLOP/B")
    for level in levels:
        table.add_column(level, justify="right")
    for (pipe, dtype), rows in points.groupby(["pipe", "dtype"], sort=False, dropna=False):
        by_level = dict(zip(rows["level"], rows["intensity"], strict=True))
        values = [formats.significant(by_level.get(level)) for level in levels]
        name = f"{pipe} {_text(dtype)}".strip() if pipe != dtype else str(pipe)
        table.add_row(name, *values)
    return table


def _value(value: Any, unit: str) -> str:
    return formats.seconds(value) if unit == "s" else formats.quantity(value, unit)


def _per_clock(row: dict[Any, Any]) -> str:
    if pd.isna(row["per_clock_sm"]):
        return ""
    return f"{formats.significant(row['per_clock_sm'])} {PER_CLOCK.get(str(row['unit']), '')}"


def _confirmed(accepted: Any) -> str:
    if accepted is None or pd.isna(accepted):
        return "not told"
    return "yes" if accepted else "NO"


def _is(value: Any, wanted: bool) -> bool:
    return not pd.isna(value) and bool(value) is wanted


def _text(value: Any) -> str:
    return "" if value is None or pd.isna(value) else str(value)


def _rows(frame: pd.DataFrame) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(frame.to_json(orient="records", double_precision=15))
    return [
        {key: None if isinstance(v, float) and not math.isfinite(v) else v for key, v in r.items()}
        for r in rows
    ]
