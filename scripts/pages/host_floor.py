"""How far the same engine differs between hosts: what no prediction beats that does not know them.

Of all recorded runs that served: those are the same engine whose GPU, model and its configuration,
settings, number of GPUs and target are the same; hosts are told apart by the GPU's UUID. Their
points are the same where their cases are. Each start of an engine counts, those on one host, too.
"""

from __future__ import annotations

import json
import lzma
import math
import random
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import combinations, product
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np

LONG_TOKENS = 1000
"""Tokens of all prompts of a batch from which on the GPU decides their time, as a rule."""
NO_MATTER = ("max_model_len", "gpu_memory_utilization", "enable_mfu_metrics", "seed")
"""Arguments of an engine that change no time of a request."""
BATCH = ("batch", "lengths", "latency", "prefill-decode")
"""Experiments of batches, by the head of a case."""
SEVERAL, ADDED, FEWER = ", several GPUs", ", drafts or LoRA", "fewer tokens"
ADDITIONS = ("speculative_config", "enable_lora")
"""Arguments of engines that draft, or that have adapters."""
OPEN_LIMIT = 0.8
"""Part of the capacity up to which loads of random arrivals are summed; others stand alone."""
NEARLY = 1.05
"""How far above that part a rate may lie: rates were chosen by the predicted capacity."""
DRAWS = 2000
"""Draws of engines for an interval of 90 %."""
WATCHED = ("trace", "counters", "operators")
"""Steps whose engines run under a profiler, or one operator after another."""
NARROW = "narrow engines: "
"""Before what is of engines that no user has: they tell what the host needs."""
OPEN_RATE = re.compile(r"open/r([\d.]+)/")


class _Numbers(NamedTuple):
    """What requests of one point took: medians over them, rates and prompts of all of a repeat."""

    ttft: float
    tpot: float
    throughput: float
    requests_per_s: float
    prompt_tokens: float


_Medians = Mapping[str, _Numbers]
"""Numbers of each case of one start of an engine."""


def missed(hosts: Sequence[Sequence[float]]) -> float:
    """Return what a prediction misses that is the true median of an engine (0.01: 1 %).

    Two starts on different hosts differ by sqrt(2) times what one differs from the true median, on
    average, where they are normal (2 / sqrt(pi) and sqrt(2 / pi) standard deviations), however few
    there are: Gini's mean difference has no bias (David, H. A., Biometrika 55, 1968, p. 573). The
    distance from the median of what was recorded is half of it for two starts, too little.

    Args:
        hosts: of each host what its starts measured.
    """
    apart = [
        math.fsum(abs(a - b) for a, b in product(one, other)) / (len(one) * len(other))
        for one, other in combinations(hosts, 2)
    ]
    return math.fsum(apart) / len(apart) / math.sqrt(2) / median(map(median, hosts))


class Hosts(NamedTuple):
    """One point of one engine on several hosts: what the starts of each measured."""

    what: str
    engine: str
    case: str
    values: tuple[tuple[float, ...], ...]

    @property
    def distance(self) -> float:
        """How far a start on one of them lies from the true median, on average (0.01: 1 %)."""
        return missed(self.values)


class Floor(NamedTuple):
    """What no prediction beats that does not know the host, of one kind of point.

    `low` and `high`: an interval of 90 %, by drawing engines; NaN of a single engine.
    """

    distance: float
    low: float
    high: float
    points: int
    starts: Mapping[str, int]


@cache
def measured(captures: Path) -> tuple[Hosts, ...]:
    """Return each point that was recorded on several hosts with the median of each."""
    found: dict[str, dict[str, list[_Medians]]] = defaultdict(lambda: defaultdict(list))
    labels: dict[str, str] = {}
    for run, host, gpu, target in _several(captures):
        for settings, label, points in _engines(run):
            key = json.dumps([gpu, target, settings], sort_keys=True)
            labels.setdefault(key, f"{label}, {gpu}")
            found[key][host].append(points)
    return tuple(
        hosts
        for key, by_host in found.items()
        if len(by_host) > 1
        for hosts in _points(labels[key], by_host)
    )


