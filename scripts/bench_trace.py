"""Compares our reader of long nsys traces with `nsys stats` and `nsys-ai`: time and peak memory.

    bench_trace.py --source TRACE.sqlite [--launches 10000000] [--nsys NSYS] [--nsys-ai NSYS_AI]

The long trace is made from a real one by scale_nsys_sqlite.py (folder --tools). That tool shifts
the correlation ids of each table by the table's own maximum, so that most kernels of the copies
belong to no API call; --join gives kernels and calls the same shift, as in a real trace. Every
reader runs in a process of its own, imports included, on a warm file; the table shows wall and CPU
seconds and the peak resident memory, and the ratio theirs / ours.
"""

from __future__ import annotations

import argparse
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HEAD = ("reader", "wall s", "CPU s", "peak MiB", "wall theirs/ours", "CPU theirs/ours")
CALL_TABLES = ("KERNEL", "MEMCPY", "MEMSET", "RUNTIME")
OURS = {
    "kernels": "trace.kernels(with_stages=False)",
    "kernels with stages": "trace.kernels()",
    "attribution": "trace.stages(); trace.stage_kernels(); trace.range_kernels()",
    "all tables": "trace.kernels(); trace.stages(); trace.stage_kernels(); trace.gpus(); "
    "trace.write_launches(pathlib.Path(sys.argv[2])); trace.memory_operations(); trace.api_calls()",
}
READ = """import pathlib, sys
from nsight_prof.parsers.nsys.trace import open_trace
with open_trace(pathlib.Path(sys.argv[1])) as trace:
    {calls}
"""
REPORT = """import sys, tempfile
from nsight_prof.orchestrator.cli import main
with tempfile.TemporaryDirectory(dir=sys.argv[2]) as run:
    sys.exit(main(["import", sys.argv[1], "--out", run, "-q"]) or main(["report", run, "-q"]))
"""


@dataclass
class Measured:
    """One process: wall and CPU seconds, peak resident MiB."""

    wall_s: float
    cpu_s: float
    peak_mib: float


def main() -> None:
    """Make the trace, run all readers, print one table."""
    options = _options()
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="bench-trace-") as folder:
        trace = Path(folder) / "long.sqlite"
        make_trace(options, trace)
        print(describe(trace), flush=True)
        warm(trace)
        rows: list[tuple[str, ...]] = [HEAD]
        ours: dict[str, Measured] = {}
        for name, command in commands(options, trace).items():
            task = name.split(":")[0]
            measured = best(command, options.repeat)
            reference = ours.setdefault(task, measured)
            rows.append(_row(name, measured, reference))
            print(*rows[-1], file=sys.stderr, flush=True)
        print(render(rows))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--source", type=Path, required=True, help="a real SQLite export")
    parser.add_argument("--launches", type=int, default=1_000_000)
    parser.add_argument("--join", action="store_true", help="make all kernels of the copies join")
    parser.add_argument("--tools", type=Path, default=ROOT.parent / "shared" / "tools")
    parser.add_argument("--nsys", default="nsys", help="nsys command; empty: leave it out")
    parser.add_argument("--nsys-ai", default="", help="nsys-ai command; it changes the trace file")
    parser.add_argument(
        "--only", default="", help="tasks: kernels, all tables, tables and pages, …"
    )
    parser.add_argument("--repeat", type=int, default=1, help="take the fastest of so many runs")
    parser.add_argument("--folder", type=Path, help="where the trace is made (1.1 GB a million)")
    return parser.parse_args()


def make_trace(options: argparse.Namespace, trace: Path) -> None:
    """Repeat the source until it has the wanted number of launches."""
    tool = options.tools / "scale_nsys_sqlite.py"
    argv = [sys.executable, str(tool), str(options.source), str(trace), str(options.launches)]
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)
    if options.join:
        join_calls(options.source, trace)


