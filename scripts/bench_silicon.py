#!/usr/bin/env python3
"""Holds `prof predict` against serving points that others measured (silicon_sample.csv).

    scripts/bench_silicon.py --repository aiconfigurator/
    scripts/bench_silicon.py --repository aiconfigurator/ --python VENV/bin/python

DIR is a checkout of https://github.com/ai-dynamo/aiconfigurator: its tables of operators are the
only source (tier T1), its `silicon_sample.csv` the truth. Nothing of these engines was recorded by
prof, so that gaps between kernels and the time of the host are not known and taken as none.

Each point is a closed loop of `batch_size` clients. What the sample does not tell: how many
requests each client sent (`--rounds`), how much their lengths differ (from `--shortest` of the
length to all of it, as InferenceMAX has them), whether times are means (taken here) or medians, and
the type of the KV cache (16 bits are taken). Nor does it tell whether the start counts, when all
clients send a prompt at once: where mean times to first token are shorter than that alone would
make them at the datasheet's rate (WARMED), the first request of each client is not counted. Tables
are those of `--backend-version`, the newest by default, whichever version the engine had. With
`--python`, an interpreter that has the package aiconfigurator, its own predictions stand beside
ours.
"""

from __future__ import annotations

import argparse
import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from nsight_prof.parsers.cells import Row, records
from nsight_prof.parsers.errors import UsageError
from nsight_prof.parsers.predict.aiconfigurator import read_aiconfigurator
from nsight_prof.parsers.predict.costs import Gpu, datasheet
from nsight_prof.parsers.predict.imported import Imported
from nsight_prof.parsers.predict.quantization import quantized_shape
from nsight_prof.parsers.predict.serving import (
    BATCHED_TOKENS,
    Engine,
    Predictor,
    Request,
    Workload,
    point,
)
from nsight_prof.parsers.serving.model_shape import ModelShape

SAMPLE = "aic-core/src/aiconfigurator_core/systems/silicon_sample.csv"
LLAMA = {"model_type": "llama", "torch_dtype": "bfloat16", "vocab_size": 128256, "head_dim": 128}
MODELS = {
    "Qwen/Qwen3-32B": {
        "model_type": "qwen3", "torch_dtype": "bfloat16", "hidden_size": 5120,
        "num_hidden_layers": 64, "num_attention_heads": 64, "num_key_value_heads": 8,
        "head_dim": 128, "intermediate_size": 25600, "vocab_size": 151936,
    },
    "meta-llama/Llama-3.1-8B-Instruct": LLAMA | {
        "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
        "num_key_value_heads": 8, "intermediate_size": 14336,
    },
    "nvidia/Llama-3.1-8B-Instruct-FP8": LLAMA | {
        "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
        "num_key_value_heads": 8, "intermediate_size": 14336,
    },
    "meta-llama/Llama-3.1-70B": LLAMA | {
        "hidden_size": 8192, "num_hidden_layers": 80, "num_attention_heads": 64,
        "num_key_value_heads": 8, "intermediate_size": 28672,
    },
}  # fmt: skip
UTILIZATION = 0.9
WARMED = ("nvidia/Llama-3.1-8B-Instruct-FP8",)
"""Models whose points leave the start out: 128 prompts of 4,000 tokens take 3.6 s at an H200's most
FLOP/s, 180 ms in the mean of ten requests each, and first tokens came after 111."""
KEY = ["model_path", "system", "backend", "precision"]
TIMES = {"tpot": "silicon_tpot_ms", "ttft": "silicon_ttft_ms"}
LOADS = ["backend_version", "isl", "osl", "batch_size", "tp_size"]
THEIRS = """
import json, sys
from aiconfigurator.cli.api import cli_estimate
NAMES = {"meta-llama/Llama-3.1-70B": "meta-llama/Meta-Llama-3.1-70B"}
NAMES |= dict.fromkeys(
    ["meta-llama/Llama-3.1-8B-Instruct", "nvidia/Llama-3.1-8B-Instruct-FP8"],
    "meta-llama/Meta-Llama-3.1-8B",
)
for line in sys.stdin:
    row = json.loads(line)
    quant = "fp8" if row["precision"] == "fp8" else None
    try:
        found = cli_estimate(
            NAMES.get(row["model_path"], row["model_path"]), row["system"],
            backend_name=row["backend"],
            backend_version=row["version"], isl=row["isl"], osl=row["osl"],
            batch_size=row["batch_size"], tp_size=row["tp_size"], gemm_quant_mode=quant,
        )
        print("@" + json.dumps([found.ttft, found.tpot]), flush=True)
    except Exception as error:
        print("@" + json.dumps([None, str(error)[:120]]), flush=True)
"""


