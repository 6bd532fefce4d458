"""`prof top-kernels`: ranks the kernels of a trace and writes a selection file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nsight_prof.orchestrator.commands import shared_options
from nsight_prof.orchestrator.terminal.numbers import Finite
from nsight_prof.orchestrator.terminal.say import say

if TYPE_CHECKING:
    import pandas as pd
    from rich.table import Table

    from nsight_prof.parsers.run.selection import Selection

PIPE_WIDTH = 160  # columns where stdout is no terminal, so that names stay whole
# Below it only what the kernel's name does not tell is shown beside it.
WIDE = 130


@dataclass(frozen=True)
class Trace:
    """What the choice of kernels needs; `warnings` are said to the reader."""

    kernels: pd.DataFrame
    launches: pd.DataFrame | None = None
    stage_kernels: pd.DataFrame | None = None
    warnings: tuple[str, ...] = ()


@click.command("top-kernels")
@click.argument("trace", type=click.Path(path_type=Path))
@click.option(
    "-k",
    "top_k",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    help="At most so many.",
)
@click.option(
    "--coverage",
    type=Finite(min=0, max=1, min_open=True),
    help="Stop at this share of GPU time, for example 0.95.",
)
@click.option("--by-stage", is_flag=True, help="Take the top kernels of each NVTX stage.")
@click.option("--include", multiple=True, metavar="REGEX", help="Only kernels whose name fits.")
@click.option("--exclude", multiple=True, metavar="REGEX", help="No kernels whose name fits.")
@click.option("--collectives", is_flag=True, help="Keep NCCL and other collectives, too.")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the selection to this YAML file.",
)
@shared_options.quiet("only the names of the kernels, one per line")
@shared_options.as_json
def command(trace: Path, output: Path | None, as_json: bool, quiet: bool, **options: Any) -> None:
    """Rank the kernels of a trace and write a selection file.

    TRACE is an nsys report (.nsys-rep), its .sqlite export, a run that has one, or the kernel
    summary of `nsys stats` as CSV. Names, library, category and data type come from the kernel's
    name. The file that -o writes goes into a recipe as `select: {kernels: top-kernels.yaml}`.

    \b
    Examples:
      prof top-kernels trace.sqlite
      prof top-kernels runs/mine -k 30
      prof top-kernels trace.nsys-rep -k 10 --coverage 0.95 -o top-kernels.yaml
      prof top-kernels trace.sqlite --json | jq '.kernels[] | {short_name, share}'
      prof top-kernels trace.sqlite --by-stage --exclude 'elementwise|copy'
    """
    from nsight_prof.orchestrator.plan.select import SelectOptions, choose_kernels
    from nsight_prof.parsers.run.selection import write_selection

    read = _read(trace)
    selection = choose_kernels(
        read.kernels, read.launches, read.stage_kernels, SelectOptions(**options)
    )
    selection.notes += read.warnings
    if as_json:
        shared_options.say_json(_as_data(selection, read.kernels))
    elif quiet:
        for note in selection.warnings():
            say(f"note: {note}", err=True)
        for kernel in selection.kernels:
            say(kernel.short_name)
    else:
        _show(selection, read.kernels)
    if output is not None:
        write_selection(output, selection)
        if not quiet:
            say(f"selection: {output}", err=True)


def _read(path: Path) -> Trace:
    import tempfile

    from nsight_prof.orchestrator.imports.recognize import Kind, recognize
    from nsight_prof.parsers.errors import ProfError, UsageError
    from nsight_prof.parsers.nsys.kern_sum_csv import read_kernel_summary
    from nsight_prof.parsers.run.directory import RunDir, check_one_run, plain_file

    if path.is_dir():
        check_one_run(path)
        trace = RunDir(path).artifact("trace", "trace.sqlite")
        if trace is None:
            raise UsageError(f"the run {path} has no trace", "name a run with a trace, or a trace")
        with plain_file(trace) as database:
            return _read_sqlite(database)
    kind = recognize(path)
    if kind == Kind.SQLITE:
        return _read_sqlite(path)
    if kind == Kind.NSYS_REPORT:
        from nsight_prof.orchestrator.system.export import export_sqlite

        with tempfile.TemporaryDirectory(prefix="prof-top-kernels-") as folder:
            exported = export_sqlite(path, Path(folder) / "trace.sqlite")
            try:
                return _read_sqlite(exported)
            except ProfError as error:
                # The export is gone by the time that this is read.
                raise type(error)(
                    error.message.replace(str(exported), str(path)), error.hint
                ) from error
    if kind == Kind.KERN_SUM:
        warning = "a kernel summary has no mangled names and no launches: a run asks its trace"
        summary = read_kernel_summary(path)
        return Trace(summary.kernels, warnings=(warning, *summary.notes))
    raise UsageError(
        f"{path} is {kind}, and kernels are ranked by a trace",
        "give the .nsys-rep, its .sqlite export, or `nsys stats -r cuda_gpu_kern_sum --format csv`",
    )


def _read_sqlite(path: Path) -> Trace:
    from nsight_prof.parsers.nsys.trace import open_trace

    with open_trace(path) as trace:
        kernels, launches, stages = trace.kernels(), trace.launches(), trace.stage_kernels()
        return Trace(kernels, launches, stages, tuple(trace.warnings))


def _as_data(selection: Selection, kernels: pd.DataFrame) -> dict[str, Any]:
    """Return the selection for --json: as in its file, with calls and ns of each kernel."""
    from dataclasses import asdict

    data = asdict(selection)
    facts = kernels.set_index("kernel_id")
    for kernel in data["kernels"]:
        row = facts.loc[kernel["kernel_id"]]
        kernel |= {"calls": int(row["calls"]), "total_ns": int(row["total_ns"])}
    return {**data, "kernels_of_trace": len(kernels)}


def _show(selection: Selection, kernels: pd.DataFrame) -> None:
    from nsight_prof.orchestrator.terminal.console import make_console

    console = make_console(PIPE_WIDTH)
    console.print(_table(selection, kernels, wide=console.width >= WIDE))
    share = "" if selection.share is None else f", {selection.share:.1%} of GPU time"
    console.print(f"{len(selection.kernels)} of {len(kernels)} kernels{share}", markup=False)
    last = selection.skip + selection.count - 1
    window = f"{selection.skip}" if selection.count == 1 else f"{selection.skip} to {last}"
    console.print(f"ncu would profile launch {window} of each, counted from 0", markup=False)
    for row in selection.left_out:
        console.print(
            f"left out: {row['short_name']}, {_kernels(row['kernels'])}, {row['share']:.1%}: "
            f"{row['reason']}",
            markup=False,
        )
    for note in selection.warnings():
        console.print(f"note: {note}", markup=False)


def _kernels(count: int) -> str:
    return "1 kernel" if count == 1 else f"{count} kernels"


def _table(selection: Selection, kernels: pd.DataFrame, *, wide: bool) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    extra = ("library", "category", "dtype") if wide else ()
    for heading in ("", "kernel", *extra):
        table.add_column(heading, justify="left" if heading else "right", overflow="fold")
    for heading in ("grid", "calls", "total ms", "share", "cumulative"):
        table.add_column(heading, justify="right", no_wrap=True)
    facts = kernels.set_index("kernel_id")
    cumulative = 0.0
    for rank, kernel in enumerate(selection.kernels, 1):
        row = facts.loc[kernel.kernel_id]
        cumulative += kernel.share
        table.add_row(
            str(rank),
            escape(kernel.short_name),
            *(str(value) for value in row[list(extra)].fillna("")),
            kernel.grid,
            f"{row['calls']:,}",
            f"{row['total_ns'] / 1e6:,.3f}",
            f"{kernel.share:.1%}",
            f"{cumulative:.1%}",
        )
    return table
