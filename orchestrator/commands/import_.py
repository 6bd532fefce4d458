"""`prof import`: makes a run directory from existing Nsight files, or from measured operators."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import click

from nsight_prof.orchestrator.commands import shared_options
from nsight_prof.orchestrator.terminal.say import say
from nsight_prof.parsers.errors import UsageError


class Given(click.Path):
    """A path with a name: that of an unset variable of the shell would mean the current folder."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path."""
        if not str(value):
            self.fail("an empty name, as an unset variable of the shell leaves it", param, ctx)
        return super().convert(value, param, ctx)


@click.command("import")
@click.argument("files", nargs=-1, metavar="[FILE|FOLDER]…", type=Given(path_type=Path))
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
@click.option(
    "--aiconfigurator",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Instead of files: measured operators of NVIDIA's aiconfigurator (its repository or "
    "package), for prof predict --on.",
)
@click.option("--system", metavar="NAME", help="Of these tables: the system, as h200_sxm.")
@click.option("--framework", metavar="NAME", help="Whose kernels were measured. [default: vllm]")
@click.option(
    "--backend-version", "version", metavar="V", help="Version of it. [default: the newest]"
)
@click.option(
    "--workers",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    metavar="N",
    help="Import N ranks of a job at a time, each in a process of its own.",
)
@shared_options.on_cluster
@click.option(
    "--resume",
    is_flag=True,
    help="Go on with an import of several traces that was cut off: ranks that it left whole, of "
    "traces of the same content, are not read again.",
)
@shared_options.quiet("only the run directory; what is left out of a folder goes to stderr")
@shared_options.as_json
def command(
    files: tuple[Path, ...],
    out: Path,
    stages: tuple[str, ...],
    aiconfigurator: Path | None,
    system: str | None,
    framework: str | None,
    version: str | None,
    workers: int,
    cluster: str | None,
    resume: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Make a run directory from files of Nsight or the torch profiler, of any version.

    A run holds one trace (.nsys-rep, its .sqlite export, the CSV of `nsys stats -r
    cuda_gpu_kern_sum`, or the chrome trace of torch.profiler), counters (.ncu-rep, or what
    `ncu --csv` printed; any number of files, which are joined), or both. A trace of nsys and one of
    the torch profiler are joined: launches from the first, operators from the second. Several
    traces of one tool are the ranks of one job: each rank becomes a run of its own in it. Files may
    be packed as .xz (.gz for torch); what a file is, its content says. An .nsys-rep needs nsys on
    this machine, the others need nothing.

    A named file is imported or refused. Of a folder, and those in it, whatever prof reads is taken,
    and the rest is named. How files are joined and ranks numbered: docs/importing.md in prof's
    repository. With --aiconfigurator the run holds no trace, but operators that others measured,
    for prof predict.

    \b
    Examples:
      prof import trace.sqlite counters.ncu-rep --out runs/mine && prof report runs/mine
      prof import trace.nsys-rep --stage '^prefill$' --stage '^decode$' --out runs/mine
      prof import trace.sqlite ncu/ --out runs/mine
      prof import trace.json.gz --stage '^forward$' --out runs/torch
      prof import trace.sqlite trace.json.gz --out runs/both
      prof import 'ncu/*.ncu-rep' --out runs/counters
      prof import rank0.sqlite rank1.sqlite --out runs/job
      prof import 'traces/rank*.nsys-rep' --workers 8 --out runs/job
      prof import '/local/traces/rank*.nsys-rep' --on ray --out /shared/runs/job
      prof import kern_sum.csv --out runs/summary
      prof import --aiconfigurator aiconfigurator/ --system h200_sxm --out runs/h200-operators
      prof report "$(prof import trace.sqlite --out runs/mine --quiet)"
    """
    from nsight_prof.orchestrator.workers.mapping import executor_of
    from nsight_prof.parsers.run.directory import read_manifest

    if aiconfigurator is not None:
        if files or stages:
            raise UsageError(
                "--aiconfigurator imports tables of operators, and no files of Nsight",
                "import those into a run of their own",
            )
        from nsight_prof.orchestrator.imports.operators import import_operators

        run = import_operators(
            aiconfigurator, system or "", framework or "vllm", version or "", out
        )
    elif system or framework or version:
        raise UsageError(
            "--system, --framework and --backend-version choose tables of aiconfigurator",
            "say where they are: --aiconfigurator DIR",
        )
    elif not files:
        raise UsageError("no file was given", "name one: prof import trace.sqlite --out RUN")
    else:
        with executor_of(workers, cluster) as executor:
            from nsight_prof.orchestrator.imports.importing import import_files
            from nsight_prof.parsers.nsys.freed import keep_freed

            keep_freed()
            tell = partial(say, err=as_json or quiet)
            run = import_files(files, out, stages, tell, executor, resume=resume)
    if as_json:
        manifest = read_manifest(run)
        result = {
            "run": str(run.path),
            "files": manifest.imported,
            "recorded": manifest.created or None,
            "tools": manifest.tools,
            "ranks": [{"rank": rank.rank, "file": rank.file} for rank in manifest.ranks],
            "notes": manifest.assumptions,
        }
        shared_options.say_json(result)
    else:
        report = f"prof report {run.path}"
        following = report if aiconfigurator is None else f"prof predict MODEL --on {run.path}"
        say(str(run.path) if quiet else f"run: {run.path}\nnext: {following}")
