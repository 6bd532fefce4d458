"""`prof report`: renders the report of a run directory again, on any machine."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("report")
@click.argument("run", type=click.Path(path_type=Path))
@click.option(
    "--open",
    "open_it",
    type=click.Choice(["yes", "no"]),
    default="no",
    show_default=True,
    help="Open the report in the desktop's viewer.",
)
def command(run: Path, open_it: str) -> None:
    """Render the report of a run again; needs no GPU.

    Reads the raw captures in RUN, makes the tables again and writes report/report.md,
    report/stakeholder_summary.md, report/metrics.json and the plots. A run that was recorded on
    another machine works too: no GPU, no Nsight and no torch are needed.

    \b
    Examples:
      prof report runs/top-kernels-20260101-120000
      prof report captures/h200-top-kernels
    """
    from orchestrator.rendering import render_run

    paths = render_run(run)
    click.echo(f"report: {paths}")
    if open_it == "yes":
        click.launch(str(paths))
