"""`prof export`: a run as a timeline for trace viewers, as tables, or as llm-perf-opt's files."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nsight_prof.orchestrator.commands import shared_options
from nsight_prof.orchestrator.terminal import completion
from nsight_prof.orchestrator.terminal.say import say
from nsight_prof.parsers.errors import UsageError
from nsight_prof.parsers.run.directory import RunDir, read_manifest

if TYPE_CHECKING:
    from nsight_prof.parsers.run.run import Run
    from nsight_prof.reports.export.trace_file import Exported

TRACES = ("perfetto", "chrome")
LLM_PERF_OPT = "llm-perf-opt"
FORMATS = (*TRACES, "parquet", "csv", LLM_PERF_OPT)


@click.command("export")
@click.argument("run", type=click.Path(path_type=Path), shell_complete=completion.runs)
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    default="perfetto",
    show_default=True,
    help="A timeline (perfetto and chrome are the same JSON), the tables, or the folder that "
    "llm-perf-opt writes.",
)
@click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(path_type=Path),
    metavar="FILE|FOLDER",
    help="File of the timeline, packed where it ends in .gz; folder of the tables.",
)
@click.option(
    "--table",
    "tables",
    multiple=True,
    metavar="NAME",
    help="Only this table; of one table -o may be a file. All that have rows by default.",
)
@click.option(
    "--ranks",
    metavar="N,N…",
    help="Of a job, one timeline of these ranks, by one clock: collectives align theirs.",
)
@shared_options.quiet("nothing")
@shared_options.as_json
def command(
    run: Path,
    form: str,
    output: Path,
    tables: tuple[str, ...],
    ranks: str | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Write the timeline of a run for Perfetto, or its tables as Parquet or CSV.

    The timeline opens in ui.perfetto.dev and chrome://tracing. Kernels, copies and memsets stand on
    the streams of their GPU, NVTX ranges and CUDA API calls on the threads of the host, and arrows
    lead from a call to what it issued. A kernel tells its shape, its stage and what bounds it.
    Columns of the tables: docs/tables.md in prof's repository; files of llm-perf-opt:
    docs/llm-perf-opt.md in prof's repository.

    \b
    Examples:
      prof export runs/mine -o timeline.json.gz
      prof export runs/job --ranks 0,3 -o timeline.json.gz
      prof export runs/mine --format csv -o tables
      prof export runs/mine --format parquet --table launches -o launches.parquet
      prof export runs/mine --format llm-perf-opt -o reports
    """
    from nsight_prof.orchestrator.report.run_tables import load_one_run

    if form in TRACES:
        write = partial(_of_one, run) if ranks is None else partial(_of_ranks, run, ranks)
        files = [_timeline(write, output, tables, quiet or as_json)]
    elif ranks is not None:
        raise UsageError("--ranks goes with a timeline", "leave out --format, or give perfetto")
    else:
        loaded = load_one_run(run, "export")
        files = [
            {"file": str(path), "rows": rows}
            for path, rows in _files(loaded, form, output, tables).items()
        ]
    # Beside what went to /dev/stdout nothing else may stand there.
    err = not all(Path(str(file["file"])).is_file() for file in files)
    if as_json:
        shared_options.say_json(files, err=err)
    elif not quiet and form not in TRACES:
        for file in files:
            say(f"{file['file']}: {file['rows']:,} rows", err=err)


def _files(run: Run, form: str, output: Path, tables: tuple[str, ...]) -> dict[Path, int]:
    """Write tables, or the folder of llm-perf-opt; return the rows of each file."""
    from nsight_prof.reports.export.llm_perf_opt import export_llm_perf_opt
    from nsight_prof.reports.export.table_files import export_tables

    if form != LLM_PERF_OPT:
        return export_tables(run, form, output, tables)
    if tables:
        raise UsageError(
            f"--table does not go with --format {LLM_PERF_OPT}",
            "choose --format parquet or --format csv",
        )
    return export_llm_perf_opt(run, output)


def _of_one(run: Path, output: Path) -> Exported:
    from nsight_prof.orchestrator.report.run_tables import load_one_run
    from nsight_prof.reports.export.trace_file import export_trace

    return export_trace(load_one_run(run, "export"), output)


def _of_ranks(run: Path, ranks: str, output: Path) -> Exported:
    """Write the timeline of ranks of a job, after its tables are made."""
    from nsight_prof.orchestrator.ranks.folder import gather
    from nsight_prof.orchestrator.report.reporting import job_tables
    from nsight_prof.orchestrator.system.run_lock import writing
    from nsight_prof.reports.export.trace_file import export_ranks

    numbers = [number.strip() for number in ranks.split(",")]
    if not all(number.isdecimal() for number in numbers):
        raise UsageError(f"--ranks {ranks} names no ranks", "give numbers: --ranks 0,3")
    job = RunDir(run)
    with writing(run):
        gather(job)
        if not read_manifest(job).ranks:
            raise UsageError(f"{run} is one run, without ranks", "leave out --ranks")
        job_tables(job)
    return export_ranks(job, list(map(int, numbers)), output)


def _timeline(
    write: Callable[[Path], Exported], output: Path, tables: tuple[str, ...], quiet: bool
) -> dict[str, Any]:
    if tables:
        raise UsageError(
            "--table does not go with a timeline", "choose --format parquet or --format csv"
        )
    if output.is_dir():
        raise UsageError(
            f"-o {output} is a folder", f"name the file: -o {output / 'timeline.json.gz'}"
        )
    done = write(output)
    for note in done.notes:
        say(f"note: {note}", err=True)
    if not quiet:
        err = not done.path.is_file()
        arrows = f"{done.arrows:,} arrows from call to GPU work"
        say(f"{done.path}: {done.events:,} events, {arrows}", err=err)
        where = "https://ui.perfetto.dev (nothing is uploaded) or chrome://tracing"
        say(f"open it in {where}", err=err)
    return {"file": str(done.path), "events": done.events, "arrows": done.arrows}
