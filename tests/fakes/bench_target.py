"""A stand-in for a benchmark target: writes records as the harness does, and fails by FAKE_BENCH.

FAKE_BENCH is a mode, or mode@process: `dies` after its first case, `half` in the middle of a line,
`no-gpu`, `nothing` (no case, exit code 0), `broken` (exit code 3 before a case), `hang`. Unset, all
goes well. With --roofs its cases are candidates for roofs, measured on an H200 with the UUID that
CUDA_VISIBLE_DEVICES holds.
"""

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

FACTS = (
    "name uuid sm_count l2_bytes memory_bytes compute_capability max_sm_clock_hz",
    "max_memory_clock_hz sm_clock_hz memory_clock_hz power_limit_w temperature_c",
    "pcie_generation pcie_width",
)
NONE: dict[str, Any] = dict.fromkeys(" ".join(FACTS).split(" "))
H200 = NONE | {
    "name": "NVIDIA H200",
    "uuid": os.environ.get("CUDA_VISIBLE_DEVICES") or "GPU-0",
    "sm_count": 132,
    "l2_bytes": 62914560,
    "compute_capability": "9.0",
    "max_sm_clock_hz": 1.98e9,
    "max_memory_clock_hz": 3.201e9,
    "power_limit_w": 700.0,
}
SOFTWARE: dict[str, Any] = dict.fromkeys(("cuda", "cudnn", "torch", "triton")) | {
    "driver": "580.95",
    "python": "3.11.0",
}
CASES = [
    ("dram/read/one-shot", "DRAM read", "dram", "", {"bytes": 1e9}, ("dram", "read", "")),
    ("dram/write/one-shot", "DRAM write", "dram", "", {"bytes": 1e9}, ("dram", "write", "")),
    ("tensor/bf16/8192", "GEMM", "tensor", "bf16", {"flops": 1e12}, ("tensor", "burst", "bf16")),
]


def main() -> int:
    parser = argparse.ArgumentParser()
    for name in ("out", "device", "only"):
        parser.add_argument(f"--{name}")
    for name in ("process", "repeat", "launches", "seed"):
        parser.add_argument(f"--{name}", type=int, default=1)
    for name in ("count", "roofs"):
        parser.add_argument(f"--{name}", action="store_true")
    args = parser.parse_args()
    mode, _, process = os.environ.get("FAKE_BENCH", "").partition("@")
    if process and (int(process) != args.process or args.count):
        mode = ""
    print(f"process {args.process} begins", file=sys.stderr)
    if mode == "no-gpu":
        print("error: torch sees no CUDA device\n\nhint: --device cpu", file=sys.stderr)
        return 1
    if mode == "broken":
        print("error: the case file is damaged\n\nhint: fetch it again", file=sys.stderr)
        return 3
    if mode == "hang":
        time.sleep(60)
    write(args, mode)
    return 1 if mode in ("dies", "half") else 0


def write(args: argparse.Namespace, mode: str) -> None:
    with Path(args.out).open("w") as out:
        print(json.dumps(conditions(args)), file=out, flush=True)
        for number, case in enumerate([] if mode == "nothing" else CASES):
            line = json.dumps(record(args, number, *case))
            if number == 1 and mode == "half":
                out.write(line[: len(line) // 2])
            if number == 1 and mode in ("dies", "half"):
                print("RuntimeError: CUDA error: an illegal memory access", file=sys.stderr)
                return
            print(line, file=out, flush=True)
            print(f"{case[1]}: measured", file=sys.stderr, flush=True)


def conditions(args: argparse.Namespace) -> dict[str, Any]:
    return {
        "record": "conditions",
        "schema": 1,
        "target": "fake",
        "process": args.process,
        "repeat": args.repeat,
        "argv": sys.argv,
        "time": "2026-01-01T00:00:00Z",
        "seed": args.seed,
        "device": "cuda" if args.roofs else "cpu",
        "gpu": H200 if args.roofs else None,
        "software": SOFTWARE,
    }


def record(
    args: argparse.Namespace,
    number: int,
    name: str,
    operation: str,
    level: str,
    dtype: str,
    work: dict[str, float],
    roof: tuple[str, str, str],
) -> dict[str, Any]:
    median = (1 + number) * 2e-4 * (1 + args.process / 1e4 + args.repeat / 1e3)
    keys = ("level_or_pipe", "kind", "dtype")
    return {
        "record": "case",
        "schema": 1,
        "target": "fake",
        "case": name,
        "mode": "cold",
        "data": "normal",
        "operation": operation,
        "params": {},
        "dtype": dtype,
        "level": level,
        "launch": "graph",
        "duration": "burst" if roof[1] == "burst" else "",
        "process": args.process,
        "repeat": args.repeat,
        "status": "counted" if args.count else "ok",
        "reason": "",
        "roof": dict(zip(keys, roof, strict=True)) if args.roofs else None,
        "work": {"flops": None, "bytes": None, "accesses": None, "launches": None} | work,
        "time": None if args.count else timing(median),
        "clock": None,
        "throttle": None,
        "energy_j": None,
        "power_w": None,
        "temperature_c": None,
        "memory": None,
    }


def timing(median: float) -> dict[str, Any]:
    samples = [median * (1 + step / 1000) for step in range(-5, 6)]
    return {
        "median_s": median,
        "mean_s": median,
        "std_s": median * 0.003,
        "min_s": samples[0],
        "max_s": samples[-1],
        "p5_s": samples[0],
        "p95_s": samples[-1],
        "iqr_s": samples[8] - samples[2],
        "ci_low_s": samples[2],
        "ci_high_s": samples[8],
        "n": len(samples),
        "outliers": 0,
        "relative_std": 0.003,
        "stop": "noise",
        "calls_per_sample": 10,
        "captured": True,
        "copies": 3,
        "samples_s": samples,
    }


if __name__ == "__main__":
    sys.exit(main())
