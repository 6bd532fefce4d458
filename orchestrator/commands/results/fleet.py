"""`prof fleet`: how much the GPUs of one model differ, and which of them is off, and why."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from nsight_prof.orchestrator.commands import shared_options
from nsight_prof.orchestrator.terminal.say import say
from nsight_prof.parsers.errors import ProfError, UsageError

if TYPE_CHECKING:
    from nsight_prof.reports.fleet.fleet import Gpu


@click.command("fleet")
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="RUN…")
@shared_options.as_json
@shared_options.page(("md", "html"), "html: one file, with the picture.")
def command(
    runs: tuple[Path, ...], as_json: bool, style: str, language: str, output: Path | None
) -> None:
    """Compare the GPUs of one model by runs of one benchmark, a run for each GPU.

    Says how far the GPUs of a model are apart in arithmetic, caches, DRAM, transfers from and to
    the host and requests to an engine, and which GPU is slower than the others by 2 % and four
    standard deviations, from three GPUs on; with the cause as far as clocks, what held them down,
    and the kinds of cases tell, and what to check. A folder stands for all runs in it.

    \b
    Examples:
      CUDA_VISIBLE_DEVICES=3 prof run roofline --out runs/fleet/node-a/gpu-3
      prof run roofline --on ray --every gpu --out runs/fleet
      prof fleet runs/fleet
      prof fleet runs/fleet --format html -o fleet.html
      prof fleet runs/fleet/*/* --json
    """
    from nsight_prof.reports.fleet.fleet import fleet
    from nsight_prof.reports.fleet.section import html, markdown

    gpus = list(_gpus(_found(runs), runs))
    if not gpus:
        raise UsageError(f"no run in {runs[0]} measured a GPU", "prof run roofline --out DIR")
    _check(sorted((gpu.uuid, gpu.run) for gpu in gpus))
    models = fleet(gpus)
    if as_json:
        shared_options.say_json([asdict(model) for model in models])
        return
    write = html if style == "html" else markdown
    shared_options.say_page(partial(write, models, language), style, output, "fleet")


def _gpus(found: list[Path], given: tuple[Path, ...]) -> Iterator[Gpu]:
    """Yield the GPU of each run; of those in a folder, one that was cut off is left out by name."""
    from nsight_prof.orchestrator.report.run_tables import load_one_run
    from nsight_prof.reports.fleet.fleet import gpu_of

    for path in found:
        try:
            yield gpu_of(load_one_run(path, "compare", refresh=True), str(path))
        except ProfError as error:
            if path in given:
                raise
            say(f"warning: left out: {error.message}", err=True)


def _found(runs: tuple[Path, ...]) -> list[Path]:
    from nsight_prof.parsers.run.directory import MANIFEST

    found: list[Path] = []
    for path in runs:
        if (path / MANIFEST).is_file() or not path.is_dir():
            found.append(path)
        else:
            found += sorted(file.parent for file in path.rglob(MANIFEST))
    if not found:
        raise UsageError(f"{runs[0]} holds no run", "measure each GPU: prof run roofline --out DIR")
    return found


def _check(uuids: list[tuple[str, str]]) -> None:
    for (first, run), (second, again) in zip(uuids, uuids[1:], strict=False):
        if first == second:
            raise UsageError(
                f"{run} and {again} are of the same GPU ({first})", "give one run for each GPU"
            )
