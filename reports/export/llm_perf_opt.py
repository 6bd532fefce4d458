"""Writes a run in the files and columns of llm-perf-opt, for scripts that read those.

Names, columns and units are those of CodeGandee/llm-perf-opt (docs/artifacts.md, 8f08155); numbers
that it writes as 0 where nothing was measured stay empty.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from datetime import datetime
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from nsight_prof.parsers.cells import Row, count, number, records, text
from nsight_prof.parsers.csv_cells import write_csv
from nsight_prof.parsers.run.directory import REPORT
from nsight_prof.parsers.run.run import Run
from nsight_prof.parsers.whole_file import as_utf8, written_whole

FOLDER = "%Y%m%d-%H%M%S"
"""Name of a run's folder: when it was measured, UTC."""
TOP_OPERATORS = 20
"""Rows of operators.md, as `write_operator_markdown` of llm-perf-opt has."""
_SOFTWARE = {"torch": "torch", "torch_cuda": "cuda", "transformers": "transformers"}
_KERNEL_SUM = {
    "share": "Time (%)", "total_ns": "Total Time (ns)", "calls": "Instances",
    "mean_ns": "Avg (ns)", "median_ns": "Med (ns)", "min_ns": "Min (ns)", "max_ns": "Max (ns)",
    "std_ns": "StdDev (ns)", "grid": "GridXYZ", "block": "BlockXYZ", "name": "Name",
}  # fmt: skip
_METRICS = {
    "dram_pct": "dram_throughput_pct", "l1_pct": "l1tex_throughput_pct",
    "l2_pct": "l2_throughput_pct", "l1_hit_pct": "l1tex_hit_rate_pct",
    "l2_hit_pct": "l2_hit_rate_pct", "achieved_occupancy_pct": "achieved_occupancy_pct",
    "theoretical_occupancy_pct": "theoretical_occupancy_pct", "bound_by": "classification",
    "intensity_dram": "roofline_ai_flops_per_byte", "flop_throughput": "roofline_flops_per_s",
}  # fmt: skip
_LATENCIES = ("ttft", "tpot", "itl", "e2e")
_STATISTICS = ("mean", "p50", "p90", "p95", "p99")
_RATES = ("output_tokens_per_s", "total_tokens_per_s", "requests_per_s")


def export_llm_perf_opt(run: Run, folder: Path) -> dict[Path, int]:
    """Write the folder that llm-perf-opt would have left of this run; return rows of each file.

    The files lie in `folder`/YYYYMMDD-HHMMSS, named after when the run was measured, beside a copy
    of its report. Tables without rows are left out. Times are ms; those of the kernel summary are
    ns, as nsys prints it.

    Raises:
        ArtifactUnreadable: a table of the run is damaged.
        StepFailed: a file cannot be written.
    """
    target = folder / _run_id(run)
    tables = {
        "nsys/summary_cuda_gpu_kern_sum.csv": _kernel_summary(run),
        "ncu/analysis/metrics_summary.csv": _metrics_summary(run),
        "ncu/analysis/all_metrics_long.csv": _all_metrics(run),
        "latency.csv": _latency(run),
        "throughput.csv": _throughput(run),
        "sequence.csv": _sequence(run),
    }
    texts = {
        "env.json": json.dumps(_env(run), indent=2) + "\n",
        "config.yaml": yaml.safe_dump(run.manifest.recipe, sort_keys=False, allow_unicode=True),
        "inputs.yaml": yaml.safe_dump(_inputs(run), sort_keys=False, allow_unicode=True),
        "assumptions.md": _assumptions(run),
    }
    if not run.operators.empty:
        texts["torch_profiler/operators.md"] = _operators(run.operators)
    written = {}
    for name, content in texts.items():
        with written_whole(target / name) as partial:
            partial.write_bytes(as_utf8(content))
        written[target / name] = len(content.splitlines())
    for name, frame in tables.items():
        if not frame.empty:
            with written_whole(target / name) as partial:
                write_csv(frame, partial)
            written[target / name] = len(frame)
    for source in sorted((run.path / REPORT).rglob("*")):
        if source.is_file() and not source.is_symlink():
            copy = target / source.relative_to(run.path / REPORT)
            with written_whole(copy) as partial:
                shutil.copyfile(source, partial)
            written[copy] = len(copy.read_bytes().splitlines())
    return written


def _run_id(run: Run) -> str:
    """When the run was measured; its own name where that is not known, as of imported files."""
    try:
        return datetime.fromisoformat(run.manifest.created).strftime(FOLDER)
    except ValueError:
        return run.path.resolve().name


def _env(run: Run) -> dict[str, Any]:
    """What llm-perf-opt keeps of the machine, then what it does not."""
    manifest = run.manifest
    gpus = [str(gpu.get("name", "")) for gpu in manifest.gpus]
    known = {key: manifest.software.get(name) for name, key in _SOFTWARE.items()}
    rest = {k: v for k, v in manifest.software.items() if k not in _SOFTWARE}
    return {"gpu": gpus[0] if gpus else None, **known, "gpus": gpus, **rest, **manifest.tools}


def _inputs(run: Run) -> dict[str, Any]:
    """The data set of the recipe where it names one, the imported files, or what was started."""
    dataset = run.manifest.recipe.get("dataset") or {}
    started = [step.argv for step in run.manifest.steps if step.argv][:1]
    paths = run.manifest.imported or [" ".join(argv) for argv in started]
    return {"dataset_root": dataset.get("root"), "subset_filelist": dataset.get("filelist"),
            "count": len(paths), "inputs": [{"path": path} for path in paths]}  # fmt: skip


