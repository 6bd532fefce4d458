"""How far the same engine differs between hosts: what no prediction beats that does not know them.

Of all recorded runs that served: those are the same engine whose GPU, model and its configuration,
settings, number of GPUs and target are the same; hosts are told apart by the GPU's UUID. Their
points are the same where their cases are.
"""

from __future__ import annotations

import json
import lzma
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

LONG_TOKENS = 1000
"""Tokens of all prompts of a batch from which on the GPU decides their time, as a rule."""
NO_MATTER = ("max_model_len", "gpu_memory_utilization", "enable_mfu_metrics", "seed")
"""Arguments of an engine that change no time of a request."""
BATCH = ("batch", "lengths", "latency", "prefill-decode")
"""Experiments of batches, by the head of a case."""
SEVERAL, FEWER = ", several GPUs", "fewer tokens"
NARROW = "narrow engines: "
"""Before what is of engines that no user has: they tell what the host needs."""
COLUMNS = {"ttft_s": "ttft", "tpot_s": "tpot", "tokens_per_s": "throughput"}


class Hosts(NamedTuple):
    """One point of one engine on several hosts."""

    what: str
    engine: str
    case: str
    values: tuple[float, ...]

    @property
    def distance(self) -> float:
        """How far a host lies from the median of them all, on average (0.01: 1 %)."""
        of = pd.Series(self.values)
        middle = of.median()
        return float((of - middle).abs().mean() / middle)


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
def between_hosts(captures: Path) -> Mapping[str, tuple[float, int, int]]:
    """Return mean distance, points and engines by what is predicted; several GPUs by themselves."""
    rows = pd.DataFrame(
        {"what": item.what, "engine": item.engine, "distance": item.distance}
        for item in measured(captures)
    )
    return {
        str(what): (float(of["distance"].mean()), len(of), of["engine"].nunique())
        for what, of in rows.groupby("what")
    }


def table(captures: Path) -> list[list[str]]:
    """Return a row of each kind of point: how many, on how many hosts, and how far apart."""
    found: dict[str, list[Hosts]] = defaultdict(list)
    for item in measured(captures):
        found[item.what].append(item)
    rows = []
    for what, points in sorted(found.items()):
        off = pd.Series([point.distance for point in points])
        engines = sorted({point.engine for point in points})
        numbers = [f"{value:.1%}" for value in (off.mean(), off.median(), off.max())]
        rows.append([what, str(len(points)), "; ".join(engines), *numbers])
    return rows


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
    return narrow + run.name + several


def _points(label: str, by_host: Mapping[str, list[pd.DataFrame]]) -> Iterator[Hosts]:
    medians = pd.concat(
        [
            _medians(pd.concat([frame.assign(start=at) for at, frame in enumerate(frames)])).assign(
                host=host
            )
            for host, frames in by_host.items()
        ]
    )
    for case, of in medians.groupby("case"):
        if of["host"].nunique() < 2:
            continue
        for column, name in COLUMNS.items():
            values = tuple(of[column].dropna())
            if len(values) > 1:
                tokens = int(of["prompt_tokens"].iloc[0])
                yield Hosts(_what(label, str(case), name, tokens), label, str(case), values)


def _medians(requests: pd.DataFrame) -> pd.DataFrame:
    """Return the numbers of each point: medians over its requests, tokens per second of all."""
    found = requests.assign(
        ttft_s=requests["first_token_s"] - requests["arrival_s"],
        tpot_s=(requests["finish_s"] - requests["first_token_s"])
        / (requests["output_tokens"] - 1).clip(lower=1),
    )
    middle = found.groupby("case")[["ttft_s", "tpot_s"]].median()
    each = found.groupby(["case", "start", "repeat"]).agg(
        begin=("arrival_s", "min"), end=("finish_s", "max"), tokens=("output_tokens", "sum"),
        prompt_tokens=("prompt_tokens", "sum"),
    )  # fmt: skip
    rates = (each["tokens"] / (each["end"] - each["begin"])).groupby("case").median()
    prompts = each["prompt_tokens"].groupby("case").median()
    return middle.assign(tokens_per_s=rates, prompt_tokens=prompts).reset_index()


def _what(label: str, case: str, name: str, prompt_tokens: int) -> str:
    """Return what errors of a point are summed as (docs/accuracy.md)."""
    kind = case.partition("/")[0]
    what = f"{kind}: {name}"
    if kind in BATCH:
        which = f"{LONG_TOKENS:,} tokens and more" if prompt_tokens >= LONG_TOKENS else FEWER
        what = f"ttft, {which}" if name == "ttft" else name
    narrow = NARROW if label.startswith(NARROW) else ""
    return narrow + what + (SEVERAL if SEVERAL in label else "")
