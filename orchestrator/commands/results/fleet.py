"""`prof fleet`: how much the GPUs of one model differ, and which of them is off, and why."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from nsight_prof.orchestrator.commands import shared_options
from nsight_prof.orchestrator.terminal.say import say
from nsight_prof.parsers.errors import ProfError, UsageError

if TYPE_CHECKING:
    from nsight_prof.reports.fleet.fleet import Gpu, Model, Outlier

CAUSES = {
    "clock": "its SM clock was {clock} lower, and nothing that NVML names held it down",
    "heat": "its SM clock was {clock} lower, held down by heat (highest temperature {temperature})",
    "power": "its SM clock was {clock} lower, held down by its power limit",
    "memory": "its DRAM moves less",
    "link": "its link to the host moves less",
    "": "not known: its SM clock does not explain it",
}
NAMES = {
    "compute": "arithmetic",
    "caches": "caches",
    "memory": "DRAM",
    "link": "transfers from and to the host",
}


@click.command("fleet")
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="RUN…")
@shared_options.as_json
def command(runs: tuple[Path, ...], as_json: bool) -> None:
    """Compare the GPUs of one model by runs of one benchmark, a run for each GPU.

    Says how far the GPUs of a model are apart in arithmetic, caches, DRAM and transfers from and to
    the host, and which GPU is slower than the others by 2 % and four standard deviations, from
    three GPUs on; with the cause as far as clocks, what held them down, and the kinds of cases
    tell. A folder stands for all runs in it.

    \b
    Examples:
      CUDA_VISIBLE_DEVICES=3 prof run roofline --out runs/fleet/node-a/gpu-3
      prof run roofline --on ray --every gpu --out runs/fleet
      prof fleet runs/fleet
      prof fleet runs/fleet/*/* --json
    """
    from nsight_prof.reports.fleet.fleet import fleet

    gpus = list(_gpus(_found(runs), runs))
    if not gpus:
        raise UsageError(f"no run in {runs[0]} measured a GPU", "prof run roofline --out DIR")
    _check(sorted((gpu.uuid, gpu.run) for gpu in gpus))
    models = fleet(gpus)
    if as_json:
        shared_options.say_json([asdict(model) for model in models])
        return
    for model in models:
        _say(model)


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


def _say(model: Model) -> None:
    from nsight_prof.reports.fleet.fleet import DIFFERS, FEWEST, SPREADS

    gpus = f"{model.gpus} GPU{'s' if model.gpus != 1 else ''}"
    say(f"{model.name}: {gpus}, {model.cases} cases that all of them have")
    for kind, value in model.spread.items():
        say(f"  {NAMES[kind]}: slowest and fastest {value:.1%} apart")
    for outlier in model.outliers:
        say(f"  {_words(outlier)}")
    if model.gpus < FEWEST:
        say(f"  with {FEWEST} GPUs or more, those that are slower than the others are named")
    elif not model.outliers:
        say(
            f"  no GPU is slower than the others by {DIFFERS:.0%} and {SPREADS:g} standard "
            "deviations"
        )


def _words(outlier: Outlier) -> str:
    clock = "n/a" if outlier.clock_lower is None else f"{outlier.clock_lower:.1%}"
    hot = "n/a" if outlier.temperature_c is None else f"{outlier.temperature_c:.0f} °C"
    cause = CAUSES[outlier.cause].format(clock=clock, temperature=hot)
    what = f"{outlier.slower:.1%} slower in {NAMES[outlier.kind]}"
    return f"{outlier.uuid} ({outlier.run}) is {what}: {cause}"
