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
from typing import Any, NamedTuple

import pandas as pd

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
NARROW = "narrow engines: "
"""Before what is of engines that no user has: they tell what the host needs."""
OPEN_RATE = re.compile(r"open/r([\d.]+)/")
COLUMNS = {"ttft_s": "ttft", "tpot_s": "tpot", "tokens_per_s": "throughput"}


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
    middle = pd.Series([pd.Series(starts).median() for starts in hosts]).median()
    return math.fsum(apart) / len(apart) / math.sqrt(2) / float(middle)


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
    found: dict[str, dict[str, list[pd.DataFrame]]] = defaultdict(lambda: defaultdict(list))
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
        drawn = pd.Series([
            _mean(by_engine[engine] for engine in chance.choices(engines, k=len(engines)))
            for _ in range(DRAWS)
        ])  # fmt: skip
        low, high = (float(drawn.quantile(share)) for share in (0.05, 0.95))
    every = [by_engine[engine] for engine in engines]
    return Floor(_mean(every), low, high, sum(map(len, every)), starts)


def _mean(groups: Iterable[Sequence[float]]) -> float:
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


def _engines(run: Path) -> Iterator[tuple[list[Any], str, pd.DataFrame]]:
    """Yield settings, name and requests of each engine with graphs that no profiler watched."""
    for path in sorted(run.glob("steps/*/result*.jsonl*")):
        if "counters" in path.parent.name or "operators" in path.parent.name:
            continue
        with (lzma.open if path.suffix == ".xz" else open)(path, "rt", encoding="utf-8") as lines:
            read = ('"record": "engine"', '"record": "request"')  # a third of all lines
            records = [json.loads(line) for line in lines if any(kind in line for kind in read)]
        requests = pd.DataFrame(r for r in records if r["record"] == "request" and _is_usable(r))
        for engine in (r for r in records if r["record"] == "engine"):
            if engine["mode"] == "cuda-graphs" and len(requests):
                graphs = ~requests["case"].str.contains("/eager/")
                yield _settings(engine), _label(run, engine), requests[graphs]


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


def _points(label: str, by_host: Mapping[str, list[pd.DataFrame]]) -> Iterator[Hosts]:
    medians = pd.concat(
        [_medians(frame).assign(host=host) for host, frames in by_host.items() for frame in frames]
    )
    closed = medians[medians["case"].str.startswith("closed/")]
    most = OPEN_LIMIT * NEARLY * closed.groupby("host")["requests_per_s"].max().median()
    for case, of in medians.groupby("case"):
        rate = OPEN_RATE.match(str(case))
        if of["host"].nunique() < 2 or (rate and float(rate[1]) > most):
            continue
        for column, name in COLUMNS.items():
            starts = of.dropna(subset=column).groupby("host")[column]
            values = tuple(tuple(each) for _, each in starts)
            if len(values) > 1:
                tokens = int(of["prompt_tokens"].iloc[0])
                yield Hosts(_what(label, str(case), name, tokens), label, str(case), values)


def _medians(requests: pd.DataFrame) -> pd.DataFrame:
    """Return the numbers of each point: medians over its requests, rates of all."""
    found = requests.assign(
        ttft_s=requests["first_token_s"] - requests["arrival_s"],
        tpot_s=(requests["finish_s"] - requests["first_token_s"])
        / (requests["output_tokens"] - 1).clip(lower=1),
    )
    middle = found.groupby("case")[["ttft_s", "tpot_s"]].median()
    each = found.groupby(["case", "repeat"]).agg(
        begin=("arrival_s", "min"), end=("finish_s", "max"), tokens=("output_tokens", "sum"),
        prompt_tokens=("prompt_tokens", "sum"), requests=("arrival_s", "size"),
    )  # fmt: skip
    spans = each["end"] - each["begin"]
    rates = {f"{name}_per_s": (each[name] / spans).groupby("case").median()
             for name in ("tokens", "requests")}  # fmt: skip
    prompts = each["prompt_tokens"].groupby("case").median()
    return middle.assign(**rates, prompt_tokens=prompts).reset_index()


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
