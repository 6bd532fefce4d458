"""Writes down what prof predicts of a model before an engine serves it here.

    python scripts/predict_before.py MODEL --rate 20,30,40,70
    python scripts/predict_before.py MODEL --name MODEL-h100 --gpu h100-sxm --on RUN --on RUN
    python scripts/predict_before.py MODEL --on RUN --rate 20,30 --server prediction/serve-OTHER

Rests on the recorded kernels and on the slice of the model, captures/prediction/slice-MODEL, or on
the runs below captures/ that --on names. Below captures/prediction/before it writes NAME.csv,
batches of 512 + 128 tokens and single requests of 10 to 4,000 + 100, and with rates in requests per
second NAME-server.csv, closed loops of 1 to 128 clients and open loops of these rates, whose
requests come when vllm-serve sends them behind these closed loops (its seed 0): without a
known server, and with the event loop of each recorded one, or of the runs that --server names.
Commit them before the truth is recorded; scripts/accuracy.py holds them against it.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import pandas as pd

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from nsight_prof.orchestrator.predict.plan import Settings  # noqa: E402
from nsight_prof.orchestrator.predict.predicting import plan  # noqa: E402
from nsight_prof.orchestrator.predict.run_folder import opened  # noqa: E402
from nsight_prof.parsers.predict.points import point_row  # noqa: E402
from nsight_prof.parsers.predict.serving import Request, Workload  # noqa: E402
from nsight_prof.parsers.serving.model_shape import Adapters  # noqa: E402
from nsight_prof.targets.serving.load_points import arrivals  # noqa: E402
from scripts.pages.accuracy.captures import copy_captures  # noqa: E402

BEFORE = ROOT / "captures" / "prediction" / "before"
KERNELS = ("h200-llm-kernels", "h200-gemm-staircase")
UNKNOWN = "not known"
SERVERS = {
    UNKNOWN: (),
    "that of qwen2.5-7b": ("prediction/slice-qwen2.5-7b", "h200-vllm-serve"),
    "that of llama-3.1-8b": ("prediction/slice-llama-3.1-8b", "prediction/serve-llama-3.1-8b"),
}  # fmt: skip
"""Recorded servers whose event loop is taken, each with the slice of its model."""
BATCHES = (1, 4, 8, 16, 32, 64, 128)
OPEN_S = 10.0
"""Seconds of arrivals of an open loop (target.args.open_time)."""
LENGTHS = (10, 50, 200, 1000, 4000)
QUANTITIES = [f"{name}{end}" for name in ("ttft_p50_s", "tpot_p50_s", "output_tokens_per_s")
              for end in ("", "_low", "_high")]  # fmt: skip
RATES = [f"requests_per_s{end}" for end in ("", "_low", "_high")]
COMMON = ["case", "experiment", "model", "gpu"]
SIZES = ["prompt_tokens", "output_tokens", "tier"]


@click.command(help=(__doc__ or "").splitlines()[0])
@click.argument("model")
@click.option("--name", default="", help="Of the files; the model's if not given.")
@click.option("--on", "runs", multiple=True, help="A run below captures/; may be given often.")
@click.option("--gpu", default="", help="By its datasheet, where it is not that of the runs.")
@click.option("--tp", "tensor_parallel", type=int, default=1, help="GPUs that share the model.")
@click.option("--dtype", default="", help="fp8: quantized when it is loaded.")
@click.option("--speculative-tokens", "drafted", type=int, default=0, help="Drafted in a step.")
@click.option("--accept", type=float, default=1.0, help="Tokens that such a step gives.")
@click.option("--adapters", type=(int, int), default=(0, 0), help="How many, and their rank.")
@click.option("--rate", "rates", default="", help="Requests per second, by commas.")
@click.option("--server", "servers", multiple=True, help="Run below captures/ of an event loop.")
def main(
    model: str,
    name: str,
    runs: tuple[str, ...],
    adapters: tuple[int, int],
    rates: str,
    servers: tuple[str, ...],
    **asked_for: Any,
) -> None:
    """Write the files of a model."""
    with tempfile.TemporaryDirectory() as folder:
        work, own = Path(folder), runs or (*KERNELS, f"prediction/slice-{model}")
        copy_captures(work, own)
        sources = [work / run for run in own]
        batches = [Workload(512, 128, size) for size in BATCHES]
        batches += [Workload(length, 100, 1) for length in LENGTHS]
        beside = Adapters(*adapters) if adapters[0] else None
        asked = Settings(workloads=tuple(batches), utilization=0.85, adapters=beside, **asked_for)
        engine = replace(asked, batched_tokens=16384, max_requests=128)
        columns = [*COMMON, "batch", "concurrency", *SIZES, "kv_tokens", *QUANTITIES]
        _write(_points(model, sources, engine), columns, f"{name or model}.csv")
        if rates:
            named = {f"that of {Path(run).name}": (run,) for run in servers}
            loops = {UNKNOWN: (), **named} if named else SERVERS
            _servers(model, work, sources, asked, rates, name or model, loops)


def _servers(
    model: str,
    work: Path,
    sources: list[Path],
    asked: Settings,
    rates: str,
    name: str,
    loops: Mapping[str, tuple[str, ...]],
) -> None:
    """Write the loads of a server, with each event loop that is known on such a GPU."""
    copy_captures(work, sorted({run for server in loops.values() for run in server}))
    loads = [Workload(512, 128, concurrency=n, count=max(10, 4 * n)) for n in BATCHES]
    for number, rate in enumerate(sorted(map(float, rates.split(","))), len(loads) + 1):
        came = arrivals(round(OPEN_S * rate), OPEN_S, number)
        sent = tuple(Request(when - came[0], 512, 128) for when in came)
        loads.append(Workload(512, 128, rate=rate, arrivals=sent))
    served, rows = replace(asked, workloads=tuple(loads)), []
    here = {opened(source).gpu_name for source in sources}
    for server, runs in loops.items():
        if not here.issuperset(opened(work / run).gpu_name for run in runs):
            continue  # runs of several GPUs are refused together
        points = _points(model, [*sources, *(work / run for run in runs)], served)
        best = max((point for point in points if point["experiment"] == "closed"),
                   key=lambda point: float(point["requests_per_s"]))  # fmt: skip
        kept = ("model", "gpu", "requests", *SIZES, *QUANTITIES[6:], *RATES)
        capacity: dict[str, Any] = {"case": "capacity", "experiment": "capacity"}
        capacity |= {name: best.get(name) for name in kept}
        rows += [point | {"server": server} for point in (*points, capacity)]
    columns = [*COMMON, "server", "concurrency", "request_rate", "requests", *SIZES]
    _write(rows, [*columns, *QUANTITIES, *RATES], f"{name}-server.csv")


def _points(model: str, sources: list[Path], settings: Settings) -> list[dict[str, Any]]:
    """Return a row of `predicted_points` for each load of the settings."""
    prediction = plan(model, sources, settings).prediction()
    return [dict(point_row(prediction, load)) for load in settings.workloads]


def _write(rows: list[dict[str, Any]], columns: list[str], name: str) -> None:
    pd.DataFrame(rows).reindex(columns=columns).to_csv(
        BEFORE / name, index=False, float_format="%.6g"
    )
    click.echo(BEFORE / name)


if __name__ == "__main__":
    main()