def join_calls(source: Path, trace: Path) -> None:
    """Give the correlation ids of copy i the shift i x (largest id of all tables + 1)."""
    with sqlite3.connect(source) as db:
        known = {name for (name,) in db.execute("SELECT name FROM sqlite_master")}
        tables = [t for t in (f"CUPTI_ACTIVITY_KIND_{n}" for n in CALL_TABLES) if t in known]
        query = "SELECT count(*), max(correlationId) FROM {}"
        facts = {table: db.execute(query.format(table)).fetchone() for table in tables}
    common = max(top for _, top in facts.values())
    with sqlite3.connect(trace, isolation_level=None) as db:
        db.execute("PRAGMA journal_mode=OFF")
        db.execute("PRAGMA synchronous=OFF")
        for table, (rows, top) in facts.items():
            db.execute(
                f"UPDATE {table} SET correlationId ="
                f" correlationId + (rowid - 1) / {rows} * ({common} - {top})"
            )


def describe(trace: Path) -> str:
    """Size of the trace in rows and bytes."""
    with sqlite3.connect(f"file:{trace}?mode=ro", uri=True) as db:
        names = ("CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS")
        kernels, calls, ranges = (
            db.execute(f"SELECT max(rowid) FROM {n}").fetchone() for n in names
        )
    size = trace.stat().st_size / 1e9
    return (
        f"{kernels[0]:,} launches, {calls[0]:,} API calls, {ranges[0]:,} NVTX events, {size:.2f} GB"
    )


def warm(trace: Path) -> None:
    """Read the file once, so that the first reader has no cold file."""
    with trace.open("rb", buffering=0) as stream:
        while stream.read(1 << 20):
            pass


def commands(options: argparse.Namespace, trace: Path) -> dict[str, list[str]]:
    """Commands by `task: reader`; ours comes first of each task."""
    parquet = str(trace.with_suffix(".parquet"))
    found = {
        f"{task}: prof": [sys.executable, "-c", READ.format(calls=calls), str(trace), parquet]
        for task, calls in OURS.items()
    }
    found["tables and pages: prof"] = [sys.executable, "-c", REPORT, str(trace), str(trace.parent)]
    if options.nsys:
        stats = [options.nsys, "stats", "-q", "--format", "csv", "-r"]
        found["kernels: nsys stats cuda_gpu_kern_sum"] = [*stats, "cuda_gpu_kern_sum", str(trace)]
        found["attribution: nsys stats nvtx_gpu_proj_sum"] = [
            *stats,
            "nvtx_gpu_proj_sum",
            str(trace),
        ]
    if options.nsys_ai:
        skill = [options.nsys_ai, "skill", "run"]
        found["kernels: nsys-ai top_kernels"] = [*skill, "top_kernels", str(trace)]
        found["attribution: nsys-ai nvtx_layer_breakdown"] = [
            *skill,
            "nvtx_layer_breakdown",
            str(trace),
        ]
    return {n: c for n, c in found.items() if not options.only or n.split(":")[0] in options.only}


def best(command: list[str], repeat: int) -> Measured:
    """Fastest of some runs."""
    return min((measure(command) for _ in range(repeat)), key=lambda measured: measured.wall_s)


def measure(command: list[str]) -> Measured:
    """Run a command; its peak memory includes that of its children."""
    begin = time.perf_counter()
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=output)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        text = output.read().decode(errors="replace")
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}:\n{text[-2000:]}")
    cpu = usage.ru_utime + usage.ru_stime
    return Measured(time.perf_counter() - begin, cpu, usage.ru_maxrss / 1024)


def _row(name: str, measured: Measured, ours: Measured) -> tuple[str, ...]:
    times = (f"{measured.wall_s:.2f}", f"{measured.cpu_s:.2f}", f"{measured.peak_mib:.0f}")
    if measured is ours:
        return (name, *times, "", "")
    wall, cpu = measured.wall_s / ours.wall_s, measured.cpu_s / ours.cpu_s
    return (name, *times, f"{wall:.1f}x", f"{cpu:.1f}x")


def render(rows: Sequence[tuple[str, ...]]) -> str:
    """One aligned text table."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if n == 0 else cell.rjust(width)
            for n, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


if __name__ == "__main__":
    main()