@cache
def between_hosts(captures: Path) -> Mapping[str, Floor]:
    """Return the floor of each kind of point; batches over several GPUs or with additions alone."""
    found: dict[str, list[Hosts]] = defaultdict(list)
    for item in measured(captures):
        found[item.what].append(item)
    return {what: _floor(points) for what, points in sorted(found.items())}


def _floor(points: Iterable[Hosts]) -> Floor:
    by_engine: dict[str, list[float]] = defaultdict(list)
    starts: dict[str, int] = defaultdict(int)
    for item in points:
        by_engine[item.engine].append(item.distance)
        starts[item.engine] = max(starts[item.engine], sum(map(len, item.values)))
    engines = sorted(by_engine)
    low = high = math.nan
    if len(engines) > 1:
        chance = random.Random(0)
        drawn = [
            _mean([by_engine[engine] for engine in chance.choices(engines, k=len(engines))])
            for _ in range(DRAWS)
        ]
        low, high = np.quantile(drawn, (0.05, 0.95)).tolist()
    every = [by_engine[engine] for engine in engines]
    return Floor(_mean(every), low, high, sum(map(len, every)), starts)


def _mean(groups: Sequence[Sequence[float]]) -> float:
    values = [value for group in groups for value in group]
    return math.fsum(values) / len(values)


def table(captures: Path) -> list[list[str]]:
    """Return a row of each kind of point: its floor, and the engines with their starts."""
    return [
        [
            what, str(floor.points),
            "; ".join(f"{engine}: {count}" for engine, count in sorted(floor.starts.items())),
            f"{floor.distance:.1%}",
            "–" if math.isnan(floor.low) else f"{floor.low:.1%} to {floor.high:.1%}",
        ]
        for what, floor in between_hosts(captures).items()
    ]  # fmt: skip


def _several(captures: Path) -> Iterator[tuple[Path, str, str, str]]:
    """Yield runs of vLLM with host, GPU and target, of which another host has the like."""
    runs = []
    for path in sorted(captures.rglob("manifest.json")):
        manifest = json.loads(path.read_text(encoding="utf-8"))
        gpus, asked = manifest["gpus"], manifest["recipe"].get("target") or {}
        model = (asked.get("args") or {}).get("model")
        if gpus and model and "vllm" in manifest["software"]:
            key = str(gpus[0]["name"]), str(asked.get("file")), str(model)
            runs.append((path.parent, str(gpus[0]["uuid"]), key))
    hosts: dict[tuple[str, str, str], set[str]] = defaultdict(set)
    for _, host, key in runs:
        hosts[key].add(host)
    for run, host, key in runs:
        if len(hosts[key]) > 1:
            yield run, host, key[0], key[1]


def _engines(run: Path) -> Iterator[tuple[list[Any], str, _Medians]]:
    """Yield settings, name and numbers of each engine with graphs that no profiler watched."""
    for path in sorted(run.glob("steps/*/result*.jsonl*")):
        if path.parent.name.partition("-")[2] in WATCHED:
            continue
        content = path.read_bytes()
        lines = (lzma.decompress(content) if path.suffix == ".xz" else content).splitlines()
        engines = [json.loads(line) for line in lines if b'"record": "engine"' in line]
        if not any(engine["mode"] == "cuda-graphs" for engine in engines):
            continue
        requests = [json.loads(line) for line in lines if b'"record": "request"' in line]
        medians = _medians(request for request in requests if _is_usable(request))
        for engine in engines:
            if medians and engine["mode"] == "cuda-graphs":
                yield _settings(engine), _label(run, engine), medians


def _is_usable(request: Mapping[str, Any]) -> bool:
    return bool(request["status"] == "ok" and not request.get("traced"))


