"""Reads vLLM's NVTX ranges of an engine step, and what the host did at each moment around them.

vLLM 0.20 gives each step of each worker the range `execute_context_R(T)_generation_R(T)` (requests
and tokens of prefill, then of decode; `Worker.annotate_profile`), and with
VLLM_NVTX_SCOPES_FOR_PROFILING ranges for parts of the engine's loop (`schedule: …`,
`gpu_model_runner: …`, `llm_engine step: …`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nsight_prof.parsers.names.ranges import ENGINE_STEP
from nsight_prof.parsers.nsys.sqlite.database import Array, Database
from nsight_prof.parsers.nsys.sqlite.schema import NVTX, OPEN_END, RANGES, STRINGS

STEP = "execute_context_"
_GLOB = f"{STEP}*"
_PROCESS = 0xFFFFFF


@dataclass(frozen=True)
class StepRange:
    """One engine step of one worker as its host range says; times in ns.

    `index` counts the steps of the process from 0.
    """

    index: int
    pid: int
    thread: int
    start: int
    end: int
    prefill_requests: int
    prefill_tokens: int
    decode_requests: int
    decode_tokens: int

    @property
    def kind(self) -> str:
        """prefill, decode, mixed or empty, by the requests that the step has."""
        if self.prefill_requests and self.decode_requests:
            return "mixed"
        if self.prefill_requests:
            return "prefill"
        return "decode" if self.decode_requests else "empty"


@dataclass(frozen=True)
class HostRange:
    """One NVTX range of a thread (globalTid); `end` is OPEN_END where it was not closed."""

    thread: int
    start: int
    end: int
    text: str


@dataclass(frozen=True)
class Segments:
    """What a thread did: disjoint spans [start, end) in order; `name` is a code into `names`."""

    start: Array
    end: Array
    name: Array
    names: tuple[str, ...]


def read_steps(db: Database) -> list[StepRange]:
    """All engine steps by process and start; none where the trace is not of a vLLM worker."""
    if not db.has_rows(NVTX):
        return []
    columns = db.columns(NVTX)
    found: list[HostRange] = []
    if "textId" in columns:
        ids = db.rows(f"SELECT id FROM \"{db.table(STRINGS)}\" WHERE value GLOB '{_GLOB}'")
        if ids:
            found += _ranges(db, f"textId IN ({', '.join(str(number) for (number,) in ids)})")
    if "text" in columns:
        found += _ranges(db, f"text GLOB '{_GLOB}'")
    steps: dict[int, list[StepRange]] = {}
    for host in sorted(found, key=lambda r: (r.thread >> 24, r.start)):
        match = ENGINE_STEP.fullmatch(host.text)
        if match is None:
            continue
        pid = host.thread >> 24 & _PROCESS
        of_process = steps.setdefault(pid, [])
        counts = (int(number) for number in match.groups())
        of_process.append(
            StepRange(len(of_process), pid, host.thread, host.start, host.end, *counts)
        )
    return [step for pid in sorted(steps) for step in steps[pid]]


def read_host_ranges(db: Database) -> list[HostRange]:
    """All ranges of all threads but those of the model's modules, by thread and start."""
    return sorted(
        (r for r in _ranges(db, "1") if not r.text.startswith("{'Module'")),
        key=lambda r: (r.thread, r.start, -r.end),
    )


def read_module_ranges(db: Database) -> list[HostRange]:
    """Ranges that vLLM's layer-wise tracing (`enable_layerwise_nvtx_tracing`) made."""
    return [r for r in _ranges(db, "1") if r.text.startswith("{'Module'")]


def _ranges(db: Database, where: str) -> list[HostRange]:
    columns = db.columns(NVTX)
    texts = ["text"] if "text" in columns else []
    if "textId" in columns:
        texts.append(f'(SELECT value FROM "{db.table(STRINGS)}" WHERE id = textId)')
    rows = db.rows(
        f"SELECT globalTid, start, coalesce(end, {OPEN_END}), coalesce({', '.join(texts)}, '')"
        f' FROM "{db.table(NVTX)}" WHERE {RANGES} AND {where} ORDER BY start'
    )
    return [HostRange(*row) for row in rows]


def innermost(ranges: list[HostRange]) -> Segments:
    """Of the ranges of one thread, the one that began last, at each moment."""
    names: dict[str, int] = {}
    rows: list[tuple[int, int, int]] = []
    open_ranges: list[HostRange] = []

    def emit(since: int, until: int) -> None:
        if open_ranges and until > since:
            rows.append((since, until, names.setdefault(open_ranges[-1].text, len(names))))

    now = 0
    for entering in sorted(ranges, key=lambda r: (r.start, -r.end)):
        while open_ranges and (first := min(r.end for r in open_ranges)) <= entering.start:
            emit(now, first)
            now = max(now, first)
            open_ranges[:] = [r for r in open_ranges if r.end > first]
        emit(now, entering.start)
        now = entering.start
        open_ranges.append(entering)
    while open_ranges:
        first = min(r.end for r in open_ranges)
        emit(now, first)
        now = max(now, first)
        open_ranges[:] = [r for r in open_ranges if r.end > first]
    start, end, name = np.array(rows, np.int64).reshape(-1, 3).T
    return Segments(start, end, name, tuple(names))
