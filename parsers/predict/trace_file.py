"""Reads the requests of a recorded workload: one JSON object per line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from nsight_prof.parsers.errors import ArtifactUnreadable
from nsight_prof.parsers.predict.serving import Request, Workload

KEYS = (
    ("arrival_s", "prompt_tokens", "output_tokens", 1.0),
    ("timestamp", "input_length", "output_length", 1e-3),
)
"""Names of when a request came and of its lengths, with the seconds of a unit of the first: those
of table `requests`, and those of Mooncake's traces, in ms (arXiv:2407.00079)."""


def read_workload(path: Path) -> Workload:
    """Return the requests of a file, in the order in which they came, from the first on.

    Raises:
        ArtifactUnreadable: it cannot be read, or a line is no request.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise ArtifactUnreadable(
            f"{path} cannot be read: {error}", "name a file of JSON lines, one per request"
        ) from error
    found = [_request(path, n, line) for n, line in enumerate(lines, 1) if line.strip()]
    if not found:
        raise ArtifactUnreadable(f"{path} has no request", "give one JSON object per line")
    found.sort()
    start = found[0].arrival_s
    arrivals = tuple(request._replace(arrival_s=request.arrival_s - start) for request in found)
    prompt, output = (round(sum(r[i] for r in found) / len(found)) for i in (1, 2))
    return Workload(prompt, output, arrivals=arrivals, label=path.name.partition(".")[0])


def _request(path: Path, number: int, line: str) -> Request:
    keys = " or ".join(", ".join(names[:3]) for names in KEYS)
    hint = f"give JSON objects with {keys}"
    try:
        row: Any = json.loads(line)
    except ValueError as error:
        raise ArtifactUnreadable(f"{path}, line {number}: no JSON: {error}", hint) from error
    for when, prompt, output, unit in KEYS:
        if isinstance(row, dict) and {when, prompt, output} <= row.keys():
            values = [row[key] for key in (when, prompt, output)]
            if not all(isinstance(v, (int, float)) and 0 <= v < 1e15 for v in values):
                break
            lengths = int(values[1]), int(values[2])
            if min(lengths) < 1:
                break
            return Request(float(values[0]) * unit, *lengths)
    raise ArtifactUnreadable(f"{path}, line {number}: no request: {line[:80]}", hint)
