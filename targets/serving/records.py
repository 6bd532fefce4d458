"""The records of the serving targets: one JSON object a line, flushed at once: a kill loses none.

All times `*_s` of a moment count from the start of the target's process (time.monotonic(), which
all processes of a Linux machine share); durations are in seconds. What could not be measured is
null. Records other than `conditions` and `case` carry neither target nor process: those of the
file's `conditions` are theirs, because their `repeat` is the number of the repeat of the case.
"""

from __future__ import annotations

import json
import math
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, TextIO

from nsight_prof.targets.harness.records import rounded
from nsight_prof.targets.harness.statistics import summarize
from nsight_prof.targets.serving.host_loop import loop_seconds

SCHEMA = 1
PLACES = 7
"""Digits after the point of seconds: 0.1 us."""
TOKEN_TIMES = 4096
"""Times of single tokens that are kept of a case; requests beyond have the first and the last."""
BEGIN = time.monotonic()
NO_WORK = {"flops": None, "bytes": None, "accesses": None, "launches": None}


class Records:
    """Writes the records of one process; threads may share it.

    Attributes:
        begin: the time.monotonic() that all moments count from.
    """

    def __init__(
        self,
        stream: TextIO,
        target: str,
        process: int = 1,
        repeat: int = 1,
        *,
        begin: float | None = None,
        token_times: int = TOKEN_TIMES,
    ) -> None:
        self.begin = BEGIN if begin is None else begin
        self._stream = stream
        self._lock = threading.Lock()
        self._shared = {"schema": SCHEMA, "target": target, "process": process, "repeat": repeat}
        self._token_times = token_times
        self._kept: Counter[str] = Counter()

    def now(self) -> float:
        """Return the seconds since the target's process began."""
        return time.monotonic() - self.begin

    def conditions(self, facts: Mapping[str, Any]) -> None:
        """Write under what the process measures: the first record of a file.

        Args:
            facts: argv, time, seed, device, gpu and software, as
                `nsight_prof.targets.serving.conditions` gives them.
        """
        self._write({"record": "conditions", **self._shared, **facts})

    def case(
        self,
        case: str,
        params: Mapping[str, Any],
        samples_s: Sequence[float] = (),
        *,
        status: str = "ok",
        reason: str = "",
        operation: str = "generate",
        dtype: str = "",
        eager: bool = True,
        stop: str = "samples",
        power_w: float | None = None,
        temperature_c: float | None = None,
    ) -> None:
        """Write the record of a case.

        Args:
            case: its name.
            params: its parameters; one that is None is left out.
            samples_s: seconds of each repeat of the whole batch or load, end to end.
            status: "ok" (needs samples), "out-of-memory", "failed" or "unsupported".
            reason: why it is not ok; also a remark on one that is.
            operation: what a reader calls it.
            dtype: of weights and activations.
            eager: False where CUDA graphs launch the decode steps.
            stop: why sampling ended, "samples" or "time limit".
            power_w: mean power while it was measured.
            temperature_c: of the GPU after it.
        """
        self._write(
            {
                "record": "case",
                **self._shared,
                "case": case,
                "mode": "hot",
                "data": "normal",
                "operation": operation,
                "params": {name: value for name, value in params.items() if value is not None},
                "dtype": dtype,
                "level": "",
                "launch": "eager" if eager else "graph",
                "duration": "",
                "status": status,
                "reason": reason,
                "roof": None,
                "work": NO_WORK,
                "time": _time(samples_s, stop) if status == "ok" else None,
                "clock": None,
                "throttle": None,
                "energy_j": None,
                "power_w": power_w,
                "temperature_c": temperature_c,
                "memory": None,
            }
        )

    def engine(self, facts: Mapping[str, Any]) -> None:
        """Write how an engine was made: version, model and its configuration, mode, KV cache, …."""
        self._write({"record": "engine", "schema": SCHEMA, **facts})

    def request(self, case: str, repeat: int, times: Mapping[str, Any]) -> None:
        """Write the times of one request.

        Args:
            case: name of its case.
            repeat: which repeat of the case, from 1.
            times: request, prompt_tokens, output_tokens, arrival_s, first_token_s, finish_s,
                token_times_s (of all tokens, after arrival), queue_s, engine_ttft_s,
                engine_tpot_s, status, reason; None or absent where unknown.
        """
        fields = dict(times)
        tokens = [round(float(value), PLACES) for value in fields.pop("token_times_s", None) or ()]
        with self._lock:
            keep = self._kept[case] + len(tokens) <= self._token_times
            self._kept[case] += len(tokens) if keep else 0
        kept = {"token_times_s": tokens} if tokens and keep else {}
        self._about("request", case, repeat, {"status": "ok", "reason": ""} | fields | kept)

    def step(self, case: str, repeat: int, step: Mapping[str, Any]) -> None:
        """Write one engine step as the host timed it: index, t_s, seconds, outputs, tokens."""
        self._about("step", case, repeat, step)

    def host_loop(self, case: str, repeat: int, *, traced: bool | None = None) -> None:
        """Time the loop that tells how fast the host is, and write it: call it before a repeat."""
        seconds, mark = loop_seconds(), {} if traced is None else {"traced": traced}
        self._about("host_loop", case, repeat, {"t_s": self.now(), "loop_s": seconds} | mark)

    def phase(self, case: str | None, name: str, begin_s: float, end_s: float) -> None:
        """Write what the process did from one moment to another; `case` None belongs to none."""
        self._write(
            {
                "record": "phase",
                "schema": SCHEMA,
                "case": case,
                "name": name,
                "begin_s": begin_s,
                "end_s": end_s,
            }
        )

    def telemetry(self, sample: Mapping[str, Any]) -> None:
        """Write what NVML said of one GPU at one moment; fields as `telemetry.FIELDS`."""
        self._write({"record": "telemetry", "schema": SCHEMA, **sample})

    def engine_stats(self, case: str | None, stats: Mapping[str, Any]) -> None:
        """Write vLLM's gauges and counters at one moment.

        Args:
            case: what ran then; None: nothing.
            stats: t_s, running, waiting (requests), kv_usage (0 to 1), preemptions,
                prompt_tokens, generation_tokens (since the engine started).
        """
        self._write({"record": "engine_stats", "schema": SCHEMA, "case": case, **stats})

    def vllm_totals(self, case: str, repeat: int, totals: Mapping[str, Any]) -> None:
        """Write by how much vLLM's own counters grew in a repeat.

        Args:
            case: name of the case.
            repeat: which repeat of it, from 1.
            totals: prompt_tokens, generation_tokens, seconds, and where the version tells them
                estimated_flops, estimated_read_bytes, estimated_write_bytes (of one GPU).
        """
        self._about("vllm_totals", case, repeat, totals)

    def forward(self, record: Mapping[str, Any]) -> None:
        """Write a record that another process of the target has made."""
        self._write(record)

    def _about(self, kind: str, case: str, repeat: int, fields: Mapping[str, Any]) -> None:
        self._write({"record": kind, "schema": SCHEMA, "case": case, "repeat": repeat, **fields})

    def _write(self, record: Mapping[str, Any]) -> None:
        line = json.dumps(_plain(record), allow_nan=False)
        with self._lock:
            self._stream.write(line + "\n")
            self._stream.flush()


def _time(samples_s: Sequence[float], stop: str) -> dict[str, Any]:
    """Return the statistics of the samples as the `time` of a case; ValueError where none is."""
    summary = asdict(summarize(samples_s))
    counts = {name: summary.pop(name) for name in ("n", "outliers", "relative_std")}
    return {
        **{f"{name}_s": rounded(value) for name, value in summary.items()},
        **counts,
        "relative_std": rounded(counts["relative_std"]),
        "stop": stop,
        "calls_per_sample": 1,
        "captured": False,
        "copies": 1,
        "samples_s": [rounded(value) for value in samples_s],
    }


def _plain(value: Any) -> Any:
    """Return a value as JSON can hold it: what is not a number becomes null."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        return round(value, PLACES) if math.isfinite(value) else None
    if value is None or isinstance(value, str | bool | int):
        return value
    return str(value)