def points(repository: Path, backend: str, only: Sequence[str], model: str) -> pd.DataFrame:
    """Return the points of dense models that are served by one engine, not split but by tensor."""
    frame = pd.read_csv(repository / SAMPLE)
    frame["precision"] = frame["precision"].fillna("bf16")
    split = frame[["pp_size", "attention_dp_size"]].fillna(1).eq(1).all(axis=1)
    chosen = frame[
        frame["mode"].eq("agg")
        & frame["backend"].eq(backend)
        & frame["model_path"].isin(list(MODELS))
        & frame["precision"].isin(["bf16", "fp8"])
        & split
        & frame["model_path"].str.contains(model, regex=False)
    ]
    if only:
        chosen = chosen[chosen["system"].isin(only)]
    whole = ["isl", "osl", "batch_size", "tp_size"]
    return chosen.astype(dict.fromkeys(whole, int)).reset_index(drop=True)


def predicted(
    row: Row,
    costs: dict[tuple[str, int], Predictor],
    gpu: Gpu,
    rounds: int,
    spread: tuple[float, float],
) -> dict[str, float]:
    """Return the numbers of a point: those of `nsight_prof.parsers.predict.serving.point`."""
    predictor = costs[row["model_path"], row["tp_size"]]
    shape = predictor.shape
    room = BATCHED_TOKENS * (3 * shape.intermediate + 2 * shape.hidden) * shape.weight_bytes
    free = gpu.memory_bytes * UTILIZATION - shape.parameter_bytes() - room
    clients = row["batch_size"]
    random = np.random.default_rng(Workload.SEED)
    lengths = random.uniform(*spread, (rounds * clients, 2)) * (row["isl"], row["osl"])
    requests = tuple(Request(0.0, *map(round, map(float, pair))) for pair in lengths)
    warmups = clients if row["model_path"] in WARMED else 0
    work = Workload(row["isl"], row["osl"], concurrency=clients, arrivals=requests, warmups=warmups)
    return point(predictor, work, free / shape.kv_bytes_per_token())


def ours(frame: pd.DataFrame, given: argparse.Namespace) -> pd.DataFrame:
    """Return the points with predicted times and their bounds, in ms."""
    rows = []
    for (system, precision), group in frame.groupby(["system", "precision"], sort=False):
        try:
            found = read_aiconfigurator(
                given.repository, str(system), given.backend, given.backend_version
            )
            gpu = datasheet(found.device)
        except UsageError as error:
            print(f"{system}: {error.message}")
            continue
        print(f"{system}, {precision}: {', '.join(found.files)}")
        predictors: dict[tuple[str, int], Predictor] = {}
        for row in records(group):
            key = row["model_path"], row["tp_size"]
            if key not in predictors:
                dtype = "fp8" if precision == "fp8" else ""
                shape: ModelShape = quantized_shape(MODELS[key[0]], dtype).shard(key[1])
                costs = Imported(found.frame, gpu, shape)
                predictors[key] = Predictor(shape, costs, gpu, Engine())
            try:
                numbers = predicted(row, predictors, gpu, given.rounds, (given.shortest, 1.0))
            except UsageError as error:
                print(f"  {row['id']}: {error.message}")
                continue
            for name in TIMES:
                for bound in ("", "_low", "_high"):
                    row[f"{name}{bound}"] = 1e3 * numbers[f"{name}_mean_s{bound}"]
            rows.append(row)
    return pd.DataFrame(rows)


