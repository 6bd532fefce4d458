"""`prof import`: makes a run directory from existing Nsight files."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from nsight_prof.orchestrator.commands import script_options
from nsight_prof.orchestrator.terminal.say import say


@click.command("import")
@click.argument(
    "files", nargs=-1, required=True, metavar="FILE|FOLDER…", type=click.Path(path_type=Path)
)
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
@script_options.quiet("only the run directory; what is left out of a folder goes to stderr")
@script_options.as_json
def command(
    files: tuple[Path, ...], out: Path, stages: tuple[str, ...], as_json: bool, quiet: bool
) -> None:
    """Make a run directory from existing Nsight files of any version.

    A run holds one trace (.nsys-rep, its .sqlite export, or the CSV of `nsys stats -r
    cuda_gpu_kern_sum`), counters (.ncu-rep, or what `ncu --csv` printed; any number of files, which
    are joined), or both. Several traces are the ranks of one job: each rank becomes a run of its
    own in it. Files may be packed as .xz; what a file is, its content says. An .nsys-rep needs nsys
    on this machine, the others need nothing.

    A named file is imported or refused. Of a folder, and those in it, whatever prof reads is taken,
    and the rest is named. How files are joined and ranks numbered: docs/importing.md in prof's
    repository.

    \b
    Examples:
      prof import trace.sqlite counters.ncu-rep --out runs/mine && prof report runs/mine
      prof import trace.nsys-rep --stage '^prefill$' --stage '^decode$' --out runs/mine
      prof import trace.sqlite ncu/ --out runs/mine
      prof import 'ncu/*.ncu-rep' --out runs/counters
      prof import rank0.sqlite rank1.sqlite --out runs/job
      prof import kern_sum.csv --out runs/summary
      prof report "$(prof import trace.sqlite --out runs/mine --quiet)"
    """
    from nsight_prof.orchestrator.imports.importing import import_files
    from nsight_prof.parsers.run.directory import read_manifest

    run = import_files(files, out, stages, partial(say, err=as_json or quiet))
    if as_json:
        manifest = read_manifest(run)
        made = {
            "run": str(run.path),
            "files": manifest.imported,
            "recorded": manifest.created or None,
            "tools": manifest.tools,
            "ranks": [{"rank": one.rank, "file": one.file} for one in manifest.ranks],
            "notes": manifest.assumptions,
        }
        script_options.say_json(made)
    else:
        say(str(run.path) if quiet else f"run: {run.path}\nnext: prof report {run.path}")
