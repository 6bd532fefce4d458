"""`prof rank`: traces ranks of a job inside of whatever launches them."""

from __future__ import annotations

import os
from pathlib import Path

import click

from nsight_prof.orchestrator.ranks.launcher import (
    KEPT,
    LIMIT_S,
    MODES,
    ROLE,
    Launch,
    parse_selection,
    parse_window,
    read_launch,
    run_alone,
)
from nsight_prof.orchestrator.terminal.numbers import Finite
from nsight_prof.orchestrator.terminal.say import say
from nsight_prof.parsers.errors import UsageError


@click.command("rank", context_settings={"ignore_unknown_options": True})
@click.argument("run", type=click.Path(path_type=Path))
@click.argument("program", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND…")
@click.option(
    "--trace",
    default="",
    metavar="RANKS",
    help="Ranks to trace: all, none, first-of-node, every:8, role:NAME, or numbers (0,8). "
    "[default: all of up to 8 ranks, else first-of-node]",
)
@click.option(
    "--rank-from", default="", metavar="NAME", help="Environment variable that holds the rank."
)
@click.option(
    "--role-from",
    default=ROLE,
    show_default=True,
    metavar="NAME",
    help="Environment variable that holds the role of a rank (prefill, decode).",
)
@click.option(
    "--own-ranks",
    "own_ranks",
    type=click.IntRange(min=1),
    metavar="N",
    help="COMMAND starts its N ranks itself, on this machine, as vLLM does, and no launcher starts "
    "prof rank: its trace becomes a rank for each process that uses a GPU.",
)
@click.option(
    "--window",
    default="",
    metavar="RANGE:A-B",
    help="Keep of the trace the NVTX ranges of this name with the numbers A to B, from 1, and what "
    "was called in that time (step:20-23).",
)
@click.option(
    "--keep",
    type=click.Choice(KEPT),
    default=KEPT[0],
    show_default=True,
    help="What is kept of a rank: nsys's export and tables (traces), the tables alone, or both and "
    "the .nsys-rep, which holds the environments of processes.",
)
@click.option(
    "--scratch",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    metavar="DIR",
    help="Folder on a disk of each node for what nsys writes. [default: $TMPDIR]",
)
@click.option(
    "--stage",
    "stages",
    multiple=True,
    metavar="REGEX",
    help="NVTX range names that are stages of the program; the outermost ranges by default.",
)
@click.option(
    "--nsys",
    "nsys_options",
    multiple=True,
    metavar="OPTION",
    help="Option for nsys profile, as --nsys=--capture-range=cudaProfilerApi. May be given often.",
)
@click.option(
    "--gpu-metrics",
    "gpu_metrics_hz",
    type=click.IntRange(10, 200_000),
    metavar="HZ",
    help="Let nsys sample the use of SMs, Tensor Cores, DRAM and links of the rank's GPU so often "
    "a second: no kernel is held or run again, so that it works with collectives, too.",
)
@click.option(
    "--counters",
    type=click.Choice(MODES),
    help="Count the kernels of ranks that were traced before, by ncu: one-rank (no collectives, "
    "all sets), one-pass (all ranks, collectives too, few counters), application (the same with "
    "all sets: the program is run again for each pass, in lockstep).",
)
@click.option(
    "--limit",
    "limit_s",
    type=Finite(min=1),
    default=LIMIT_S,
    show_default=True,
    metavar="SECONDS",
    help="With --counters: how long the program may take under ncu.",
)
@click.option(
    "--ncu",
    "ncu_options",
    multiple=True,
    metavar="OPTION",
    help="With --counters: option for ncu, as --ncu=--profile-from-start=off. May be given often.",
)
@click.option(
    "--flush",
    "flush_s",
    type=Finite(min=1),
    default=300.0,
    show_default=True,
    metavar="SECONDS",
    help="How long nsys may write its report after the program has ended.",
)
def command(
    run: Path,
    program: tuple[str, ...],
    trace: str,
    rank_from: str,
    role_from: str,
    own_ranks: int | None,
    window: str,
    keep: str,
    scratch: Path | None,
    stages: tuple[str, ...],
    nsys_options: tuple[str, ...],
    gpu_metrics_hz: int | None,
    counters: str | None,
    limit_s: float,
    ncu_options: tuple[str, ...],
    flush_s: float,
) -> None:
    """Trace ranks of a job inside of torchrun, srun, mpirun or any launcher.

    The exit code is that of COMMAND. The launcher starts `prof rank` in place of it, on each rank.
    A rank that is not traced becomes the program at once. A traced one runs under nsys in a session
    of its own: signals of the launcher go to the program alone, and nsys has time to write its
    report, even where the launcher kills. Export and tables are made on the node, and renamed into
    RUN/ranks/0003 when whole. RUN lies in a folder that all nodes share; a second job in it is
    refused. More: docs/ranks.md in prof's repository.

    \b
    Examples:
      torchrun --nproc-per-node 8 --no-python prof rank runs/job -- python train.py
      srun prof rank runs/job-$SLURM_JOB_ID --trace 0,8 -- python train.py
      mpirun -n 16 prof rank runs/job --trace every:4 -- ./app
      mpirun -n 16 prof rank runs/job --counters one-pass -- ./app
      prof rank runs/job --own-ranks 2 -- vllm serve MODEL --tensor-parallel-size 2
      prof report runs/job
    """
    if own_ranks is not None and (counters or trace):
        raise UsageError(
            "--own-ranks with --counters or --trace", "all ranks are in one trace: leave these out"
        )
    launch = (
        read_launch(os.environ, rank_from, role_from)
        if own_ranks is None
        else Launch(0, 0, own_ranks, "--own-ranks", "")
    )
    selection = parse_selection(trace, launch)
    if not launch.restart and not (counters or selection.has(launch)):
        run_alone(program)
    from nsight_prof.orchestrator.ranks.capture import capture
    from nsight_prof.orchestrator.ranks.folder import is_started_again
    from nsight_prof.orchestrator.ranks.launcher import Rank
    from nsight_prof.parsers.run.directory import RunDir

    rank = Rank(
        launch, selection, program, scratch, nsys_options, stages, flush_s, gpu_metrics_hz,
        parse_window(window), keep, own_ranks,
    )  # fmt: skip
    job, exits = RunDir(run.absolute()), click.get_current_context().exit
    if launch.restart or (not counters and is_started_again(job, launch)):
        say(f"rank {launch.rank} is not traced: the launcher started the job again", err=True)
        run_alone(program)
    if counters:
        from nsight_prof.orchestrator.ranks.counting import Counting, count

        exits(count(job, rank, Counting(counters, limit_s, ncu_options)))
    exits(capture(job, rank))
