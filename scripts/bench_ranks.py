#!/usr/bin/env python3
"""Measures what a job of many ranks costs and how true its report is, beside the limits set for it.

    bench_ranks.py [--trace TRACE.sqlite] [--small SMALL.sqlite] [--only 1,2,10] [--hta PYTHON]
        [--nsys NSYS] [--rows ROWS.jsonl] [--write docs/ranks.md]

With --write the rows of limits that were not measured stay as they are in the page, each with the
commit of its code.
All eleven limits are printed; without TRACE, SMALL or HTA those that need them are "not shown".
TRACE is one rank at full size: a long trace made from a real one (bench_trace.py). The ranks of a
job are links to the run of one trace: CPU time and memory are those of real ranks, reading from
disks is not. Each measurement is a process of its own, imports included. SMALL is read by prof and
by HolisticTraceAnalysis, which an interpreter of its own has (--hta). What is planted is found in
made-up tables and in recorded traces of two GPUs. Wall times mean nothing on a busy machine.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as Tree
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats  # type: ignore[import-untyped]

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from nsight_prof.orchestrator.report.reporting import job_tables
from nsight_prof.orchestrator.system.process_tree import adopting
from nsight_prof.parsers import tables
from nsight_prof.parsers.build.rank_tables import build_rank_tables
from nsight_prof.parsers.cells import records
from nsight_prof.parsers.run.directory import (
    Manifest,
    RankRecord,
    RunDir,
    decompress,
    read_manifest,
    write_manifest,
)
from nsight_prof.reports.engine.rank_times import straggler, times_row, waiting_findings
from nsight_prof.reports.page.writer import Writer
from scripts.pages.marked import write_marked
from tests.made_up_ranks import Planted, write_job

ROOT = Path(__file__).resolve().parent.parent
HEAD = ("#", "what", "limit", "measured", "", "code")
MAP_RANKS, RANKS, MOST_RANKS = 2, 64, 1024
IMPORTED = (2, 4)
"""Ranks of two imports, whose difference is what a rank costs beside the start of prof."""
OFFSET_NS, DRIFT_PPM = 3_200_000, 8.0
CAUSES = {
    "matrix products +20 %": (Planted(matrix=1.2), 8 * 20_000, "matrix products take 20"),
    "half the clock": (
        Planted(matrix=2.0, others=2.0),
        8 * 100_000 + 12 * 25_000,
        "A lower clock",
    ),
    "5 ms of the host": (Planted(sleep_ns=5_000_000), 5_000_000, "Its host is late"),
}
RANK, RANK_FAULTS = "orchestrator/test_rank.py", "faults/test_rank_faults.py"
ON_RAY, IMPORTS = "orchestrator/test_on_ray.py", "orchestrator/test_import_many.py"
RECIPE, TIMES = "orchestrator/test_ranks_recipe.py", "parsers/ranks/test_ranks.py"
GROUPS = "parsers/ranks/test_subgroups.py"
# What breaks a job, and the tests that hold what prof does then.
FAULTS = {
    "worker of Ray killed": [(ON_RAY, "test_the_commands_on_a_cluster")],
    "node of Ray lost": [
        (ON_RAY, "test_a_node_that_is_lost_in_the_middle"),
        ("orchestrator/test_every_gpu.py", "test_each_gpu_is_measured_once"),
    ],
    "import killed": [
        (ON_RAY, "test_an_import_that_was_killed"),
        (ON_RAY, "test_an_import_that_lost_a_worker"),
    ],
    "engine's address dead": [(ON_RAY, "test_an_address_where_nobody_answers")],
    "report missing": [(RANK, "test_what_goes_wrong_after_the_program")],
    "report empty, of another nsys": [(RANK_FAULTS, "test_a_report_that_cannot_be_read")],
    "report cut off": [
        (RANK, "test_what_goes_wrong_after_the_program"),
        (IMPORTS, "test_a_rank_that_another_process_cannot_read"),
    ],
    "report of another job": [
        (IMPORTS, "test_traces_of_other_times"),
        (RANK, "test_two_jobs_in_one_folder"),
    ],
    "two ranks of one number": [
        (IMPORTS, "test_two_files_of_one_rank"),
        (RANK, "test_two_jobs_in_one_folder"),
    ],
    "rank dead before the capture": [
        (RANK_FAULTS, "test_a_rank_that_never_began"),
        (RANK_FAULTS, "test_a_rank_of_which_every_process_is_killed"),
    ],
    "cancelled in the middle of the export": [
        (RANK_FAULTS, "test_a_job_that_is_cancelled"),
        (RANK, "test_a_launcher_that_kills"),
    ],
    "shared folder full": [(RANK, "test_a_shared_folder_that_is_full")],
    "scratch disk full": [
        (RANK_FAULTS, "test_a_disk_of_the_node"),
        (RANK_FAULTS, "test_what_nsys_wrote_until_its_disk_was_full"),
    ],
    "NFS without locks, without links": [(RANK_FAULTS, "test_a_shared_folder_without")],
    "GPUs differ by node": [(IMPORTS, "test_nodes_may_have_unlike_numbers")],
    "no NTP": [(IMPORTS, "test_nodes_whose_clocks_are_a_day_apart")],
    "elastic: job begun again, steps differ": [
        (RANK, "test_a_job_that_torchrun_goes_on_with"),
        (RANK, "test_a_job_that_its_launcher_began_again"),
        (TIMES, "test_ranks_with_unlike_steps"),
    ],
    "few of the ranks traced": [(RANK_FAULTS, "test_nothing_is_stated_of_the_many")],
    "no payloads": [(GROUPS, "test_a_kind_without_its_communicator")],
    "several communicators": [
        (GROUPS, "test_only_the_group_of_a_late_rank"),
        (GROUPS, "test_lateness_is_what_the_job_loses"),
        ("parsers/ranks/test_recorded_jobs.py", "test_groups_of_two"),
        ("parsers/ranks/test_two_gpus.py", "test_payloads_are_what"),
    ],
    "secrets in the environment": [(RANK_FAULTS, "test_secrets_of_a_ranks")],
    "ranks missing": [
        (RANK, "test_a_job_with_missing_ranks"),
        (RANK, "test_a_job_without_any_trace"),
        (RECIPE, "test_a_rank_without_a_trace"),
    ],
    "counting hangs, resume": [
        ("orchestrator/test_rank_counters.py", "test_a_program_that_hangs_under_ncu"),
        ("orchestrator/test_rank_counters.py", "test_a_recipe_counts_its_ranks"),
    ],
}
PLAIN = {
    "counting": "for i in range(20_000): pass",
    "copies of memory": "block.copy()",
}
TOGETHER = """import os, sys, time
import numpy as np
core, begin, code = sys.argv[1:]
os.sched_setaffinity(0, {int(core)})
code, block, times = compile(code, "plain", "exec"), np.ones(1 << 21), 0
exec(code)
time.sleep(max(0.0, float(begin) - time.monotonic()))
while (now := time.monotonic()) < float(begin) + 0.5:
    exec(code)
    times += 1
