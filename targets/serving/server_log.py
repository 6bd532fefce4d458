"""Reads the log of a vLLM server: facts that no endpoint tells, and why a server ended.

The words are those of vLLM 0.20; what another version words otherwise stays unknown.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from nsight_prof.targets.serving.failures import PYTHON_HINT, VLLM, EngineFailure, explain_log

PREFIX = re.compile(
    r"^(?:\([\w ]*pid=\d+\) ?)*(?:(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) [\d:. -]+ )?"
    r"(?:\[[\w.]+:\d+\] ?)?"
)
"""What vLLM writes before a message: process, level, time, file."""
SPARED = r"\bIgnore import error when loading\b"
"""SGLang imports all the models that it knows, and goes on without those that it cannot."""
GIB = 2.0**30
MOST = 300


def facts(lines: Sequence[str]) -> dict[str, Any]:
    """Return fields of an `engine` record that a log tells; each is None where it does not.

    Returns:
        dtype ("bfloat16"), load_format, max_num_batched_tokens, attention_backend, kv_bytes (of
        one GPU), async_scheduling, capture_sizes (batch sizes of CUDA graphs), tensor_parallel,
        max_num_seqs, dummy_weights.
    """
    text = "\n".join(lines)
    load = _found(r"\bload_format=(\w+)", text)
    gib = _found(r"Available KV cache memory: ([\d.]+) GiB", text)
    sizes = _found(r"'cudagraph_capture_sizes': (\[[\d, ]*\])", text)
    scheduling = _found(r"Asynchronous scheduling is (enabled|disabled)", text)
    return {
        "dtype": _found(r"\bdtype=(?:torch\.)?(\w+)", text),
        "load_format": load,
        "dummy_weights": None if load is None else load == "dummy",
        "tensor_parallel": _whole(r"\btensor_parallel_size=(\d+)", text),
        "max_num_batched_tokens": _whole(r"max_num_batched_tokens=(\d+)", text),
        "max_num_seqs": _whole(r"'max_num_seqs': (\d+)", text),
        "attention_backend": _found(r"Using (\w+) attention backend", text),
        "kv_bytes": None if gib is None else float(gib) * GIB,
        "async_scheduling": None if scheduling is None else scheduling == "enabled",
        "capture_sizes": None if sizes is None else json.loads(sizes),
    }


def why(
    lines: Sequence[str], ended: str, doing: str = "starting", engine: str = VLLM
) -> EngineFailure:
    """Return why a server ended, from the end of its log.

    Args:
        lines: of the log, the last at the end.
        ended: how it ended, as a clause: "the server ended with exit code 1 before it was healthy".
        doing: what it was doing: "starting", "serving".
        engine: whose server it was.
    """
    lines = [line for line in lines if not re.search(SPARED, line)]
    for pattern, message, hint in KNOWN:
        for line in reversed(lines):
            match = re.search(pattern, line)
            if match is not None:
                told = message.format(engine=engine)
                return EngineFailure(f"{told}: {plain(match[0])} ({ended})", hint)
    known = explain_log("\n".join(lines), doing, engine)
    if known is not None:
        return EngineFailure(f"{known.message} ({ended})", known.hint, known.status)
    said = last_error(lines)
    return EngineFailure(
        f"{ended}: {said}" if said else ended,
        "its log stands above; a process that was killed without a word ran out of host memory "
        "(dmesg tells)",
    )


def last_error(lines: Sequence[str]) -> str:
    """Return the last line that names an error, without what vLLM writes before it; "" for none."""
    for line in reversed(lines):
        words = plain(line)
        if re.match(r"[\w.]*(?:Error|Exception|Interrupt)\b", words) or " error: " in f" {words}":
            return words
    return next((words for line in reversed(lines) if (words := plain(line))), "")


def plain(line: str) -> str:
    """Return a line of the log without its prefix, in at most 300 characters."""
    words = PREFIX.sub("", line.strip()).strip()
    return words if len(words) <= MOST else words[: MOST - 1] + "…"


def _found(pattern: str, text: str) -> str | None:
    match = re.search(pattern, text)
    return None if match is None else match[1]


def _whole(pattern: str, text: str) -> int | None:
    found = _found(pattern, text)
    return None if found is None else int(found)


KNOWN = (
    (
        r"(?:\[?Errno 98\]?|[Aa]ddress already in use).*",
        "the server's port is taken",
        "leave --port away, so that a free one is chosen, or name another",
    ),
    (
        r"error: (?:unrecognized arguments|argument |the following arguments).*",
        "this version of {engine} does not take the server's command line",
        "correct --server-args: the help of the engine's own server lists what it takes",
    ),
    (
        r"No module named '?[\w.]+'?.*",
        "the server's interpreter lacks a module",
        f"install it there, or {PYTHON_HINT}",
    ),
)
"""What only a server's log says: pattern, what it means, what to do."""
