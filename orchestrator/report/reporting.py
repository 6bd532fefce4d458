"""Makes the tables and the report of a run, and the comparison of a sweep."""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nsight_prof.parsers.errors import ProfError, StepFailed
from nsight_prof.parsers.run.directory import Manifest, RunDir, read_manifest
from nsight_prof.parsers.substeps import substep

if TYPE_CHECKING:
    from concurrent.futures import Executor
    from multiprocessing.connection import Connection

    import pandas as pd

    from nsight_prof.reports.render.drawing import Draw
    from nsight_prof.reports.render.gallery import Picture
    from nsight_prof.reports.render.style import Style

# The libraries of tables and pictures map about 1 GiB before they do anything; with less
# matplotlib 3.11 aborts.
ADDRESS_SPACE = 1 << 30


def make_report(
    run: RunDir, style: Style | None = None, *, draw: Draw | None = None
) -> tuple[tuple[str, ...], Path]:
    """Write tables/ and report/ of a run; return its first findings and the path of report.md.

    `style` goes before what the recipe of the run says of languages; templates are those of `style`
    alone. `draw`: what draws the pictures (`drawing`).
    """
    with drawing() if draw is None else nullcontext(draw) as draw:
        # The second process imports what draws while this one imports all else.
        from nsight_prof.parsers.build.load import load_run
        from nsight_prof.parsers.build.refresh import refresh_tables
        from nsight_prof.reports.render.report import render_report

        substep("checking the captures")
        refresh_tables(run)
        paths = render_report(load_run(run.path), style, draw)
    return paths.headline, paths.report


@contextmanager
def reporting(
    draw: Draw | None, recipe: dict[str, Any], found: dict[str, pd.DataFrame]
) -> Iterator[Callable[[RunDir], tuple[tuple[str, ...], Path]]]:
    """Give `make_report` in a second process, which imports meanwhile what it needs.

    Pictures are drawn meanwhile, too: of a prediction's run that will have `recipe` and, among
    others, the tables `found`.
    """
    from nsight_prof.reports.render.second_process import second_process

    with second_process(partial(_serve, draw, recipe, found)) as connection:
        here = partial(make_report, draw=draw)
        yield here if connection is None else partial(_report_in_process, connection)


def _report_in_process(connection: Connection, run: RunDir) -> tuple[tuple[str, ...], Path]:
    """Have a report made; where that process died, it is made here."""
    try:
        connection.send(run)
        answer = connection.recv()
    except (EOFError, OSError):
        return make_report(run)
    if isinstance(answer, Exception):
        raise answer
    return answer  # type: ignore[no-any-return]


def _serve(
    draw: Draw | None,
    recipe: dict[str, Any],
    found: dict[str, pd.DataFrame],
    connection: Connection,
) -> None:
    """Make the report of the run that the connection names."""
    # What a report imports where it uses it, of which nothing shall be left to import then.
    from pyarrow import pandas_compat  # noqa: F401

    from nsight_prof.parsers.build import load, refresh  # noqa: F401
    from nsight_prof.reports.predict import view  # noqa: F401
    from nsight_prof.reports.render import (  # noqa: F401
        body,
        folds,
        html_page,
        metrics_json,
        report,
        templating,
    )
    from nsight_prof.reports.render.drawing import begun

    with drawing() if draw is None else nullcontext(draw) as draw:
        with suppress(Exception):  # what it cannot draw, the report cannot either, and says so
            draw = begun(draw, *_first_pictures(recipe, found))
        run = connection.recv()
        try:
            connection.send(make_report(run, draw=draw))
        except Exception as error:
            connection.send(error)


def _first_pictures(
    recipe: dict[str, Any], found: dict[str, pd.DataFrame]
) -> tuple[list[Picture], Style]:
    """Return the pictures that a report will have, of whose run these are the first tables."""
    from nsight_prof.parsers.run.run import Run
    from nsight_prof.reports.predict.forecast import drawn_sections
    from nsight_prof.reports.render.gallery import bench_pictures
    from nsight_prof.reports.render.style import style_of

    run = Run(Path(), Manifest("", "", recipe))
    vars(run).update(found)
    return bench_pictures(drawn_sections(run)), style_of(recipe)


@contextmanager
def drawing() -> Iterator[Draw]:
    """Give what draws pictures: a process beside this one, which imports meanwhile what it needs.

    Raises:
        StepFailed: there is too little address space for it.
    """
    from nsight_prof.reports.render.drawing import drawing_in_parallel

    _check_address_space()
    with drawing_in_parallel() as draw:
        yield draw


def _check_address_space() -> None:
    """Refuse what would end in an abort of a native library that gets no memory."""
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit != resource.RLIM_INFINITY and limit < ADDRESS_SPACE:
        raise StepFailed(
            f"a report needs {ADDRESS_SPACE / 2**30:.1f} GiB of address space, and the limit here "
            f"is {limit / 2**30:.1f} GiB",
            "raise it (ulimit -v unlimited, or the memory that the batch job asks for), or render "
            "the report elsewhere: prof report RUN",
        )


def compare_variants(run: RunDir, style: Style | None = None) -> tuple[tuple[str, ...], Path]:
    """Write report/ of a sweep from the runs in variants/; return its answer and report.md."""
    from nsight_prof.parsers.build.load import load_variants
    from nsight_prof.reports.render.report import render_sweep
    from nsight_prof.reports.render.style import style_of
    from nsight_prof.reports.sweep.sweep import sweep_view

    manifest = read_manifest(run)
    view = sweep_view(manifest, load_variants(run))
    paths = render_sweep(view, run.report, style_of(manifest.recipe, style))
    return paths.headline, paths.report


def report_job(
    job: RunDir,
    style: Style | None = None,
    warn: Callable[[str], None] = lambda _: None,
    executor: Executor | None = None,
) -> tuple[tuple[str, ...], Path]:
    """Write the tables of all ranks, in `executor`, and tables/ and report/ of their job.

    `warn` gets the ranks whose tables cannot be made; the report names them, too.
    """
    from nsight_prof.parsers.build.load import load_run
    from nsight_prof.reports.engine.ranks import job_view
    from nsight_prof.reports.page.catalogue import knowing
    from nsight_prof.reports.render.report import render_job
    from nsight_prof.reports.render.style import style_of

    _check_address_space()
    job_tables(job, warn, executor)
    style = style_of(read_manifest(job).recipe, style)
    with knowing(load_run(job.path).sentences):
        paths = render_job(job_view(job.path), job.report, style)
    return paths.headline, paths.report


def job_tables(
    job: RunDir,
    warn: Callable[[str], None] = lambda _: None,
    executor: Executor | None = None,
) -> None:
    """Write the tables of all ranks, in `executor` or else this process, and of their job.

    Tables that are there already, of these captures and this prof, are kept. `warn` gets the ranks
    whose tables cannot be made.
    """
    from nsight_prof.orchestrator.workers.mapping import mapped
    from nsight_prof.parsers.build.rank_tables import build_rank_tables

    ranks = [record.rank for record in read_manifest(job).ranks if not record.reason]
    folders = [job.rank(rank).path for rank in ranks]
    problems = {}
    for rank, problem in zip(ranks, mapped(_rank_tables, folders, executor), strict=True):
        substep(f"rank {rank}")
        if problem:
            warn(f"rank {rank}: {problem}")
            problems[rank] = problem
    build_rank_tables(job, problems)


def _rank_tables(folder: Path) -> str:
    from nsight_prof.parsers.build.refresh import refresh_tables

    try:
        refresh_tables(RunDir(folder))
    except ProfError as error:
        return error.message
    return ""