print(times / (now - float(begin)))
"""
SPEEDUPS = {1: 1.0, 2: 1.8, 8: 6.5}
"""Workers, and how many times as fast as one they shall be."""
NAP_S = 0.1
START = f"""import sys, time
from nsight_prof.orchestrator.workers.mapping import executor_of, mapped
if __name__ == "__main__":
    workers = int(sys.argv[1])
    with executor_of(workers) as executor:
        from nsight_prof.orchestrator.imports import reading
        # Who answers at once would answer for others, too.
        list(mapped(time.sleep, [{NAP_S}] * workers, executor))
"""
PARQUET = """import sqlite3, sys
import pandas as pd
db = sqlite3.connect(f"file:{sys.argv[1]}?mode=ro", uri=True)
for table in (
    "ANALYSIS_DETAILS", "CUPTI_ACTIVITY_KIND_KERNEL", "TARGET_INFO_SESSION_START_TIME"
):
    pd.read_sql_query(f"SELECT * FROM {table}", db).to_parquet(f"{sys.argv[2]}/{table}.parquet")
"""
HTA = """import sys
from hta.trace_analysis import TraceAnalysis
trace = TraceAnalysis(trace_dir=sys.argv[1])
trace.get_temporal_breakdown(visualize=False)
trace.get_gpu_kernel_breakdown(visualize=False)
"""


@dataclass(frozen=True)
class Cost:
    """A process and all that it started: seconds, and MiB of the largest of them."""

    wall_s: float
    cpu_s: float
    peak_mib: float


@dataclass(frozen=True)
class Row:
    """A limit and what was measured; `holds` is None where this machine cannot show it."""

    number: int
    what: str
    limit: str
    measured: str
    holds: bool | None
    commit: str = ""

    def line(self) -> str:
        """Return the row of the table."""
        verdict = {True: "holds", False: "missed", None: "not shown"}[self.holds]
        cells = (str(self.number), self.what, self.limit, self.measured, verdict, self.commit)
        return "| " + " | ".join(cells) + " |"


def main() -> None:
    """Measure, and print one table."""
    options = _options()
    chosen = {int(number) for number in options.only.split(",")} if options.only else set()
    rows: list[Row] = []
    if options.rows is not None and options.rows.exists():
        kept = [Row(**json.loads(line)) for line in options.rows.read_text().splitlines()]
        rows = [row for row in kept if chosen and row.number not in chosen]
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="bench-ranks-") as name:
        for numbers, measure in MEASURES.items():
            if chosen and not chosen & set(numbers):
                continue
            folder = Path(name) / str(numbers[0])
            folder.mkdir()
            for row in measure(options, folder):
                row = replace(row, commit=options.commit)
                rows.append(row)
                print(row.line(), flush=True)
            shutil.rmtree(folder)
            if options.rows is not None:
                options.rows.write_text("".join(json.dumps(asdict(row)) + "\n" for row in rows))
    if options.write is not None:
        measured = {row.number for row in rows}
        lines = [row.line() for row in rows] + [
            line
            for line in options.write.read_text(encoding="utf-8").splitlines()
            if (number := _number(line)) and number not in measured
        ]
        head = ["| " + " | ".join(HEAD) + " |", "|" + " --- |" * len(HEAD)]
        lines.sort(key=_number)
        write_marked(options.write, Path(__file__).name, "\n".join(head + lines))


def _number(line: str) -> int:
    """Return the number of the limit that a line of the table is about; 0 for any other line."""
    number, *cells = line.removeprefix("| ").split(" | ")
    return int(number) if len(cells) == len(HEAD) - 1 and number.isdecimal() else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--trace", type=Path, help="SQLite export of nsys, long")
    parser.add_argument("--small", type=Path, help="one that HTA can read as well")
    parser.add_argument("--hta", help="Python that has HolisticTraceAnalysis")
    parser.add_argument(
        "--nsys", type=Path, help="nsys whose recipe is run, by the Python of --hta"
    )
    parser.add_argument("--only", default="", help="numbers of limits, comma separated")
    parser.add_argument("--folder", type=Path, help="where the runs are made")
    parser.add_argument("--seconds", type=float, default=1e9, help="that limit 3 may take")
    parser.add_argument("--rounds", type=int, default=7, help="of limit 3")
    parser.add_argument("--workers", type=int, default=max(SPEEDUPS), help="at most, of limit 3")
    parser.add_argument(
        "--rows", type=Path, help="file that keeps what was measured, for one limit at a time"
    )
    parser.add_argument("--write", type=Path, help="page to write the table to")
    described = ["git", "-C", str(ROOT), "describe", "--always", "--dirty"]
    checkout = (ROOT / ".git").exists()
    commit = subprocess.check_output(described, text=True).strip() if checkout else ""
    parser.add_argument("--commit", default=commit, help="of the code, where this is no checkout")
    return parser.parse_args()


def costs(options: argparse.Namespace, folder: Path) -> Iterator[Row]:
    """Measure CPU time and memory with ranks of full size."""
    if options.trace is None:
        lacking = "not available: no --trace"
        yield Row(1, f"{RANKS} ranks of 1 M launches", "450 CPU s", lacking, None)
        yield Row(2, "largest process of a worker", "768 MiB", lacking, None)
        return
    one = folder / "one"
    started = prof("import", options.trace, "--out", one, "--quiet")
    job = make_job(folder / "map", one, MAP_RANKS)
    for rank in read_manifest(job).ranks:
        shutil.rmtree(job.rank(rank.rank).tables)
    mapped = prof("report", job.path, "--workers", MAP_RANKS, "--quiet")
    shutil.rmtree(job.path)
    reduced = {}
    for ranks in (MAP_RANKS, 8, RANKS):
        job = make_job(folder / f"job{ranks}", one, ranks)
        reduced[ranks] = prof("report", job.path, "--quiet")
        shutil.rmtree(job.path)
    traces, spent = unlike_traces(options.trace, folder, max(IMPORTED)), []
    worker = max(mapped.peak_mib, started.peak_mib)
    for ranks in IMPORTED:
        out = folder / f"of{ranks}"
        took = prof("import", *traces[:ranks], "--out", out, "--workers", 2, "--quiet")
        shutil.rmtree(out)
        spent.append(took.cpu_s)
        worker = max(worker, took.peak_mib)
    a_rank = (spent[1] - spent[0]) / (IMPORTED[1] - IMPORTED[0])
    imported = spent[1] + (RANKS - IMPORTED[1]) * a_rank
    total = imported + reduced[RANKS].cpu_s
    yield Row(
        1,
        f"{RANKS} ranks of {launches(options.trace):,} launches: import, tables, report",
        "450 CPU s",
        f"{total:,.0f} CPU s: {imported:,.0f} for import and tables, extrapolated by {a_rank:.1f} "
        f"a rank from {IMPORTED[0]} and {IMPORTED[1]} ranks ({spent[0]:.1f} and {spent[1]:.1f} "
        f"CPU s with 2 workers), + {reduced[RANKS].cpu_s:.1f} for the report; one rank alone, with "
        f"the start of prof: {started.cpu_s:.1f}",
        total <= 450,
    )
    yield Row(2, "largest process of a worker", "768 MiB", f"{worker:,.0f} MiB", worker <= 768)
    few, many = reduced[8].peak_mib, reduced[RANKS].peak_mib
    yield Row(
        2,
        f"reduce over {RANKS} ranks against 8",
        "1,024 MiB, +10 %",
        f"{many:,.0f} and {few:,.0f} MiB, {many / few - 1:+.0%}",
        many <= 1024 and many <= 1.1 * few,
    )


def unlike_traces(trace: Path, folder: Path, count: int) -> list[Path]:
    """Copy a trace `count` times, each with a string of its own: equal ones are refused."""
    traces = [Path(shutil.copy(trace, folder / f"rank{n}.sqlite")) for n in range(count)]
    for number, path in enumerate(traces):
        with closing(sqlite3.connect(path)) as db:
            named = f"SELECT max(id) + 1, 'rank {number}' FROM StringIds"
            db.execute(f"INSERT INTO StringIds {named}")
            db.commit()
    return traces


def scaling(options: argparse.Namespace, folder: Path) -> Iterator[Row]:
    """Import ranks by one worker, by two and where there are cores by eight, round after round.

    Each worker has a core (see `spread`). A round has an import by each number of workers, in the
    opposite order of the round before, and plain programs on the same cores before each import.
    Cores whose speed varies slow either import down, as often in one order as in the other: what
    counts is the geometric mean over all rounds, and its 90 % interval by Student's t decides. The
    limit keeps the start of the engine apart: what prof takes until each worker has answered is
    measured by itself and taken off. Each measurement is printed to stderr.
    """
    if options.trace is None:
        yield Row(3, "1 to 2 workers", "1.8 times as fast", "not available: no --trace", None)
        return
    began, cores = time.monotonic(), os.sched_getaffinity(0)
    threads = physical(sorted(cores))
    counts = [n for n in SPEEDUPS if n <= min(len(threads), options.workers)]
    chosen = {workers: spread(threads, workers) for workers in counts}
    traces = unlike_traces(options.trace, folder, max(4, counts[-1]))
    _engine("import", 1, traces[:1], folder / "job")  # modules and files are read once
    rounds: list[Round] = []
    longest, order = 0.0, counts
    while len(rounds) < options.rounds and time.monotonic() - began + longest < options.seconds:
        start = time.monotonic()
        rounds.append(_round(order, chosen, cores, traces, folder / "job"))
        longest, order = max(longest, time.monotonic() - start), order[::-1]
    os.sched_setaffinity(0, cores)
    starts = {n: float(np.median([each.started[n] for each in rounds])) for n in counts}
    found = {n: _speedups(rounds, starts, n) for n in counts[1:]}
    for n, (_, _, faster) in found.items():
        _tell(what="speed-up", workers=n, rounds=[round(times, 4) for times in faster])
    plain = {
        name: {n: float(np.median([each.plain(name, n) for each in rounds])) for n in found}
        for name in PLAIN
    }
    seconds = {
        what: _and([f"{_median(rounds, what, n):.1f}" for n in counts])
        for what in ("imported", "started", "cpu_s")
    }
    can_show = all(times >= SPEEDUPS[n] for n, times in plain["counting"].items())
    holds = all(low >= SPEEDUPS[n] for n, (low, _, _) in found.items())
    misses = any(high < SPEEDUPS[n] for n, (_, high, _) in found.items())
    intervals = _and([f"{low:.3f} to {high:.3f} by {n}" for n, (low, high, _) in found.items()])
    means = {n: float(stats.gmean(faster)) for n, (_, _, faster) in found.items()}
    yield Row(
        3,
        f"1 to {_and(counts[1:])} workers, each with a core: import of {len(traces)} ranks of "
        f"{launches(options.trace):,} launches, files in {folder.parents[1]} (`--only 3`)",
        f"{_times(SPEEDUPS, counts[1:])}, start of the engine apart",
        f"{_times(means, counts[1:])} (geometric mean of {len(rounds)} rounds; 90 % interval "
        f"{intervals}); {seconds['imported']} s, of which {seconds['started']} s are the start, "
        f"and {seconds['cpu_s']} CPU s. As many "
        "plain programs on these cores do "
        + " and ".join(f"{_times(times, counts[1:])} as much of {n}" for n, times in plain.items())
        + f". Cores {_and([str(core) for core in chosen[counts[-1]]])} of {len(cores)}",
        True if holds else False if misses and can_show else None,
    )


@dataclass
class Round:
    """Imports by each number of workers in `order`, and what was as fast as how just then.

    `done` has what plain programs did, as many as workers, before each import and after the last.
    """

    order: Sequence[int]
    started: dict[int, float] = field(default_factory=dict)
    imported: dict[int, float] = field(default_factory=dict)
    cpu_s: dict[int, float] = field(default_factory=dict)
    others: dict[int, float] = field(default_factory=dict)
    done: dict[tuple[str, int], list[float]] = field(default_factory=dict)

    def plain(self, name: str, workers: int) -> float:
        """Return how many times as much as one that many plain programs did."""
        done = self.done[name, workers], self.done[name, 1]
        return float(np.median(done[0]) / np.median(done[1]))


def _round(
    order: Sequence[int],
    chosen: Mapping[int, Sequence[int]],
    cores: Collection[int],
    traces: Sequence[Path],
    job: Path,
) -> Round:
    measured = Round(list(order))

    def look(names: Collection[str]) -> None:
        for name, n in [(name, n) for name in names for n in sorted(order)]:
            measured.done.setdefault((name, n), []).append(together(chosen[n], PLAIN[name]))

    for workers in order:
        look(PLAIN if workers == order[0] else ["counting"])
        os.sched_setaffinity(0, chosen[workers])  # one alone would read by threads on all
        measured.started[workers] = _engine("start", workers, traces, job).wall_s
        before, start = busy_s(cores), time.monotonic()
        took = _engine("import", workers, traces, job)
        busy = (busy_s(cores) - before - took.cpu_s) / (time.monotonic() - start)
        measured.imported[workers], measured.cpu_s[workers] = took.wall_s, took.cpu_s
        measured.others[workers] = busy
        _tell(what="import", workers=workers, **asdict(took), others=busy)
        os.sched_setaffinity(0, cores)
    look(["counting"])
    found = asdict(measured) | {"done": {f"{n} {w}": d for (n, w), d in measured.done.items()}}
    _tell(what="round", **found)
    return measured


def _median(rounds: Sequence[Round], what: str, workers: int) -> float:
    return float(np.median([getattr(each, what)[workers] for each in rounds]))


def _speedups(
    rounds: Sequence[Round], starts: Mapping[int, float], workers: int
) -> tuple[float, float, list[float]]:
    """Return how many times as fast as one `workers` were: 90 % interval of the mean, each."""
    faster = [
        (each.imported[1] - starts[1]) / (each.imported[workers] - starts[workers])
        for each in rounds
    ]
    logs = np.log(faster)
    low, high = stats.t.interval(0.9, len(logs) - 1, logs.mean(), stats.sem(logs))
    return float(np.exp(low)), float(np.exp(high)), faster


def _tell(**found: Any) -> None:
    print(json.dumps(found), file=sys.stderr, flush=True)


def _and(words: Sequence[object]) -> str:
    return " and ".join(map(str, words)) if len(words) < 3 else ", ".join(map(str, words))


def _times(faster: Mapping[int, float], counts: Sequence[int]) -> str:
    return _and([f"{faster[n]:.4g} times by {n}" for n in counts])


def _engine(what: str, workers: int, traces: Sequence[Path], job: Path) -> Cost:
    """Import all traces, or do nothing but start and end what would."""
    if what == "start":
        took = cost([sys.executable, "-c", START, str(workers)])
        return replace(took, wall_s=took.wall_s - NAP_S)
    took = prof("import", *traces, "--out", job, "--workers", workers, "--quiet")
    shutil.rmtree(job)
    return took


def physical(cores: Sequence[int]) -> list[int]:
    """Return one of the cores for each that is one, where the system tells which are threads."""
    known = Path("/sys/devices/system/cpu")
    found: dict[object, int] = {}
    for core in cores:
        siblings = known / f"cpu{core}/topology/thread_siblings_list"
        found.setdefault(siblings.read_text() if siblings.exists() else core, core)
    return list(found.values())


def spread(cores: Sequence[int], count: int) -> list[int]:
    """Return `count` of the cores that disturb each other least, as programs that count tell.

    Cores of a virtual machine may be threads of one core, which the system need not know. Tried
    are those that are neighbours, and every second, fourth, … one, twice in turn; each is printed
    to stderr.
    """
    groups = [cores[::step][:count] for step in (1, 2, 4, 8, 16) if count <= len(cores[::step])]
    if count == 1 or len(groups) == 1:
        return list(groups[0])
    tried = [[together(group, PLAIN["counting"]) for group in groups] for _ in range(2)]
    done = np.max(tried, axis=0)
    for group, times in zip(groups, done.tolist(), strict=True):
        _tell(what="cores", cores=list(group), done=times)
    return list(groups[int(np.argmax(done))])


def together(cores: Sequence[int], code: str) -> float:
    """Return how often `code` is run by programs that each have one of the cores, in half a second.

    They begin when all have had time to start.
    """
    begin = time.monotonic() + 0.25 + 0.05 * len(cores)
    programs = [
        subprocess.Popen(
            [sys.executable, "-c", TOGETHER, str(core), str(begin), code],
            stdout=subprocess.PIPE,
        )
        for core in cores
    ]
    return sum(float(program.communicate()[0]) for program in programs)


def busy_s(cores: Collection[int]) -> float:
    """Return for how long these cores were busy since the machine started, in seconds."""
    ticks = 0
    for line in Path("/proc/stat").read_text().splitlines():
        name, *numbers = line.split()
        if name.startswith("cpu") and name[3:].isdecimal() and int(name[3:]) in cores:
            user, nice, system, _, _, irq, softirq, steal, *_ = map(int, numbers)
            ticks += user + nice + system + irq + softirq + steal
    return ticks / os.sysconf("SC_CLK_TCK")


def against_hta(options: argparse.Namespace, folder: Path) -> Iterator[Row]:
    """Give the same events of two ranks to both."""
    why = "no --hta" if options.hta is None else "no --small" if options.small is None else ""
    if (
        not why
        and subprocess.run([options.hta, "-c", "import hta"], capture_output=True).returncode
    ):
        why = f"{options.hta} has no HolisticTraceAnalysis"
    if why:
        yield Row(4, "memory against HTA", "HTA 5 times as much", f"not available: {why}", None)
        return
    traces = folder / "hta"
    traces.mkdir()
    for rank in (0, 1):
        write_kineto(options.small, traces / f"rank-{rank}.json", rank)
    theirs = cost([options.hta, "-c", HTA, str(traces)])
    one = folder / "one"
    started = prof("import", options.small, "--out", one, "--quiet")
    job = make_job(folder / "job", one, 2)
    here = prof("report", job.path, "--quiet")
    peak, cpu_s = max(started.peak_mib, here.peak_mib), 2 * started.cpu_s + here.cpu_s
    yield Row(
        4,
        f"2 ranks of {launches(options.small):,} launches: peak memory of the largest process",
        "HTA 5 times as much",
        f"HTA {theirs.peak_mib:,.0f} MiB, prof {peak:,.0f} MiB: {theirs.peak_mib / peak:.1f} "
        f"times. HTA {theirs.cpu_s:.0f} CPU s to sum kinds and kernels, prof {cpu_s:.0f} CPU s for "
        f"import, all tables and the report: {theirs.cpu_s / cpu_s:.1f} times"
        + "".join(compared_with_recipe(options, folder / "recipe", cpu_s, peak)),
        theirs.peak_mib >= 5 * peak,
    )


def compared_with_recipe(
    options: argparse.Namespace, folder: Path, cpu_s: float, peak_mib: float
) -> Iterator[str]:
    """Let nsys map the busy time of both ranks: all that `cuda_gpu_time_util_map` does.

    It reads tables that `nsys export` has written as Parquet, beside a report that it opens no
    more; these are made here of the same rows, and what that costs is not counted.
    """
    if options.nsys is None:
        yield ". nsys recipe: not available, no --nsys"
        return
    for rank in (0, 1):
        exported = folder / f"rank{rank}_pqtdir"
        exported.mkdir(parents=True)
        (folder / f"rank{rank}.nsys-rep").touch()
        time.sleep(0.1)  # what is no newer than the report is exported again
        # By another process: what is started begins with the peak memory of who starts it.
        argv = [sys.executable, "-c", PARQUET, str(options.small), str(exported)]
        subprocess.run(argv, check=True)
    path = os.pathsep.join((str(Path(options.hta).absolute().parent), os.environ["PATH"]))
    for mode in ("concurrent", "dask-futures"):
        out = folder.with_name(mode)
        argv = [str(options.nsys), "recipe", "cuda_gpu_time_util_map", "--mode", mode]
        took = cost([*argv, "--input", str(folder), "--output", str(out)], {"PATH": path})
        if not (out / "analysis.parquet").is_file():
            sys.exit(f"error: {mode} made no analysis.parquet")
        yield (
            f". nsys recipe cuda_gpu_time_util_map ({mode}), of Parquet made before, "
            f"{took.peak_mib:,.0f} MiB and {took.cpu_s:.1f} CPU s for the busy time alone: "
            f"{took.peak_mib / peak_mib:.2f} and {took.cpu_s / cpu_s:.2f} times"
        )


def write_kineto(trace: Path, path: Path, rank: int) -> None:
    """Write kernels, calls and ranges of an nsys export as a trace of the torch profiler."""
    with closing(sqlite3.connect(f"file:{trace}?mode=ro", uri=True)) as db, path.open("w") as out:
        names: dict[int, str] = dict(db.execute("SELECT id, value FROM StringIds"))
        facts = {"schemaVersion": 1, "distributedInfo": {"rank": rank, "world_size": 2}}
        out.write(json.dumps(facts)[:-1] + ', "traceEvents": [')
        queries = {
            "kernel": "SELECT start, end, shortName, correlationId, streamId, deviceId"
            " FROM CUPTI_ACTIVITY_KIND_KERNEL",
            "cuda_runtime": "SELECT start, end, nameId, correlationId, globalTid % 65536,"
            " 1000 FROM CUPTI_ACTIVITY_KIND_RUNTIME",
            "cpu_op": "SELECT start, end, coalesce(textId, 0), 0, globalTid % 65536, 1000"
            " FROM NVTX_EVENTS WHERE end IS NOT NULL",
        }
        comma = ""
        for category, query in queries.items():
            for start, end, name, correlation, thread, process in db.execute(query):
                event: dict[str, Any] = {
                    "ph": "X", "cat": category, "name": names.get(name, "range"), "pid": process,
                    "tid": thread, "ts": start / 1e3, "dur": (end - start) / 1e3,
                    "args": {"correlation": correlation, "stream": thread, "External id": 1},
                }  # fmt: skip
                if category == "cpu_op":
                    event["args"] = {"External id": 1}
                out.write(comma + json.dumps(event))
                comma = ",\n"
        out.write("]}")


def clocks(options: argparse.Namespace, folder: Path) -> Iterator[Row]:
    """Shift the second GPU of the recorded trace of two tensor-parallel ranks."""
    from tests.orchestrator.test_import_many import split

    packed = ROOT / "captures/h200-vllm-tensor-parallel/steps/1-trace/trace.sqlite.xz"
    both = folder / "both.sqlite"
    decompress(packed, both)
    traces = [split(both, gpu, folder / f"rank{gpu}.sqlite") for gpu in (0, 1)]
    shift(traces[1])
    job = folder / "job"
    prof("import", *traces, "--out", job, "--quiet")
    prof("report", job, "--format", "md", "--quiet")
    found = tables.read(RunDir(job).tables, "rank_times").iloc[1]
    # One capture has one clock: what is planted is all that the two differ by.
    offset = found["clock_offset_ns"] - OFFSET_NS - found["clock_at_ns"] * DRIFT_PPM * 1e-6
    drift = found["clock_drift_ppm"] - DRIFT_PPM
    yield Row(
        5,
        "planted clock (3.2 ms, 8 ppm) of a recorded trace of two GPUs",
        "0.5 us, 1 ppm",
        f"off by {abs(offset) / 1e3:.3f} us and {abs(drift):.3f} ppm; stated residual "
        f"{found['clock_residual_ns'] / 1e3:.2f} us",
        bool(abs(offset) <= 500 and abs(drift) <= 1),
    )


def shift(trace: Path) -> None:
    """Let the clock of a trace be OFFSET_NS late and DRIFT_PPM fast."""
    with closing(sqlite3.connect(trace)) as db:
        named = {name for (name,) in db.execute("SELECT name FROM sqlite_master")}
        activities = (f"CUPTI_ACTIVITY_KIND_{n}" for n in ("KERNEL", "MEMCPY", "MEMSET", "RUNTIME"))
        for table in named & {*activities, "NVTX_EVENTS"}:
            for column in ("start", "end"):
                shifted = f"{column} + {OFFSET_NS} + CAST({column} * {DRIFT_PPM}e-6 AS INTEGER)"
                db.execute(f"UPDATE {table} SET {column} = {shifted}")
        db.commit()


def stragglers(options: argparse.Namespace, folder: Path) -> Iterator[Row]:
    """Plant three causes in jobs of 2, 8 and 64 ranks, and nothing in 20."""
    right, worst = 0, 0.0
    for ranks in (2, 8, RANKS):
        for name, (planted, a_step, words) in CAUSES.items():
            rows = times(folder / f"{name} {ranks}", ranks, {ranks - 1: planted}, 0)
            slow = straggler(rows)
            sentence = Writer().text(next(iter(waiting_findings(rows, None))).verdict)
            right += slow is not None and slow.rank == ranks - 1 and words in sentence
            late = (slow.late_ns or 0.0) if slow is not None else 0.0
            worst = max(worst, abs(late / (100 * a_step) - 1))
    cases = 3 * len(CAUSES)
    yield Row(
        6,
        f"planted stragglers in {cases} made-up jobs: rank, cause and time",
        "all, within 5 %",
        f"{right} of {cases}, times within {worst:.1%}",
        right == cases and worst <= 0.05,
    )
    named = sum(straggler(times(folder / f"{n}", 8, {}, n)) is not None for n in range(20))
    yield Row(6, "named in 20 balanced jobs", "none", str(named), named == 0)


def times(folder: Path, ranks: int, planted: dict[int, Planted], seed: int) -> list[Any]:
    """Return table rank_times of a made-up job."""
    job = write_job(folder, ranks, planted, seed=seed)
    build_rank_tables(job)
    return [times_row(row) for row in records(tables.read(job.tables, "rank_times"))]


def two_gpus(options: argparse.Namespace, folder: Path) -> Iterator[Row]:
    """Hold recorded jobs of two H100 to CUDA events, and their parts to their sum."""
    from tests.parsers.ranks.test_recorded_jobs import against_events, fastest, messages

    for name in ("job", "known"):
        shutil.copytree(ROOT / "tests/fixtures/ranks" / name, folder / name)
        job_tables(RunDir(folder / name))
    known = ROOT / "tests/fixtures/ranks/known"
    traced, alone = messages(known), messages(known, "untraced")
    found, overhead = against_events(RunDir(folder / "known"), traced)
    off = (found["call"] / found["events"] - 1).abs()
    kernels = 1 - found["transfer"] / found["call"]
    large = traced["bytes"] >= 1 << 20
    slower = (fastest(traced)[large] / fastest(alone)[large] - 1).abs().max()
    yield Row(
        7,
        f"ten calls of {large.sum()} messages from 1 MiB on, by the trace against CUDA events of "
        "the same calls (2 H100)",
        "3 %",
        f"within {off.max():.1%}, once the {overhead / 1e3:.1f} us that two events take themselves "
        "(by messages up to 64 KiB) are taken out. By events alone, calls without a profiler "
        f"differ by at most {slower:.1%}. The kernels alone, of which bandwidths of reports are, "
        f"are {kernels.min():.1%} to {kernels.max():.1%} shorter: there are pauses between calls",
        bool(off.max() <= 0.03),
    )
    rows = tables.read(RunDir(folder / "job").tables, "rank_times")
    parts = ["compute_ns", "wait_ns", "transfer_ns", "copies_ns", "idle_ns"]
    apart = float((rows[parts].sum(axis=1) / rows["wall_ns"] - 1).abs().max())
    yield Row(8, "parts of a rank add up to its wall time", "0.5 %", f"{apart:.2%}", apart <= 0.005)


def untraced(options: argparse.Namespace, folder: Path) -> Iterator[Row]:
    """Measure what prof rank costs a rank that is not traced."""
    argv = [sys.executable, "-m", "nsight_prof", "rank", str(folder / "job"), "--trace", "0"]
    found = {}
    for name, words in (("prof", [*argv, "--", "/bin/true"]), ("alone", ["/bin/true"])):
        ran = [cost(words, {"RANK": "1", "WORLD_SIZE": "2"}).cpu_s for _ in range(9)]
        found[name] = float(np.median(ran))
    took = found["prof"] - found["alone"]
    yield Row(
        9, "prof rank on an untraced rank", "0.2 s once", f"{took:.2f} CPU s (median of 9), then "
        "the program itself", took < 0.2,
    )  # fmt: skip


def thousand(options: argparse.Namespace, folder: Path) -> Iterator[Row]:
    """Report 1,024 ranks: of a real trace, and made-up ones that share collectives."""
    one, jobs = folder / "one", ["of made-up steps and collectives"]
    real = ""
    if options.small is not None:
        prof("import", options.small, "--out", one, "--quiet")
        real = f"of {launches(options.small):,} launches each (a real trace)"
        jobs.append(real)
    for what in jobs:
        path = folder / what.partition(" (")[0]
        if what == real:
            make_job(path, one, MOST_RANKS)
            took = prof("report", path, "--quiet")
            size = (path / "report/report.html").stat().st_size / 1e6
        else:
            write_job(path, MOST_RANKS, {3: Planted(matrix=1.2)})
            took = cost([sys.executable, "-c", REPORT_TABLES, str(path)])
            size = (path / "report/report.html").stat().st_size / 1e6
        shutil.rmtree(path)
        yield Row(
            10, f"report of {MOST_RANKS:,} ranks {what}", "60 s, 15 MB",
            f"{took.cpu_s:.0f} CPU s, {took.peak_mib:,.0f} MiB, HTML {size:.1f} MB",
            took.cpu_s < 60 and size < 15,
        )  # fmt: skip


REPORT_TABLES = """import sys
from pathlib import Path
from nsight_prof.parsers.build.rank_tables import build_rank_tables
from nsight_prof.parsers.run.directory import RunDir
from nsight_prof.reports.engine.ranks import job_view
from nsight_prof.reports.render.report import render_job
job = RunDir(Path(sys.argv[1]))
build_rank_tables(job)
render_job(job_view(job.path), job.report)
"""


def faults(options: argparse.Namespace, folder: Path) -> Iterator[Row]:
    """Run the tests of what goes wrong."""
    tests = {test for tests in FAULTS.values() for test in tests}
    files = sorted({str(ROOT / "tests" / file) for file, _ in tests})
    chosen = " or ".join(sorted({name for _, name in tests}))
    report = folder / "tests.xml"
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}"]
    cost([*argv, *files, "-k", chosen], check=False)
    passed: dict[str, list[bool]] = {}
    for case in Tree.parse(report).getroot().iter("testcase"):
        passed.setdefault(case.get("name", ""), []).append(not len(case))
    lacking = []
    for fault, held in FAULTS.items():
        found = [all(ok) for _, start in held for name, ok in passed.items() if start in name]
        if len(found) < len(held) or not all(found):
            lacking.append(fault)
    names = f"; failed or skipped: {', '.join(lacking)}" if lacking else ""
    yield Row(
        11, "faults: exit code, hint, nothing lost, resume", "each a test",
        f"{len(FAULTS) - len(lacking)} of {len(FAULTS)} faults, {len(passed)} tests{names}",
        not lacking,
    )  # fmt: skip


MEASURES = {
    (1, 2): costs,
    (3,): scaling,
    (4,): against_hta,
    (5,): clocks,
    (6,): stragglers,
    (7, 8): two_gpus,
    (9,): untraced,
    (10,): thousand,
    (11,): faults,
}


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
    ranks_of_job = [replace(record, rank=rank) for rank in range(ranks)]
    facts = asdict(Manifest("job", "", {"name": "job"})) | {"ranks": ranks_of_job}
    write_manifest(job, Manifest(**facts))
    return job


def launches(trace: Path) -> int:
    """Return how many kernels a trace has."""
    with closing(sqlite3.connect(f"file:{trace}?mode=ro", uri=True)) as db:
        ((found,),) = db.execute("SELECT count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL")
    return int(found)


def prof(*words: object) -> Cost:
    """Run prof."""
    return cost([sys.executable, "-m", "nsight_prof", *map(str, words)])


def cost(argv: list[str], more: dict[str, str] | None = None, *, check: bool = True) -> Cost:
    """Run a program in the folder of the project; return what it and its processes cost.

    Also those that outlive it for a moment, as the process that prof's workers are forked from.
    """
    started = time.monotonic()
    quiet = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
    with adopting():
        # Modules are compiled once, as an installed prof has them.
        variables = {**os.environ, **(more or {}), "PYTHONDONTWRITEBYTECODE": ""}
        pid = os.posix_spawn(argv[0], argv, variables, file_actions=quiet)
        _, status, used = os.wait4(pid, 0)
        wall = time.monotonic() - started
        every = [used]
        with suppress(ChildProcessError):
            while True:
                every.append(os.wait4(-1, 0)[2])
    if status and check:
        sys.exit(f"error: {' '.join(argv)} ended with {os.waitstatus_to_exitcode(status)}")
    cpu_s = sum(used.ru_utime + used.ru_stime for used in every)
    return Cost(wall, cpu_s, max(used.ru_maxrss for used in every) / 1024)


if __name__ == "__main__":
    main()
