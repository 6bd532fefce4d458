"""Records of a benchmark target as a process writes them, to be changed by each test."""

import json
import lzma
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

Record = dict[str, Any]


def conditions(process: int = 1, repeat: int = 1, **changes: Any) -> Record:
    gpu = {
        "name": "NVIDIA H200",
        "uuid": "GPU-1",
        "sm_count": 132,
        "l2_bytes": 62914560,
        "memory_bytes": 150754820096,
        "compute_capability": "9.0",
        "max_sm_clock_hz": 1.98e9,
        "max_memory_clock_hz": 3.201e9,
        "sm_clock_hz": 1.98e9,
        "memory_clock_hz": 3.201e9,
        "power_limit_w": 700.0,
        "temperature_c": 40.0,
        "pcie_generation": 5,
        "pcie_width": 16,
    }
    software = dict.fromkeys(("cuda", "cudnn", "torch", "triton", "python"), "1")
    return {
        "record": "conditions",
        "schema": 1,
        "target": "roofline",
        "process": process,
        "repeat": repeat,
        "argv": ["run.py"],
        "time": "2026-11-21T21:00:00Z",
        "seed": 0,
        "device": "cuda",
        "gpu": gpu,
        "software": {"driver": "580.1", **software},
    } | changes


def case(
    name: str = "dram/read/u4", samples: Any = (1.0, 1.1, 1.2), process: int = 1, **changes: Any
) -> Record:
    record = {
        "record": "case",
        "schema": 1,
        "target": "roofline",
        "case": name,
        "mode": "cold",
        "data": "normal",
        "operation": "DRAM read",
        "params": {"unroll": 4},
        "dtype": "",
        "level": "dram",
        "launch": "graph",
        "duration": "",
        "process": process,
        "repeat": 1,
        "status": "ok",
        "reason": "",
        "roof": None,
        "work": {"flops": None, "bytes": 4e9, "accesses": None, "launches": None},
        "time": timing(samples),
        "clock": None,
        "throttle": None,
        "energy_j": None,
        "power_w": None,
        "temperature_c": None,
        "memory": None,
    }
    return record | changes


def timing(samples: Any) -> Record:
    values = np.array(samples, dtype=float)
    p5, q1, q3, p95 = np.percentile(values, [5, 25, 75, 95])
    return {
        "median_s": float(np.median(values)),
        "mean_s": float(values.mean()),
        "std_s": float(values.std(ddof=1)) if len(values) > 1 else None,
        "min_s": float(values.min()),
        "max_s": float(values.max()),
        "p5_s": float(p5),
        "p95_s": float(p95),
        "iqr_s": float(q3 - q1),
        "ci_low_s": None,
        "ci_high_s": None,
        "n": len(values),
        "outliers": 0,
        "relative_std": 0.01,
        "stop": "noise",
        "calls_per_sample": 1,
        "captured": True,
        "copies": 3,
        "samples_s": [float(value) for value in values],
    }


def failed(reason: str, status: str = "failed", **changes: Any) -> Record:
    return case(status=status, reason=reason, time=None, **changes)


@pytest.fixture(scope="session")
def make() -> SimpleNamespace:
    """Makers of records: `make.conditions()`, `make.case(name, samples, process)`, `.failed`."""
    return SimpleNamespace(conditions=conditions, case=case, failed=failed)


@pytest.fixture
def write_records(tmp_path: Path) -> Callable[..., Path]:
    """Write records to a file of JSON lines; text stands as it is, .xz names are packed."""

    def write(*records: Record | str, name: str = "result-1-1.jsonl") -> Path:
        lines = [r if isinstance(r, str) else json.dumps(r) + "\n" for r in records]
        path = tmp_path / name
        data = "".join(lines).encode()
        path.write_bytes(lzma.compress(data) if path.suffix == ".xz" else data)
        return path

    return write
