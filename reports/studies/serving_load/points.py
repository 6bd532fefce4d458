"""Points of a load test: latencies, targets, and whether the server kept up."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from nsight_prof.parsers.bench.records import MEASURED
from nsight_prof.parsers.bench.stats import quantile_interval
from nsight_prof.parsers.build.peaks import Peaks, peaks
from nsight_prof.parsers.cells import Row, count, grouped, number, records, text
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.cases.rows import params_of
from nsight_prof.reports.page import Interval, Number, Text, Verbatim
from nsight_prof.reports.serving.engine import Engine, engine_of
from nsight_prof.reports.serving.points import ServingPoint, amount
from nsight_prof.reports.serving.scaling_fit import Scaling, fit_scaling

TARGET = "vllm-serve"
MIN_VALUES = {"mean": 1, "p50": 1, "p90": 10, "p95": 20, "p99": 100}
"""Values that a percentile needs: on average one of them lies beyond it."""
TOO_FEW = "too few requests for this percentile"
RATE, ANSWERED = "output_tokens_per_s", "requests_per_s"
SERVER = ("ttft", "tpot", "e2e")
"""Latencies that client and server both time."""
FILLED = 1 / 3
"""Part of an open loop after which a server that keeps up has its steady number of requests."""
BEYOND = 1.5
"""Times the expected number of requests above which a growing number means falling behind."""
MIN_MET = 0.95
"""Share of requests within the targets from which on a load is within them."""
BUSY = 90.0
"""Per cent of the time with a kernel on the GPU from which on more load finds it at work."""
RESERVE = 0.2
"""Part of the capacity that a server is planned without: near it latencies grow steeply, and
requests come in bursts."""
CHANCE, GROWN = 3.0, 0.1
"""Standard deviations, and part of the arrivals, by which a growing queue is longer than before."""


OPTIONS = {
    "step_tokens": {"vLLM": "--max-num-batched-tokens", "SGLang": "--chunked-prefill-size"},
    "front_ends": {"vLLM": "--api-server-count", "SGLang": "--tokenizer-worker-num"},
    "cache_memory": {"vLLM": "--gpu-memory-utilization", "SGLang": "--mem-fraction-static"},
    "cache_type": {"vLLM": "--kv-cache-dtype fp8", "SGLang": "--kv-cache-dtype fp8_e5m2"},
    "kernels": {"vLLM": "vllm-kernels", "SGLang": "sglang-kernels"},
}
"""What engines call an option, and the recipe that traces their kernels."""
AGREE = 0.05
"""Largest difference of client and server that is called agreement."""


@dataclass(frozen=True)
class Slo:
    """The targets of goodput in seconds; infinite where the run has none."""

    ttft_s: float = math.inf
    tpot_s: float = math.inf

    @property
    def limited(self) -> bool:
        """Whether there is any target."""
        return math.isfinite(min(self.ttft_s, self.tpot_s))

    def met(self, request: Row) -> bool:
        """Whether a request was answered within both; one token has no time between tokens."""
        tpot = number(request["tpot_s"])
        return (
            text(request["status"]) == MEASURED
            and number(request["ttft_s"]) <= self.ttft_s
            and (math.isnan(tpot) or tpot <= self.tpot_s)
        )


@dataclass(frozen=True)
class Point(ServingPoint):
    """One load: its `row` of serving_points, its requests, and what the server counted.

    Attributes:
        row: of table serving_points.
        requests: rows of table requests, also those that failed.
        server: columns of vllm_totals over all repeats; NaN where the server has no metrics.
        slo: targets of the run.
    """

    requests: tuple[Row, ...]
    server: Row
    slo: Slo

    @property
    def closed(self) -> bool:
        """Whether clients waited for their answers before they sent the next request."""
        return text(self.row["experiment"]) == "closed"

    @property
    def load(self) -> float:
        """Clients of a closed loop, requests per second of an open one."""
        return number(self.row["concurrency" if self.closed else "request_rate"])

    @property
    def is_trace(self) -> bool:
        """Whether its requests arrived as a file says, not at random."""
        return text(self.row["arrivals"]) == "trace"

    @property
    def load_text(self) -> Text:
        """The load for readers: "8 clients", "16 requests/s"."""
        if self.closed:
            return Text("{n} client", "{n} clients", n=round(self.load))
        return Text("{rate} requests/s", rate=amount(self.load))

    def percentile(self, name: str, which: str) -> float:
        """Return a percentile of ttft, tpot, itl or e2e; NaN where too few values support it."""
        return number(self.latency(name, which).value)

    def latency(self, name: str, which: str) -> Number:
        """Return a percentile of ttft, tpot, itl or e2e; unknown if too few values support it."""
        found = self.number(f"{name}_{which}_s")
        enough = self.samples(name) >= MIN_VALUES[which]
        return found if enough else replace(found, value=None, missing=TOO_FEW)

    def interval(self, name: str, which: str) -> Interval:
        """Return the 95 % interval of a percentile of ttft, tpot or e2e over the requests.

        They are taken as independent; unknown for too few.
        """
        values = np.array([number(request[f"{name}_s"]) for request in self.requests])
        share = float(which.removeprefix("p")) / 100
        return Interval(*quantile_interval(values[~np.isnan(values)], share), "s")

    def samples(self, name: str) -> int:
        """Return how many values a latency has: one per request, or one per gap between tokens."""
        if name != "itl":
            return count(self.row["requests"]) or 0
        return self._token_gaps

    @cached_property
    def _token_gaps(self) -> int:
        recorded = (request["token_times_s"] for request in self.requests)
        return sum(max(0, len(json.loads(times)) - 1) for times in recorded if text(times))

    @property
    def met(self) -> float:
        """Share of the requests that met both targets; those that failed did not."""
        return _share(sum(map(self.slo.met, self.requests)), len(self.requests))

    @property
    def goodput(self) -> float:
        """Requests per second that met both targets."""
        sent = len(self.requests)
        done = sum(text(request["status"]) == MEASURED for request in self.requests)
        return self.value(ANSWERED) * self.met * sent / done if done else math.nan

    @property
    def user_rate(self) -> float:
        """Tokens per second that one user gets: those of an answer over its median latency."""
        return _share(self.output, self.percentile("e2e", "p50"))

    def first_token_parts(self) -> dict[str, float]:
        """Return the mean seconds of the phases of TTFT; one that is unknown is absent.

        queue: until the engine's first step for the request; prefill: from there to the token;
        front: in the rest of the server, or server: both, where it does not tell them apart;
        client: HTTP, JSON and the client.
        """
        queue, prefill = self.server["queue_mean_s"], self.server["prefill_mean_s"]
        ttft = self.server["ttft_mean_s"]
        found = {
            "queue": queue,
            "prefill": prefill,
            "front": ttft - queue - prefill,
            "server": ttft - queue if math.isnan(prefill) else math.nan,
            "client": self.value("ttft_mean_s") - ttft,
        }
        return {name: max(0.0, value) for name, value in found.items() if not math.isnan(value)}

    def differences(self) -> dict[str, float]:
        """Return client over server - 1 of tokens/s and mean latencies, where both are known."""
        pairs = {"tokens": (self.value(RATE), self.value("vllm_output_tokens_per_s"))}
        for name in SERVER:
            pairs[name] = (self.value(f"{name}_mean_s"), self.server[f"{name}_mean_s"])
        found = {
            name: client / server - 1 for name, (client, server) in pairs.items() if server > 0
        }
        return {name: value for name, value in found.items() if not math.isnan(value)}

    @property
    def lags(self) -> bool:
        """Whether tokens reach the client later than the engine makes them, and answers not."""
        found = self.differences()
        return found.get("tpot", math.nan) > AGREE and abs(found.get("e2e", math.nan)) <= AGREE


@dataclass(frozen=True)
class Keeping:
    """Whether a server kept up with an open loop.

    Attributes:
        in_flight: mean requests in the server in the last two thirds of the arrivals.
        growth: by how many that number grew meanwhile.
        last: that number when the last request arrived.
        arrivals: requests that arrived meanwhile.
        seconds: how long that was.
        expected: requests in the server in the long run, by the law of the closed loops; infinite
            where that allows no such rate, NaN without a law.
    """

    in_flight: float
    growth: float
    last: float
    arrivals: int
    seconds: float
    expected: float = math.nan

    @property
    def grows(self) -> bool:
        """Whether requests piled up by more than chance.

        With Poisson arrivals the number in a server whose times do not depend on it is Poisson
        distributed too (M/G/inf), so that the difference of two such numbers has twice its mean as
        variance.
        """
        chance = CHANCE * math.sqrt(2 * max(self.in_flight, 1.0))
        return self.growth > chance and self.growth > GROWN * self.arrivals

    @property
    def verdict(self) -> str:
        """Return "yes", "no", or "not settled": it grew, and not beyond what the law expects."""
        if not self.grows:
            return "yes"
        return "not settled" if self.last <= BEYOND * self.expected < math.inf else "no"


@dataclass(frozen=True)
class Planned:
    """The rate to plan a server with: `rate` in requests/s, `share` of the most that is known.

    Its latencies lie between those of `low`, the next lower rate that was measured (None: none),
    and of `high`, which the server kept up with. `base` is the load of which `share` is a part.
    """

    rate: float
    share: float
    low: Point | None
    high: Point
    base: Point

    @property
    def measured(self) -> bool:
        """Whether that very rate was measured."""
        return self.low is self.high


@dataclass(frozen=True)
class LoadTest:
    """All points of a run that have times, with their engine and the roofs of its type."""

    points: tuple[Point, ...]
    engine: Engine | None
    roofs: Peaks

    @property
    def closed(self) -> list[Point]:
        """Closed loops, the fewest clients first."""
        return sorted((p for p in self.points if p.closed), key=lambda p: p.load)

    @property
    def opened(self) -> list[Point]:
        """Open loops, the lowest rate first."""
        return sorted((p for p in self.points if not p.closed), key=lambda p: p.load)

    @property
    def loads(self) -> list[Point]:
        """All points in the order of the tables."""
        return [*self.closed, *self.opened]

    @cached_property
    def judged(self) -> list[tuple[Point, Keeping]]:
        """Open loops with enough requests to say whether the server kept up, and how it did."""
        return [(p, state) for p in self.opened if (state := keeping(p, self.law)) is not None]

    @property
    def behind(self) -> tuple[Point, Keeping] | None:
        """The lowest rate at which the server falls behind; None where it does at none."""
        return next((pair for pair in self.judged if pair[1].verdict == "no"), None)

    @cached_property
    def recommended(self) -> Point | None:
        """The highest rate that the server keeps up with, within the targets where one is; None
        where it keeps up with none.
        """
        limit = math.inf if self.behind is None else self.behind[0].load
        good = [p for p, state in self.judged if state.verdict == "yes" and p.load < limit]
        within = [p for p in good if p.met >= MIN_MET]
        return max(within or good, key=lambda p: p.load, default=None)

    @cached_property
    def capacity(self) -> Point | None:
        """The load at which most requests per second were answered; None where that is unknown.

        Rates count until the last answer: a short load that the server keeps up with is answered at
        less than its rate, which says nothing of the capacity.
        """
        known = [p for p in self.loads if p.value(ANSWERED) > 0]
        best = max(known, key=lambda p: p.value(ANSWERED), default=None)
        sent = 0.0 if self.recommended is None else self.recommended.load
        return best if best is not None and best.value(ANSWERED) >= sent else None

    @cached_property
    def planned(self) -> Planned | None:
        """The rate to plan a server with; None where none is known at which it falls behind."""
        if (top := self.recommended) is None or self.behind is None:
            return None
        base = top if self.capacity is None else self.capacity
        highest = top.load if self.capacity is None else base.value(ANSWERED)
        rate = min(top.load, (1 - RESERVE) * highest)
        below = [p for p in self.opened if p.load <= rate]
        return Planned(rate, rate / highest, below[-1] if below else None, top, base)

    def option(self, key: str) -> Verbatim:
        """Return what the engine calls an option; as vLLM does where the engine is another."""
        names = OPTIONS[key]
        return Verbatim(names.get(self.engine.product if self.engine else "", names["vLLM"]))

    @property
    def slo(self) -> Slo:
        """The targets of goodput."""
        return self.points[0].slo if self.points else Slo()

    @cached_property
    def law(self) -> Scaling | None:
        """How the seconds per answer of each client grow with the clients.

        By Little's law n clients with t(n) seconds per answer get n / t(n) answers per second, and
        an open loop of that rate has n requests in the server in the long run.
        """
        sweep = [p for p in self.closed if p.value(ANSWERED) > 0]
        return fit_scaling([p.load for p in sweep], [p.load / p.value(ANSWERED) for p in sweep])


def load_test(run: Run) -> LoadTest:
    """Return the points of the run that have times."""
    bench = run.bench[run.bench["target"] == TARGET]
    slos = {text(row["case_id"]): _slo(row) for row in records(bench)}
    rows = run.serving_points
    rows = rows[rows["source"].eq("bench") & rows["case_id"].isin(list(slos))]
    requests, totals = (
        grouped(records(frame[frame["source"] == "bench"]), lambda row: text(row["case"]))
        for frame in (run.requests, run.vllm_totals)
    )
    points = []
    for row in records(rows):
        if text(row["status"]) == MEASURED:
            case = text(row["case"])
            of_case = tuple(requests.get(case, ()))
            server = _pooled(totals.get(case, ()))
            points.append(Point(row, of_case, server, slos[text(row["case_id"])]))
    engine = engine_of(run)
    return LoadTest(tuple(points), engine, peaks(run, engine.dtype if engine else ""))


def _slo(row: Row) -> Slo:
    params = params_of(row)
    limits = (number(params.get(name)) for name in ("slo_ttft_s", "slo_tpot_s"))
    return Slo(*(math.inf if math.isnan(limit) else limit for limit in limits))


SUMS = ("prompt_tokens", "generation_tokens", "preemptions", "prefix_hit_tokens", "requests")
MEANS = ("ttft", "itl", "tpot", "e2e", "queue", "prefill", "decode")
WORST = ("client_late_s", "client_cpu")


def _pooled(rows: Sequence[Row]) -> Row:
    """Return the server's totals over all repeats: means weighted by how many requests ended."""
    found: Row = {name: sum(number(row[name]) for row in rows) for name in SUMS} if rows else {}
    weights = [number(row["requests"]) for row in rows]
    for name in MEANS:
        column = f"{name}_mean_s"
        total = sum(w * number(row[column]) for w, row in zip(weights, rows, strict=True))
        found[column] = _share(total, sum(weights)) if rows else math.nan
    for name in WORST:
        found[name] = max((number(row[name]) for row in rows), default=math.nan)
    return dict.fromkeys(SUMS, math.nan) | found


