"""Writes down what prof predicts of a model before an engine serves it here.

    python scripts/predict_before.py MODEL --rate 20,30,40,70

Rests on the recorded kernels and on the slice of the model, captures/prediction/slice-MODEL. Below
captures/prediction/before it writes MODEL.csv, batches of 512 + 128 tokens and single requests of
10 to 4,000 + 100, and MODEL-server.csv, closed loops of 1 to 128 clients and open loops of the
rates in requests per second: without a known server, and with the event loop of each recorded one.
Commit both before the truth is recorded; scripts/accuracy.py holds them against it.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import click
import pandas as pd

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from nsight_prof.orchestrator.predict.plan import Settings  # noqa: E402
from nsight_prof.orchestrator.predict.predicting import plan  # noqa: E402
from nsight_prof.parsers.predict.points import point_row  # noqa: E402
from nsight_prof.parsers.predict.serving import Workload  # noqa: E402
from scripts.accuracy import copy_captures  # noqa: E402

BEFORE = ROOT / "captures" / "prediction" / "before"
KERNELS = ("h200-llm-kernels", "h200-gemm-staircase")
SERVERS = {
    "not known": (),
    "that of qwen2.5-7b": ("prediction/slice-qwen2.5-7b", "h200-vllm-serve"),
    "that of llama-3.1-8b": ("prediction/slice-llama-3.1-8b", "prediction/serve-llama-3.1-8b"),
}  # fmt: skip
"""Recorded servers whose event loop is taken, each with the slice of its model."""
BATCHES = (1, 4, 8, 16, 32, 64, 128)
LENGTHS = (10, 50, 200, 1000, 4000)
QUANTITIES = [f"{name}{end}" for name in ("ttft_p50_s", "tpot_p50_s", "output_tokens_per_s")
              for end in ("", "_low", "_high")]  # fmt: skip
RATES = [f"requests_per_s{end}" for end in ("", "_low", "_high")]
COMMON = ["case", "experiment", "model", "gpu"]
SIZES = ["prompt_tokens", "output_tokens", "tier"]


@click.command(help=(__doc__ or "").splitlines()[0])
@click.argument("model")
@click.option("--rate", "rates", required=True, help="Requests per second, by commas.")
def main(model: str, rates: str) -> None:
    """Write both files of a model."""
    with tempfile.TemporaryDirectory() as folder:
        work, own = Path(folder), f"prediction/slice-{model}"
        names = {*KERNELS, own, *(name for server in SERVERS.values() for name in server)}
        copy_captures(work, sorted(names))
        kernels = [work / name for name in (*KERNELS, own)]
        batches = [Workload(512, 128, size) for size in BATCHES]
        batches += [Workload(length, 100, 1) for length in LENGTHS]
        engine = Settings(workloads=tuple(batches), utilization=0.85, batched_tokens=16384,
                          max_requests=128)  # fmt: skip
        found = _points(model, kernels, engine)
        columns = [*COMMON, "batch", "concurrency", *SIZES, "kv_tokens", *QUANTITIES]
        _write(found, columns, f"{model}.csv")
        loads = [Workload(512, 128, concurrency=n, count=max(10, 4 * n)) for n in BATCHES]
        loads += [Workload(512, 128, rate=float(rate), count=10 * int(rate))
                  for rate in rates.split(",")]  # fmt: skip
        served = Settings(workloads=tuple(loads), utilization=0.85)
        rows: list[dict[str, Any]] = []
        for server, sources in SERVERS.items():
            points = _points(model, [*kernels, *(work / name for name in sources)], served)
            best = max((point for point in points if point["experiment"] == "closed"),
                       key=lambda point: float(point["requests_per_s"]))  # fmt: skip
            kept = ("model", "gpu", "requests", *SIZES, *QUANTITIES[6:], *RATES)
            capacity: dict[str, Any] = {"case": "capacity", "experiment": "capacity"}
            capacity |= {name: best.get(name) for name in kept}
            rows += [point | {"server": server} for point in (*points, capacity)]
        columns = [*COMMON, "server", "concurrency", "request_rate", "requests", *SIZES]
        _write(rows, [*columns, *QUANTITIES, *RATES], f"{model}-server.csv")


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
