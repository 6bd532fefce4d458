"""Writes down what prof predicts of a model before an engine serves it here.

    python scripts/predict_before.py MODEL --rate 20,30,40,70
    python scripts/predict_before.py MODEL --name MODEL-h100 --gpu h100-sxm --on RUN --on RUN
    python scripts/predict_before.py MODEL --on RUN --rate 20,30 --server prediction/serve-OTHER
    python scripts/predict_before.py MODEL --on RUN --hosts 60,80,100,120,140

Rests on the recorded kernels and on the slice of the model, captures/prediction/slice-MODEL, or on
the runs below captures/ that --on names. Below captures/prediction/before it writes NAME.csv,
batches of 512 + 128 tokens and single requests of 10 to 4,000 + 100, and with rates in requests per
second NAME-server.csv, closed loops of 1 to 128 clients and open loops of these rates, whose
requests come when vllm-serve sends them behind these closed loops (its seed 0): without a
known server, and with the event loop of each recorded one, or of the runs that --server names.
With --hosts, microseconds of the loop of table host_speed, NAME-hosts.csv and NAME-server-hosts.csv
have each point for hosts of these speeds: what is predicted for the host that serves is read from
them where its loop, timed beside the truth, says.
Commit them before the truth is recorded, with their rows in captures/prediction/frozen.csv (commit
of the models, time); scripts/accuracy.py holds them against it.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import click
import pandas as pd

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from nsight_prof.orchestrator.predict.host_speeds import HostSpeed  # noqa: E402
from nsight_prof.orchestrator.predict.plan import Plan, Settings  # noqa: E402
from nsight_prof.orchestrator.predict.predicting import plan  # noqa: E402
from nsight_prof.orchestrator.predict.run_folder import opened  # noqa: E402
from nsight_prof.orchestrator.predict.sources import EAGLE  # noqa: E402
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
@click.option("--draft", default=EAGLE, help="What drafts them: eagle or ngram.")
@click.option("--accept", type=float, default=1.0, help="Tokens that such a step gives.")
@click.option("--adapters", type=(int, int), default=(0, 0), help="How many, and their rank.")
@click.option("--rate", "rates", default="", help="Requests per second, by commas.")
@click.option("--server", "servers", multiple=True, help="Run below captures/ of an event loop.")
@click.option("--as-batches", is_flag=True, help="The server has the limits of batches, too.")
@click.option("--length-output", type=int, default=100, help="Tokens that single requests get.")
@click.option("--hosts", default="", help="Times of the loop that tells a host's speed, in us.")
def main(
    model: str,
    name: str,
    runs: tuple[str, ...],
    adapters: tuple[int, int],
    rates: str,
    servers: tuple[str, ...],
    length_output: int,
    hosts: str,
    **asked_for: Any,
) -> None:
    """Write the files of a model."""
    speeds = [float(text) for text in hosts.split(",") if text]
    as_batches = asked_for.pop("as_batches")
    with tempfile.TemporaryDirectory() as folder:
        work, own = Path(folder), runs or (*KERNELS, f"prediction/slice-{model}")
        copy_captures(work, own)
        sources = [work / run for run in own]
        batches = [Workload(512, 128, size) for size in BATCHES]
        batches += [Workload(length, length_output, 1) for length in LENGTHS]
        beside = Adapters(*adapters) if adapters[0] else None
        asked = Settings(workloads=tuple(batches), utilization=0.85, adapters=beside, **asked_for)
        engine = replace(asked, batched_tokens=16384, max_requests=128)
        columns = [*COMMON, "batch", "concurrency", *SIZES, "kv_tokens", *QUANTITIES]
        planned = plan(model, sources, engine)
        _write(_points(planned), columns, f"{name or model}.csv")
        if rates:
            named = {f"that of {Path(run).name}": (run,) for run in servers}
            loops = {UNKNOWN: (), **named} if named else _recorded(SERVERS)
            limits = engine if as_batches else asked
            _servers(model, work, sources, limits, rates, name or model, loops, speeds)
        if speeds:
            rows = _at_hosts(planned, speeds)
            _write(rows, ["host_us", *columns], f"{name or model}-hosts.csv")


def _recorded(servers: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """Return those whose runs are there: a machine may have some captures alone."""
    captures = BEFORE.parents[1]
    return {name: runs for name, runs in servers.items()
            if all((captures / run).is_dir() for run in runs)}  # fmt: skip


def _servers(
    model: str,
    work: Path,
    sources: list[Path],
    asked: Settings,
    rates: str,
    name: str,
    loops: Mapping[str, tuple[str, ...]],
    speeds: list[float],
) -> None:
    """Write the loads of a server, with each event loop that is known on such a GPU."""
    copy_captures(work, sorted({run for server in loops.values() for run in server}))
    loads = [Workload(512, 128, concurrency=n, count=max(10, 4 * n)) for n in BATCHES]
    for number, rate in enumerate(sorted(map(float, rates.split(","))), len(loads) + 1):
        came = arrivals(round(OPEN_S * rate), OPEN_S, number)
        sent = tuple(Request(when - came[0], 512, 128) for when in came)
        loads.append(Workload(512, 128, rate=rate, arrivals=sent))
    served, rows = replace(asked, workloads=tuple(loads)), []
    plans: dict[str, Plan] = {}
    here = {opened(source).gpu_name for source in sources}
    for server, runs in loops.items():
        if not here.issuperset(opened(work / run).gpu_name for run in runs):
            continue  # runs of several GPUs are refused together
        plans[server] = plan(model, [*sources, *(work / run for run in runs)], served)
        points = _points(plans[server])
        rows += [point | {"server": server} for point in (*points, _capacity(points))]
    columns = [*COMMON, "server", "concurrency", "request_rate", "requests", *SIZES]
    columns += [*QUANTITIES, *RATES]
    _write(rows, columns, f"{name}-server.csv")
    if len(plans) > 1:
        del plans[UNKNOWN]
    rows = []
    for server, planned in plans.items() if speeds else ():
        by_host = _at_hosts(planned, speeds)
        for speed in speeds:
            there = [point for point in by_host if point["host_us"] == speed]
            there.append(_capacity(there) | {"host_us": speed})
            rows += [point | {"server": server} for point in there]
    if rows:
        _write(rows, ["host_us", *columns], f"{name}-server-hosts.csv")


def _capacity(points: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the row of the capacity: the highest rate of a closed loop."""
    best = max((point for point in points if point["experiment"] == "closed"),
               key=lambda point: float(point["requests_per_s"]))  # fmt: skip
    kept = ("model", "gpu", "requests", *SIZES, *QUANTITIES[6:], *RATES)
    found: dict[str, Any] = {"case": "capacity", "experiment": "capacity"}
    return found | {name: best.get(name) for name in kept}