def _share(amount: float, total: float) -> float:
    return amount / total if total else math.nan


def keeping(point: Point, law: Scaling | None) -> Keeping | None:
    """Judge whether the server kept up with an open loop; None for too few requests.

    Of several repeats the one in which most requests piled up counts.
    """
    if point.closed:
        return None
    repeats = grouped(point.requests, lambda row: (count(row["process"]), count(row["repeat"])))
    found = [_keeping(rows, in_the_long_run(point.load, law)) for rows in repeats.values()]
    judged = [state for state in found if state is not None]
    return max(judged, key=lambda state: state.growth, default=None)


def in_the_long_run(rate: float, law: Scaling | None) -> float:
    """Return how many requests an open loop of a rate has in the server in the long run.

    n / t(n) = rate with t(n) = t0 + c max(0, n - k): n = rate t0 below k, else
    rate (t0 - c k) / (1 - rate c); infinite from the rate 1 / c on, NaN without a law.
    """
    if law is None:
        return math.nan
    flat = rate * law.fixed_s
    if flat <= law.flat_until:
        return flat
    spare = 1 - rate * law.each_s
    return rate * (law.fixed_s - law.each_s * law.flat_until) / spare if spare > 0 else math.inf


def _keeping(rows: Sequence[Row], expected: float) -> Keeping | None:
    came = np.sort([number(row["arrival_s"]) for row in rows])
    # A request that was never answered stays.
    done = [number(row["finish_s"]) for row in rows]
    left_at = np.sort([math.inf if math.isnan(at) else at for at in done])
    begin, end = came[0], came[-1]
    middle = begin + FILLED * (end - begin)
    if len(came) < 4 or not end > middle:
        return None
    inside = [
        float(np.searchsorted(came, at, "right") - np.searchsorted(left_at, at, "right"))
        for at in np.linspace(middle, end, 200)
    ]
    return Keeping(
        in_flight=float(np.mean(inside)),
        growth=inside[-1] - inside[0],
        last=inside[-1],
        arrivals=int((came > middle).sum()),
        seconds=float(end - middle),
        expected=expected,
    )