def _settings(engine: Mapping[str, Any]) -> list[Any]:
    args = {key: value for key, value in engine["args"].items() if key not in NO_MATTER}
    limits = engine["max_num_seqs"], engine["max_num_batched_tokens"]
    return [engine["model_config"], args, limits, engine["tensor_parallel"]]


def _label(run: Path, engine: Mapping[str, Any]) -> str:
    """Return what to call an engine: the first run that has it."""
    cut = (engine["model_config"] or {}).get("prof_slice") or {}
    narrow = NARROW if "narrowed" in cut else ""
    several = SEVERAL if engine["tensor_parallel"] not in (None, 1) else ""
    added = ADDED if any(engine["args"].get(key) for key in ADDITIONS) else ""
    return narrow + run.name + (added or several)


def _points(label: str, by_host: Mapping[str, Sequence[_Medians]]) -> Iterator[Hosts]:
    most = OPEN_LIMIT * NEARLY * _capacity(by_host.values())
    for case in sorted({case for starts in by_host.values() for start in starts for case in start}):
        rate = OPEN_RATE.match(case)
        hosts = {
            host: [start[case] for start in starts if case in start]
            for host, starts in by_host.items()
        }
        several = [hosts[host] for host in sorted(hosts) if hosts[host]]
        if len(several) < 2 or (rate and float(rate[1]) > most):
            continue
        tokens = int(next(filter(None, hosts.values()))[0].prompt_tokens)
        for name in ("ttft", "tpot", "throughput"):
            values = tuple(tuple(getattr(start, name) for start in starts) for starts in several)
            yield Hosts(_what(label, case, name, tokens), label, case, values)


def _capacity(hosts: Iterable[Sequence[_Medians]]) -> float:
    """Return the requests per second of closed loops: the median of the best of each host."""
    rates = [
        [
            numbers.requests_per_s
            for start in starts
            for case, numbers in start.items()
            if case.startswith("closed/")
        ]
        for starts in hosts
    ]
    best = [max(of_host) for of_host in rates if of_host]
    return median(best) if best else math.inf


def _medians(requests: Iterable[Mapping[str, Any]]) -> _Medians:
    cases: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for request in requests:
        if "/eager/" not in request["case"]:
            cases[request["case"]].append(request)
    return {case: _numbers(of) for case, of in cases.items()}


def _numbers(requests: Sequence[Mapping[str, Any]]) -> _Numbers:
    repeats: dict[int, list[Mapping[str, Any]]] = defaultdict(list)
    for request in requests:
        repeats[request["repeat"]].append(request)
    spans = [
        (of, max(r["finish_s"] for r in of) - min(r["arrival_s"] for r in of))
        for of in repeats.values()
    ]
    return _Numbers(
        ttft=median(r["first_token_s"] - r["arrival_s"] for r in requests),
        tpot=median(
            (r["finish_s"] - r["first_token_s"]) / max(r["output_tokens"] - 1, 1) for r in requests
        ),
        throughput=median(sum(r["output_tokens"] for r in of) / span for of, span in spans),
        requests_per_s=median(len(of) / span for of, span in spans),
        prompt_tokens=median(sum(r["prompt_tokens"] for r in of) for of in repeats.values()),
    )


def _what(label: str, case: str, name: str, prompt_tokens: int) -> str:
    """Return what errors of a point are summed as (docs/accuracy.md)."""
    kind = case.partition("/")[0]
    what = f"{kind}: {name}"
    if kind in BATCH:
        which = f"{LONG_TOKENS:,} tokens and more" if prompt_tokens >= LONG_TOKENS else FEWER
        what = f"ttft, {which}" if name == "ttft" else name
    narrow = NARROW if label.startswith(NARROW) else ""
    group = next((name for name in (ADDED, SEVERAL) if name in label), "")
    return narrow + what + (group if kind in BATCH or narrow else "")