def _points(planned: Plan) -> list[dict[str, Any]]:
    """Return a row of `predicted_points` for each load of the settings."""
    prediction = planned.prediction()
    return [dict(point_row(prediction, load)) for load in planned.settings.workloads]


def _at_hosts(planned: Plan, speeds: list[float]) -> list[dict[str, Any]]:
    """Return the same for hosts of several speeds, each worked out by a process of its own."""
    plans = []
    for speed in speeds:
        settings = replace(planned.settings, host=HostSpeed(speed / 1e6, "", f"{speed:g} us"))
        there = replace(planned, settings=settings, notes=[])
        # Read once: what a host does changes no kernel.
        there.fitted, there.trace, there.power = planned.fitted, planned.trace, planned.power
        plans.append(there)
    with get_context("fork").Pool(min(len(plans), os.cpu_count() or 1) or 1) as pool:
        found = pool.map(_points, plans, chunksize=1)
    return [
        point | {"host_us": speed}
        for speed, points in zip(speeds, found, strict=True)
        for point in points
    ]


def _write(rows: list[dict[str, Any]], columns: list[str], name: str) -> None:
    pd.DataFrame(rows).reindex(columns=columns).to_csv(
        BEFORE / name, index=False, float_format="%.6g"
    )
    click.echo(BEFORE / name)


if __name__ == "__main__":
    main()
