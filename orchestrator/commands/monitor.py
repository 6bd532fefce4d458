"""`prof monitor`: shows or writes what the GPUs do, without a program."""

from __future__ import annotations

import csv
import threading
from pathlib import Path
from typing import Any

import click

from nsight_prof.orchestrator.commands import shared_options
from nsight_prof.orchestrator.terminal.numbers import Finite
from nsight_prof.orchestrator.terminal.say import say

HEAD = (
    "GPU   power W   SM MHz   memory MHz   temperature C   GPU %   memory GB   SM %   tensor %   "
    "DRAM %   clocks held by"
)


@click.command("monitor")
@click.option(
    "--csv",
    "target",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write the samples as CSV to this file, in base units.",
)
@click.option(
    "--interval",
    type=Finite(min=0.02),
    default=1.0,
    show_default=True,
    help="Seconds between samples.",
)
@click.option(
    "--duration",
    type=Finite(min=0, min_open=True),
    help="Seconds until it ends. Default: until Ctrl-C.",
)
@shared_options.quiet("nothing; for use with --csv")
@shared_options.as_json
def command(
    target: Path | None, interval: float, duration: float | None, as_json: bool, quiet: bool
) -> None:
    """Show power, clocks, temperature, memory, load and throttling of all GPUs.

    By NVML, or by nvidia-smi where NVML cannot be asked; SM, tensor and DRAM are the shares of time
    in which these worked, by NVML's GPM on Hopper and newer GPUs (- elsewhere; --json and --csv say
    why). `prof run` samples the same beside each step that starts the program. --json prints a JSON
    object for each sample, one per line.

    \b
    Examples:
      prof monitor
      prof monitor --interval 0.1 --duration 30 --csv gpu.csv --quiet
      prof monitor --json --duration 5
    """
    import json

    from nsight_prof.orchestrator.system.monitor import FIELDS, as_cells, open_source, samples
    from nsight_prof.parsers.whole_file import written_whole

    source = open_source()

    def show(rows: list[dict[str, Any]]) -> None:
        for row in rows if not quiet else ():
            say(json.dumps(row) if as_json else _line(row))

    if not quiet and not as_json:
        say(HEAD)
    found: list[dict[str, Any]] = []
    try:
        for rows in samples(source, interval, threading.Event(), duration):
            show(rows)
            found += rows if target is not None else []
    except KeyboardInterrupt:
        if target is None:
            raise
    if target is not None:
        with written_whole(target) as partial, partial.open("w", encoding="utf-8") as stream:
            writer = csv.writer(stream)
            writer.writerow(FIELDS)
            writer.writerows(as_cells(row) for row in found)


def _line(row: dict[str, Any]) -> str:
    def cell(name: str, factor: float, width: int, digits: int = 0) -> str:
        value = row[name]
        return f"{'-' if value is None else f'{value * factor:.{digits}f}':>{width}}"

    cells = (
        f"{row['device']:>3}",
        cell("power_w", 1, 9, 1),
        cell("sm_clock_hz", 1e-6, 8),
        cell("memory_clock_hz", 1e-6, 12),
        cell("temperature_c", 1, 15),
        cell("gpu_util_pct", 1, 7),
        cell("memory_used_bytes", 1e-9, 11, 2),
        cell("sm_active_pct", 1, 6),
        cell("tensor_active_pct", 1, 10),
        cell("dram_active_pct", 1, 8),
    )
    return " ".join(cells) + f"   {row['throttle'] or ''}"