def theirs(frame: pd.DataFrame, given: argparse.Namespace) -> pd.DataFrame:
    """Return the points with aiconfigurator's own times, in ms; NaN where it has none."""
    names = ["model_path", "system", "backend", "isl", "osl", "batch_size", "tp_size", "precision"]
    asked = [{n: row[n] for n in names} | {"version": given.backend_version or None}
             for row in records(frame)]  # fmt: skip
    done = subprocess.run(
        [given.python, "-W", "ignore", "-c", THEIRS],
        input="\n".join(json.dumps(row) for row in asked), text=True, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, check=False,
    )  # fmt: skip
    answers = [json.loads(line[1:]) for line in done.stdout.splitlines() if line.startswith("@")]
    if len(answers) != len(frame):
        raise SystemExit(f"{given.python} gave {len(answers)} of {len(frame)} predictions")
    refused = sorted({text for first, text in answers if first is None})
    for text in refused:
        print(f"aiconfigurator: {text}")
    both = [[math_nan(ttft), math_nan(None if ttft is None else tpot)] for ttft, tpot in answers]
    return frame.assign(their_ttft=[a for a, _ in both], their_tpot=[b for _, b in both])


def math_nan(value: float | None) -> float:
    """Return a number, NaN for None."""
    return float("nan") if value is None else float(value)


def table(frame: pd.DataFrame, by: list[str]) -> str:
    """Return errors and coverage of each group in markdown."""
    heads = [*by, "n"]
    rows = []
    for key, group in frame.groupby(by, sort=False):
        cells = [*map(str, key if isinstance(key, tuple) else (key,)), str(len(group))]
        for name, column in TIMES.items():
            error = group[name] / group[column] - 1
            inside = group[column].between(group[f"{name}_low"], group[f"{name}_high"])
            cells += [f"{abs(error).mean():.1%}", f"{np.percentile(abs(error), 90):.1%}",
                      f"{error.mean():+.1%}", f"{inside.mean():.0%}"]  # fmt: skip
            if f"their_{name}" in frame:
                other = (group[f"their_{name}"] / group[column] - 1).dropna()
                cells += [f"{abs(other).mean():.1%}" if len(other) else "–",
                          f"{other.mean():+.1%}" if len(other) else "–"]  # fmt: skip
        rows.append(cells)
    for name in ("TPOT", "TTFT"):
        heads += [f"{name} MAPE", "90th", "bias", "covered"]
        if f"their_{name.lower()}" in frame:
            heads += [f"aiconfigurator {name} MAPE", "bias"]
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main() -> None:
    """Print the errors of each model and of each number of GPUs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repository", type=Path, required=True, metavar="DIR")
    parser.add_argument("--backend", default="vllm")
    parser.add_argument("--backend-version", default="", metavar="V", help="tables; the newest")
    parser.add_argument("--system", action="append", default=[], help="only this one; repeatable")
    parser.add_argument("--rounds", type=int, default=10, help="requests per client (10)")
    parser.add_argument("--shortest", type=float, default=0.8, help="part of the lengths (0.8)")
    parser.add_argument("--only", default="", help="models whose name has this")
    parser.add_argument("--python", default="", help="interpreter with aiconfigurator")
    parser.add_argument("--csv", type=Path, help="also write the points")
    given = parser.parse_args()
    frame = ours(points(given.repository, given.backend, given.system, given.only), given)
    if given.python:
        frame = theirs(frame, given)
    if given.csv:
        numbers = frame.filter(regex=r"^(silicon_|their_|tpot|ttft)").drop(
            columns="silicon_data_source"
        )
        frame[[*KEY, *LOADS]].join(numbers).to_csv(given.csv, index=False, float_format="%.4g")
    for by in (KEY, [*KEY, "tp_size"], [*KEY, "batch_size"]):
        print(f"\n{table(frame[[c for c in frame if not str(c).startswith('their_')]], by)}")
    if given.python:
        print("\nPoints that aiconfigurator predicts as well:")
        print(f"\n{table(frame.dropna(subset=['their_tpot', 'their_ttft']), KEY)}")


if __name__ == "__main__":
    main()
