"""`prof import`: makes a run directory from existing Nsight files."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("import")
@click.argument("files", nargs=-1, required=True, metavar="FILE…", type=click.Path(path_type=Path))
@click.option(
    "--out", required=True, type=click.Path(path_type=Path), help="Run directory to make."
)
@click.option(
    "--stage",
    "stages",
    multiple=True,
    metavar="REGEX",
    help="NVTX range names that are stages of the program; the outermost ranges by default.",
)
def command(files: tuple[Path, ...], out: Path, stages: tuple[str, ...]) -> None:
    """Make a run directory from existing Nsight files of any version.

    A run holds one trace (.nsys-rep, its .sqlite export, or the CSV of `nsys stats -r
    cuda_gpu_kern_sum`) and one set of counters (.ncu-rep, or what `ncu --csv` printed), or only one
    of the two. Files may be packed as .xz; what a file is, its content says. An .nsys-rep needs
    nsys on this machine, the others need nothing.

    \b
    Examples:
      prof import trace.sqlite counters.ncu-rep --out runs/mine && prof report runs/mine
      prof import trace.nsys-rep --stage '^prefill$' --stage '^decode$' --out runs/mine
      prof import kern_sum.csv --out runs/summary
    """
    from nsight_prof.orchestrator.importing import import_files

    run = import_files(files, out, stages)
    click.echo(f"run: {run.path}\nnext: prof report {run.path}")
