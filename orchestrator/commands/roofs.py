"""`prof roofs`: shows the measured roofs that are known, of this GPU and of others."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nsight_prof.orchestrator.commands import shared_options
from nsight_prof.orchestrator.terminal.say import say
from nsight_prof.orchestrator.terminal.suggesting import SuggestingGroup

if TYPE_CHECKING:
    from nsight_prof.orchestrator.roofs.cache import Cached


@click.group("roofs", cls=SuggestingGroup, invoke_without_command=True)
@click.pass_context
def command(context: click.Context) -> None:
    """Show the measured roofs: what a GPU can really do.

    Each says when and how it was measured: by `prof run roofline`. They are kept by GPU, driver,
    clocks and power limit, and the reports of later runs on such a GPU use them. Without a
    subcommand: `prof roofs show`.

    \b
    Examples:
      prof roofs
      prof roofs list
      prof roofs show runs/roofline
    """
    if context.invoked_subcommand is None:
        context.invoke(show)


@command.command("list", short_help="List the roofs in the cache.")
@shared_options.as_json
def list_roofs(as_json: bool) -> None:
    """List the roofs in the cache: of which GPU, under which driver, and when measured.

    \b
    Examples:
      prof roofs list
      prof roofs list --json
    """
    from nsight_prof.orchestrator.roofs.cache import MEASURE, cached, folder

    found, unreadable = cached()
    for problem in unreadable:
        say(f"warning: {problem}", err=True)
    if as_json:
        shared_options.say_json([_facts(cached_file) for cached_file in found])
    elif not found:
        say(f"no roofs in {folder()}; measure them: {MEASURE}")
    else:
        _table(found)


@command.command("show", short_help="Print the roofs of this GPU, of a file or of a run.")
@click.argument("source", required=False, metavar="[FILE|RUN]", type=click.Path(path_type=Path))
@shared_options.as_json
def show(source: Path | None, as_json: bool) -> None:
    """Print measured roofs with how each was measured, and the ridge points.

    With --json in base units.

    Of a file of roofs or of a run that has one; by default those in the cache that hold for this
    machine's GPU, or the only ones there are. `*` marks the roofs that a report's roofline uses.

    \b
    Examples:
      prof roofs show
      prof roofs show runs/roofline
      prof roofs show --json
    """
    from nsight_prof.orchestrator.roofs.view import as_data, render
    from nsight_prof.parsers.roofs.file import read_roofs

    path, note = _given(source) if source is not None else _of_this_machine()
    roofs = read_roofs(path)
    if as_json:
        shared_options.say_json({"file": str(path), "note": note, **as_data(roofs)})
        return
    if note:
        say(f"note: {note}", err=True)
    render(roofs, path)


def _given(source: Path) -> tuple[Path, str]:
    from nsight_prof.orchestrator.run.roofs_of_run import given_file

    return given_file(source), ""


def _of_this_machine() -> tuple[Path, str]:
    """Return the roofs of this machine's first GPU, else the only ones there are."""
    from nsight_prof.orchestrator.roofs.cache import MEASURE, cached, find, folder
    from nsight_prof.orchestrator.system.environment import read_gpus
    from nsight_prof.parsers.errors import UsageError
    from nsight_prof.parsers.roofs.file import gpu_facts

    here = read_gpus()
    if here.gpus:
        found, others = find(gpu_facts(here.gpus[0], here.driver))
        if found is not None:
            return found.path, found.match.reason
        if others:
            return others[0].path, f"they do not hold for this GPU now: {others[0].match.reason}"
    known, _ = cached()
    if len(known) == 1:
        return known[0].path, f"they are of {known[0].roofs.gpu['name']}, the only ones there are"
    have = f"{len(known)} files are in {folder()}" if known else f"nothing is in {folder()}"
    reason = "no measured roofs of this GPU" if here.gpus else "this machine shows no GPU"
    raise UsageError(
        f"{reason}, and {have}",
        "name a file or a run: prof roofs show FILE (prof roofs list names them)"
        if known
        else f"measure them: {MEASURE}; or show those of a recorded run: prof roofs show RUN",
    )


def _facts(cached_file: Cached) -> dict[str, Any]:
    gpu = {key: cached_file.roofs.gpu.get(key) for key in cached_file.roofs.gpu}
    return {
        "file": str(cached_file.path),
        "measured": cached_file.roofs.measured,
        "run": cached_file.roofs.run_id,
        "roofs": len(cached_file.roofs.roofs),
        "gpu": gpu,
    }


def _table(found: list[Cached]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from nsight_prof.orchestrator.roofs.view import console
    from nsight_prof.reports.page import formats

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for heading in ("GPU", "UUID", "driver", "SM clock", "power", "measured", "roofs", "run"):
        table.add_column(heading, overflow="fold")
    for cached_file in found:
        gpu = cached_file.roofs.gpu
        table.add_row(
            str(gpu["name"]),
            str(gpu["uuid"] or "n/a"),
            str(gpu["driver"] or "n/a"),
            formats.clock(gpu["max_sm_clock_hz"]),
            formats.quantity(gpu["power_limit_w"], "W"),
            cached_file.roofs.measured,
            str(len(cached_file.roofs.roofs)),
            cached_file.roofs.run_id,
        )
    console().print(table)
    for cached_file in found:
        say(str(cached_file.path))