def _assumptions(run: Run) -> str:
    items = [f"Recipe: {run.manifest.recipe.get('name', '')}", *run.manifest.assumptions]
    return "\n".join(["# Run Assumptions", "", *(f"- {item}" for item in items), ""])


def _operators(operators: pd.DataFrame) -> str:
    """The operators with most time of the host, over all shapes, as `write_operator_markdown`."""
    sums = operators.dropna(subset=["calls"]).groupby("operator", sort=False)
    top = sums[["cpu_ns", "gpu_ns", "calls"]].sum().sort_values("cpu_ns", ascending=False)
    top = top.head(TOP_OPERATORS)
    rows = [
        f"|{str(name).replace('|', '&#124;')}|{cpu / 1e6:.3f}|{gpu / 1e6:.3f}|{calls:.0f}"
        f"|{cpu / 1e6 / calls:.6f}|"
        for name, cpu, gpu, calls in top.itertuples()
    ]
    head = ["|op_name|total_time_ms|cuda_time_ms|calls|mean_ms|", "| :---: " * 5 + "|"]
    title = ["# Operator Summary (Top-K)", "", f"Rows: {len(rows)} (k={TOP_OPERATORS})", ""]
    return "\n".join([*title, *head, *rows, ""])


def _kernel_summary(run: Run) -> pd.DataFrame:
    """As `nsys stats -r cuda_gpu_kern_sum:base` prints it, a row for each kernel and shape."""
    frame = run.kernels[list(_KERNEL_SUM)].rename(columns=_KERNEL_SUM)
    return frame.assign(**{"Time (%)": frame["Time (%)"] * 100})


def _kernel_ids(run: Run) -> dict[str, str]:
    """Names of kernels as its scripts make them: rank by time, MD5 of the name."""
    names = run.kernels[["kernel_id", "name"]].itertuples(index=False)
    found = {}
    for rank, (key, name) in enumerate(names, 1):
        digest = hashlib.md5(str(name).encode(), usedforsecurity=False).hexdigest()
        found[key] = f"kernel_{rank:04d}_{digest}"
    return found


def _metrics_summary(run: Run) -> pd.DataFrame:
    kernels = run.kernels.set_index("kernel_id")
    counters = run.counters[run.counters["kernel_id"].isin(kernels.index)]
    known = kernels.loc[counters["kernel_id"]]
    columns = {
        "kernel_id": counters["kernel_id"].map(_kernel_ids(run)).to_list(),
        "kernel_name": known["name"].to_list(),
        "display_name": known["short_name"].to_list(),
        "grid_size": known["grid"].to_list(),
        "block_size": known["block"].to_list(),
        "duration_us": (counters["duration_ns"] / 1e3).to_list(),
        "memory_throughput_gbs": (counters["dram_throughput"] / 1e9).to_list(),
    }
    return pd.DataFrame(columns | {new: counters[old].to_list() for old, new in _METRICS.items()})


def _all_metrics(run: Run) -> pd.DataFrame:
    metrics = run.metrics
    ids = metrics["kernel_id"].map(_kernel_ids(run))
    frame = pd.DataFrame({"kernel_id": ids, "section": metrics["source"],
                          "metric_name": metrics["metric"], "value": metrics["value"],
                          "unit": metrics["unit"]})  # fmt: skip
    return frame.dropna(subset=["kernel_id", "value"])


def _latency(run: Run) -> pd.DataFrame:
    """One row per time: `source` (step), `name` (stage or case), `metric`, `statistic`, `ms`."""
    rows = [row for stage in records(run.stages) for row in _stage_times(stage)]
    for point in records(run.serving_points):
        for metric in _LATENCIES:
            for statistic in _STATISTICS:
                value = number(point[f"{metric}_{statistic}_s"]) * 1e3
                source, name = text(point["source"]), text(point["case"])
                rows.append(_time(source, name, metric, statistic, value))
    for case in records(run.bench):
        value = number(case["median_s"]) * 1e3
        rows.append(_time("bench", text(case["name"]), "time", "median", value))
    return pd.DataFrame(rows, columns=["source", "name", "metric", "statistic", "ms"]).dropna()


def _stage_times(stage: Row) -> list[Row]:
    name, instances = text(stage["stage"]), count(stage["instances"])
    times = [
        _time("trace", name, metric, "total", number(stage[f"{metric}_ns"]) / 1e6)
        for metric in ("wall", "gpu_busy", "kernel", "idle")
    ]
    if instances:
        times.append(_time("trace", name, "wall", "mean", times[0]["ms"] / instances))
    return times


def _time(source: str, name: str, metric: str, statistic: str, ms: float) -> Row:
    return {"source": source, "name": name, "metric": metric, "statistic": statistic, "ms": ms}


def _throughput(run: Run) -> pd.DataFrame:
    """One row per rate: `source`, `name`, `metric`, `per_s`."""
    rows = [
        {"source": point["source"], "name": point["case"], "metric": rate, "per_s": point[rate]}
        for point in records(run.serving_points)
        for rate in _RATES
    ]
    rows += [
        {"source": "bench", "name": case["name"], "metric": rate, "per_s": case[rate]}
        for case in records(run.bench)
        for rate in ("flop_per_s", "bytes_per_s")
    ]
    return pd.DataFrame(rows, columns=["source", "name", "metric", "per_s"]).dropna()


def _sequence(run: Run) -> pd.DataFrame:
    """One row per request: its sequence lengths in tokens, and its times in ms."""
    requests = run.requests
    lengths = requests[["source", "case", "request", "prompt_tokens", "output_tokens", "status"]]
    times = {f"{name}_ms": requests[f"{name}_s"] * 1e3 for name in ("ttft", "tpot", "e2e")}
    return lengths.assign(**times)
