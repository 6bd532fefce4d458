"""`prof report`: renders the report of a run directory again, on any machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from nsight_prof.orchestrator.commands import shared_options
from nsight_prof.orchestrator.report.outcome import as_data, show_report
from nsight_prof.orchestrator.terminal import completion
from nsight_prof.orchestrator.terminal.say import say
from nsight_prof.parsers.errors import ProfError, UsageError
from nsight_prof.parsers.run.directory import VARIANTS, RunDir, read_manifest
from nsight_prof.parsers.substeps import substep, watched_by

if TYPE_CHECKING:
    from nsight_prof.orchestrator.terminal.display import Display
    from nsight_prof.reports.render.style import Style


@click.command("report")
@click.argument("run", type=click.Path(path_type=Path), shell_complete=completion.runs)
@click.option(
    "--format",
    "formats",
    type=click.Choice(["md", "html", shared_options.ALL]),
    default=shared_options.ALL,
    show_default=True,
    help="Pages to write: markdown with pictures beside it, HTML with all inside, or both.",
)
@click.option(
    "--png",
    type=click.Choice(["yes", "no"]),
    default="no",
    show_default=True,
    help="Write each picture beside the markdown as PNG, too: for slides that take no SVG.",
)
@click.option(
    "--open",
    "open_it",
    type=click.Choice(["yes", "no"]),
    default="no",
    show_default=True,
    help="Open report.html in the desktop's browser.",
)
@click.option(
    "--roofs",
    type=click.Path(path_type=Path),
    metavar="FILE|RUN",
    help="Hold kernels against these measured roofs, or collectives against those of a run of "
    "comm-roofs; the run keeps them.",
)
@click.option(
    "--rank",
    type=click.IntRange(min=0),
    metavar="N",
    help="Of a job, the report of this rank: that of the run directory ranks/000N in it.",
)
@click.option(
    "--workers",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    metavar="N",
    help="Of a job, make the tables of N ranks at a time, each in a process of its own.",
)
@shared_options.on_cluster
@shared_options.style
@shared_options.quiet("only the path of the report; warnings and errors go to stderr")
@shared_options.as_json
def command(
    run: Path,
    formats: str,
    png: str,
    open_it: str,
    roofs: Path | None,
    rank: int | None,
    workers: int,
    cluster: str | None,
    templates: Path | None,
    languages: tuple[str, ...],
    as_json: bool,
    quiet: bool,
) -> None:
    """Render the report of a run again; needs no GPU.

    Reads the raw captures in RUN, makes the tables again where they are not of these captures and
    this version of prof, and writes report/report.md, report/stakeholder_summary.md,
    report/metrics.json and the plots; report/report.html is the same as one file, with figures that
    tell numbers and tables that sort. The folder report/ is written anew: with --format md or html
    it holds pages of that format alone, and metrics.json. A run that was recorded on another
    machine works too: no GPU, no Nsight and no torch are needed.

    \b
    Examples:
      prof report runs/top-kernels-20260101-120000
      prof report runs/mine --roofs runs/roofline
      prof report runs/mine --format html --open yes
      prof report runs/mine --png yes
      prof report runs/mine --language ko --language zh
      prof report runs/mine --templates my-templates
      prof report runs/job --rank 3
      prof report runs/job --workers 8
      prof report runs/mine --json | jq -r '.findings[0]'
    """
    if open_it == "yes" and formats == "md":
        raise UsageError(
            "--open shows report.html, and --format md writes none",
            "leave out one of the two, or take --format html",
        )
    style = shared_options.given_style(templates, languages, formats, png=png == "yes")
    if rank is not None:
        run = _of_rank(RunDir(run), rank)
    read_manifest(RunDir(run))  # a wrong name is told before pandas is read
    from nsight_prof.orchestrator.system.run_lock import writing

    with writing(run), _watched(run, quiet) as display:
        if roofs is not None:
            _attach(RunDir(run), roofs)
        findings, report = _render(RunDir(run), style, display, (workers, cluster))
    if as_json:
        shared_options.say_json(as_data(run, findings, report))
    elif quiet:
        say(str(report))
    else:
        show_report(findings, report)
    if open_it == "yes":
        click.launch(str(report.with_suffix(".html")))


def _of_rank(job: RunDir, rank: int) -> Path:
    """Return the run directory of one rank of a job."""
    from nsight_prof.orchestrator.ranks.folder import gather

    gather(job)
    ranks = [record.rank for record in read_manifest(job).ranks if not record.reason]
    if not ranks:
        raise UsageError(f"{job.path} is one run, without ranks", "leave out --rank")
    if rank not in ranks:
        listed = ", ".join(map(str, ranks[:16])) + (", …" if len(ranks) > 16 else "")
        raise UsageError(f"{job.path} has no rank {rank}", f"it has the ranks {listed}")
    return job.rank(rank).path


@contextmanager
def _watched(run: Path, quiet: bool) -> Iterator[Display]:
    """Show on a terminal which part of the report is being made, and for how long already."""
    from nsight_prof.orchestrator.terminal.display import make_display

    display = make_display(quiet)
    try:
        if display.live:
            display.started("report", f"tables and report of {run}")
            with watched_by(partial(display.doing, "report")):
                yield display
        else:
            yield display
    finally:
        display.close()


def _attach(run: RunDir, roofs: Path) -> None:
    """Give a run, or each run of a sweep or a job, the measured roofs of a file or another run."""
    from nsight_prof.orchestrator.ranks.folder import gather
    from nsight_prof.orchestrator.run.roofs_of_run import (
        attach_comm_roofs,
        attach_given,
        has_gpu_roofs,
    )

    gather(run)
    manifest = read_manifest(run)
    inner = [run.path / VARIANTS / name for name in manifest.variants]
    inner += [run.rank(record.rank).path for record in manifest.ranks if not record.reason]
    for path in [run.path, *inner]:
        attach_comm_roofs(RunDir(path), roofs)
    for path in inner or [run.path]:
        if has_gpu_roofs(roofs):
            attach_given(RunDir(path), roofs)


def _render(
    run: RunDir, style: Style | None, display: Display, workers: tuple[int, str | None]
) -> tuple[tuple[str, ...], Path]:
    """Make tables and report of a run, of every variant of a sweep, or of the ranks of a job."""
    from nsight_prof.orchestrator.ranks.folder import gather
    from nsight_prof.orchestrator.report.reporting import compare_variants, make_report, report_job
    from nsight_prof.orchestrator.workers.mapping import executor_of

    # What a run was asked for stands in its recipe; only what is asked for now is handed on.
    given = () if style is None else (style,)
    gather(run)
    manifest = read_manifest(run)
    if manifest.recipe.get("templates") and (style is None or style.templates is None):
        display.warning(
            "the recipe of the run names templates of its own, which are used only where they are "
            f"asked for: --templates {manifest.recipe['templates']}"
        )
    if manifest.ranks or manifest.job:
        with executor_of(*workers) as executor:
            return report_job(run, style, display.warning, executor)
    variants = manifest.variants
    if not variants:
        return make_report(run, *given)
    for name in variants:
        substep(name)
        try:
            make_report(RunDir(run.path / VARIANTS / name), *given)
        except ProfError as error:
            # The others can be compared all the same; the comparison names this one too.
            display.warning(f"{name}: {error.message}")
    return compare_variants(run, *given)
