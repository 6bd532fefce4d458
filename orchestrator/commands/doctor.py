"""`prof doctor`: prints what this machine has and lacks for profiling, with the remedies."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from nsight_prof.orchestrator.commands import shared_options

if TYPE_CHECKING:
    from nsight_prof.orchestrator.run.doctor import Check

COLOURS = {"ok": "green", "warning": "yellow", "missing": "red"}
MISSING = 3
IMPORT = "prof import trace.sqlite counters.ncu-rep --out runs/mine && prof report runs/mine"


@click.command("doctor")
@shared_options.as_json
@shared_options.quiet("only what is missing")
@click.option(
    "--target-python",
    metavar="PYTHON",
    help="Interpreter of the target, which has to have torch; prof's own by default.",
)
def command(as_json: bool, quiet: bool, target_python: str | None) -> None:
    """Say whether this machine can profile, what is missing, and the remedy.

    Looks for a GPU and its driver, nsys and ncu (also the nsys inside Nsight Compute's folder), the
    permission to read hardware counters, measured roofs, torch for the bundled targets, and room on
    the disk. Exit code 0: it can profile; 3: something is missing.

    \b
    Examples:
      prof doctor
      prof doctor --target-python /opt/torch/bin/python
      prof doctor --json
    """
    from nsight_prof.orchestrator.run.doctor import examine

    checks = examine(target_python)
    if as_json:
        import dataclasses

        shared_options.say_json([dataclasses.asdict(check) for check in checks])
    else:
        _show(checks, quiet)
    missing = any(check.state == "missing" for check in checks)
    click.get_current_context().exit(MISSING if missing else 0)


def _show(checks: list[Check], quiet: bool) -> None:
    from rich.markup import escape

    from nsight_prof.orchestrator.terminal.console import make_console

    console = make_console()
    width = max(len(check.name) for check in checks)
    for check in checks:
        if quiet and check.state != "missing":
            continue
        state = f"[{COLOURS[check.state]}]{check.state:7}[/]"
        console.print(f"{state}  {check.name:{width}}  {escape(check.detail)}", soft_wrap=True)
        if check.remedy and check.state != "ok":
            remedy = f"{'':7}  {'':{width}}  remedy: {escape(check.remedy)}"
            console.print(remedy, soft_wrap=True)
    if quiet:
        return
    missing = [check.name for check in checks if check.state == "missing"]
    verdict = f"missing: {', '.join(missing)}" if missing else "this machine can profile"
    console.print(f"\n{verdict}", soft_wrap=True)
    if "GPU" in missing:
        console.print(f"files that you already have need none of it: {IMPORT}", soft_wrap=True)
