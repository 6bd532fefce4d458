"""Says where first tokens of a server's open loops wait, and how fast the server's host was."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping

import numpy as np
import pandas as pd

from nsight_prof.orchestrator.predict.sources import Source
from nsight_prof.parsers.cells import Row, records

ALONE_S = 0.04
"""A request comes alone where no other does for so long before it, or until its first token."""
SAME_STEP_S = 0.0012
"""Tokens that come sooner after each other are of one step."""
FEWEST = 5
"""Requests that must have come alone."""


def waits(server: Source, issue_s: float, errors: Mapping[str, float]) -> Iterator[tuple[str, ...]]:
    """Yield a row for each open loop of a server: where its first tokens waited, and its host.

    Args:
        server: the recorded run.
        issue_s: in how long the host issues a prompt beyond CUDA graphs, by the trace of a slice.
        errors: of the predicted median TTFT, by case.
    """
    counted = server.table("vllm_totals").groupby("case")
    inside = counted["queue_mean_s"].mean() + counted["prefill_mean_s"].mean()
    points, requests = server.table("serving_points"), server.table("requests")
    for row in records(points[points["request_rate"].notna()]):
        of_case, case = requests[requests["case"].eq(row["case"])], str(row["case"])
        within = float(inside[case])
        outside = float(row["ttft_mean_s"]) - within
        issued = _issued(of_case)
        speed = f"{np.mean(issued) / issue_s:.2f}" if len(issued) >= FEWEST else "–"
        times = (f"{1e3 * seconds:.1f}" for seconds in (row["ttft_mean_s"], outside, within))
        yield server.name, f"`{case}`", *times, speed, f"{errors[case]:+.0%}"


def _issued(requests: pd.DataFrame) -> list[float]:
    """Return the longest pause of all clients before the first token of each request alone, in s.

    While the host issues its prompt, no other client gets a token. Only steps are seen in which a
    client took part whose token times were kept.
    """
    kept = requests[requests["token_times_s"].notna()]
    tokens = np.sort(
        [came + at for came, times in zip(kept["arrival_s"], kept["token_times_s"], strict=True)
         for at in json.loads(str(times))]
    )  # fmt: skip
    steps = tokens[np.diff(tokens, prepend=-math.inf) > SAME_STEP_S]
    arrivals, found = np.sort(requests["arrival_s"].to_numpy(dtype=float)), []
    for row in _alone(requests, arrivals):
        # The step before the request came counts as well.
        begin, end = row["arrival_s"] - ALONE_S / 2, row["first_token_s"] + SAME_STEP_S / 2
        seen = steps[(steps > begin) & (steps <= end)]
        if len(seen) > 1:
            found.append(float(np.diff(seen).max()))
    return found


def _alone(requests: pd.DataFrame, arrivals: np.ndarray) -> Iterator[Row]:
    """Yield the requests beside which no other one's prompt is read."""
    for row in records(requests):
        near = (arrivals > row["arrival_s"] - ALONE_S) & (arrivals < row["first_token_s"])
        if near.sum() == 1:
            yield row
