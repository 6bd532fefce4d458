#!/usr/bin/env python3
"""Measures what a job of many ranks costs: tables of one rank, and the report over 8, 64, … ranks.

    bench_ranks.py --trace TRACE.sqlite [--ranks 8 64 1024] [--workers 1 2]

The ranks are one trace, linked as often as there are ranks: CPU time and memory are those of real
ranks, reading from disks is not. A long trace is made from a real one by scale_nsys_sqlite.py (see
bench_trace.py). Each measurement is a process of its own, imports included; the peak is that of its
largest process.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from dataclasses import asdict, replace
from pathlib import Path

from nsight_prof.parsers.run.directory import (
    Manifest,
    RankRecord,
    RunDir,
    read_manifest,
    write_manifest,
)

HEAD = ("what", "ranks", "workers", "wall s", "CPU s", "CPU s per rank", "peak MiB", "HTML MB")


def main() -> None:
    """Measure, and print one table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--trace", type=Path, required=True, help="nsys SQLite export")
    parser.add_argument("--ranks", type=int, nargs="+", default=[8, 64])
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--folder", type=Path, help="where the runs are made")
    options = parser.parse_args()
    print(("| {} " * len(HEAD) + "|").format(*HEAD), "| --- " * len(HEAD) + "|", sep="\n")
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="bench-ranks-") as name:
        folder = Path(name)
        one = folder / "one"
        row("import", 1, 1, measure("import", options.trace, "--out", one, "--quiet"))
        row("tables and report", 1, 1, measure("report", one, "--quiet"))
        for workers in options.workers:
            job = make_job(folder / "map", one, max(options.workers))
            for rank in read_manifest(job).ranks:
                shutil.rmtree(job.rank(rank.rank).tables)
            command = ("report", job.path, "--workers", workers, "--quiet")
            row("tables of ranks", max(options.workers), workers, measure(*command))
            shutil.rmtree(job.path)
        for ranks in options.ranks:
            job = make_job(folder / f"job{ranks}", one, ranks)
            took = measure("report", job.path, "--quiet")
            size = (job.report / "report.html").stat().st_size / 1e6
            row("report of the job", ranks, 1, took, f"{size:.1f}")
            shutil.rmtree(job.path)


def make_job(path: Path, one: Path, ranks: int) -> RunDir:
    """Make a job whose ranks are links to the files of one run."""
    job, source = RunDir(path), read_manifest(RunDir(one))
    record = RankRecord(0, file="trace", sha256=source.steps[0].inputs["sha256"])
    for rank in range(ranks):
        shutil.copytree(
            one,
            job.rank(rank).path,
            copy_function=os.link,
            ignore=shutil.ignore_patterns("report"),
        )
    records = [replace(record, rank=rank) for rank in range(ranks)]
    facts = asdict(Manifest("job", "", {"name": "job"})) | {"ranks": records}
    write_manifest(job, Manifest(**facts))
    return job


def measure(*words: object) -> tuple[float, float, float]:
    """Run prof; return wall and CPU seconds of all its processes, and the peak of one in MiB."""
    argv = [sys.executable, "-m", "nsight_prof", *map(str, words)]
    started = time.monotonic()
    quiet = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
    pid = os.posix_spawn(sys.executable, argv, {**os.environ}, file_actions=quiet)
    _, status, used = os.wait4(pid, 0)
    if status:
        sys.exit(f"error: {' '.join(argv)} ended with {os.waitstatus_to_exitcode(status)}")
    return time.monotonic() - started, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def row(
    what: str, ranks: int, workers: int, took: tuple[float, float, float], html: str = ""
) -> None:
    """Print one row of the table."""
    wall, cpu, peak = took
    cells = (what, ranks, workers, f"{wall:.1f}", f"{cpu:.1f}", f"{cpu / ranks:.2f}")
    print(("| {} " * len(HEAD) + "|").format(*cells, f"{peak:,.0f}", html), flush=True)


if __name__ == "__main__":
    main()
