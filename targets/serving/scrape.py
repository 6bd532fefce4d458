"""Reads what a server tells of itself at /metrics (text format of Prometheus).

Names are those of vLLM 0.20 (vllm/v1/metrics/loggers.py), and of SGLang 0.5.11
(srt/observability/metrics_collector.py), which are read as their likes in vLLM. A metric that is
missing is None: other versions have others. Where a server has several engines (data parallel),
counters, requests and histograms are added up, and the KV cache's use is the highest.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

LINE = re.compile(
    r"^(?P<name>[A-Za-z_:][\w:]*)(?:\{(?P<labels>.*)\})?[ \t]+(?P<value>[^ \t]+)(?:[ \t]+\d+)?$"
)
LABEL = re.compile(r'([A-Za-z_]\w*)="((?:[^"\\]|\\.)*)"')
CACHE = "vllm:cache_config_info"
MEANS = {
    "ttft": "vllm:time_to_first_token_seconds",
    "itl": "vllm:inter_token_latency_seconds",
    "tpot": "vllm:request_time_per_output_token_seconds",
    "e2e": "vllm:e2e_request_latency_seconds",
    "queue": "vllm:request_queue_time_seconds",
    "prefill": "vllm:request_prefill_time_seconds",
    "decode": "vllm:request_decode_time_seconds",
}
"""Histograms whose mean over a time is told exactly: growth of the sum over that of the count."""
GROWTH = {
    "prompt_tokens": "vllm:prompt_tokens_total",
    "generation_tokens": "vllm:generation_tokens_total",
    "preemptions": "vllm:num_preemptions_total",
    "prefix_hit_tokens": "vllm:prefix_cache_hits_total",
}
ESTIMATES = {
    "estimated_flops": "vllm:estimated_flops_per_gpu_total",
    "estimated_read_bytes": "vllm:estimated_read_bytes_per_gpu_total",
    "estimated_write_bytes": "vllm:estimated_write_bytes_per_gpu_total",
}
"""Counted only with --enable-mfu-metrics; 0 all the time without."""

SGLANG = {
    "num_running_reqs": "vllm:num_requests_running",
    "num_queue_reqs": "vllm:num_requests_waiting",
    "token_usage": "vllm:kv_cache_usage_perc",  # of the fullest pool, in hundredths
    "full_token_usage": "vllm:kv_cache_usage_perc",
    "num_retracted_requests_total": "vllm:num_preemptions_total",
    "cached_tokens_total": "vllm:prefix_cache_hits_total",
    "queue_time_seconds_sum": "vllm:request_queue_time_seconds_sum",
    "queue_time_seconds_count": "vllm:request_queue_time_seconds_count",
}
"""Names of SGLang that differ; the others are alike after the colon."""

Metrics = Mapping[str, float]
"""The sum over all labels by the name of a metric; of gauges that are shares, the highest."""
HIGHEST = "vllm:kv_cache_usage_perc"


def parse(text: str) -> dict[str, float]:
    """Return the metrics of a scrape by vLLM's names, summed over labels.

    What cannot be read is left out; so are buckets of histograms, the times when metrics were made
    and other programs' metrics: they are most of the text.
    """
    found: dict[str, float] = {}
    for line in text.splitlines():
        if not line.startswith(("vllm:", "sglang:")) or "_bucket{" in line or "_created{" in line:
            continue
        match = LINE.match(line)
        value = None if match is None else _number(match["value"])
        if match is None or value is None:
            continue
        name = match["name"]
        if name.startswith("sglang:"):
            plain = name.removeprefix("sglang:")
            name = SGLANG.get(plain, f"vllm:{plain}")
        if name == HIGHEST:
            found[name] = max(found.get(name, value), value)
        else:
            found[name] = found.get(name, 0.0) + value
    return found


def stats(metrics: Metrics) -> dict[str, Any]:
    """Return the fields of an `engine_stats` record but its moment; None for a missing metric."""
    return {
        "running": _whole(metrics.get("vllm:num_requests_running")),
        "waiting": _whole(metrics.get("vllm:num_requests_waiting")),
        "kv_usage": metrics.get(HIGHEST),
        "preemptions": _whole(metrics.get(GROWTH["preemptions"])),
        "prompt_tokens": _whole(metrics.get(GROWTH["prompt_tokens"])),
        "generation_tokens": _whole(metrics.get(GROWTH["generation_tokens"])),
    }


def totals(before: Metrics, after: Metrics) -> dict[str, Any]:
    """Return by how much a server's counters grew between two scrapes.

    Returns:
        prompt_tokens, generation_tokens, preemptions, prefix_hit_tokens; requests that ended;
        for each of `MEANS` its mean in seconds as <name>_mean_s; estimated_flops (FLOP) and
        estimated_read_bytes, estimated_write_bytes (B) of one GPU, None where it counts none.
    """
    growth: dict[str, Any] = {
        key: _whole(_growth(before, after, name)) for key, name in GROWTH.items()
    }
    growth["requests"] = _whole(_growth(before, after, f"{MEANS['e2e']}_count"))
    for key, name in MEANS.items():
        growth[f"{key}_mean_s"] = _mean(before, after, name)
    for key, name in ESTIMATES.items():
        growth[key] = _growth(before, after, name) or None
    return growth


def cache_facts(text: str) -> dict[str, Any]:
    """Return what a scrape tells of the KV cache, as fields of an `engine` record."""
    line = next((line for line in text.splitlines() if line.startswith(CACHE + "{")), None)
    match = None if line is None else LINE.match(line)
    told = {} if match is None else dict(LABEL.findall(match["labels"] or ""))
    return {
        "kv_blocks": _integer(told.get("num_gpu_blocks")),
        "block_size": _integer(told.get("block_size")),
        "kv_cache_dtype": told.get("cache_dtype"),
        "gpu_memory_utilization": _number(told.get("gpu_memory_utilization", "")),
        "prefix_caching": {"True": True, "False": False}.get(told.get("enable_prefix_caching", "")),
    }


def _growth(before: Metrics, after: Metrics, name: str) -> float | None:
    """Return the growth of a counter, None where a scrape lacks it or it began anew."""
    if name not in before or name not in after:
        return None
    growth = after[name] - before[name]
    return growth if growth >= 0 else None


def _mean(before: Metrics, after: Metrics, name: str) -> float | None:
    count = _growth(before, after, f"{name}_count")
    total = _growth(before, after, f"{name}_sum")
    return total / count if total is not None and count else None


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)


def _integer(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None
