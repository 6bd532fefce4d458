"""One matrix product of a known size, launched a few times: C = A B with A (m, k) and B (k, n).

    python gemm.py --m 8192 --n 8192 --k 8192 --dtype bf16

It has a known answer: 2 m n k floating-point operations, so that a FLOP counter can be checked
against it. Data are N(0, 1), not zeros, which draw less power and so run at higher clocks. stdout
gets one JSON line with the shape and times, stderr one line for people.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import sys

import torch

try:
    import nvtx
except ImportError:  # Without the package there is no range, and the program is still the same.
    nvtx = None

DTYPES = {
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "tf32": torch.float32,
    "fp32": torch.float32,
    "fp64": torch.float64,
}


def launches(a: torch.Tensor, b: torch.Tensor, repeats: int) -> list[float]:
    """Multiply `repeats` times in one NVTX range; return the milliseconds of each, on a GPU."""
    on_gpu = a.is_cuda
    events = []
    with contextlib.nullcontext() if nvtx is None else nvtx.annotate("gemm"):
        for _ in range(repeats):
            if not on_gpu:
                a @ b
                continue
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            a @ b
            end.record()
            events.append((start, end))
    if on_gpu:
        torch.cuda.synchronize()
    return [start.elapsed_time(end) for start, end in events]


def parse_arguments(argv: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    for size in "mnk":
        parser.add_argument(f"--{size}", type=int, default=8192, help="rows or columns (8192)")
    parser.add_argument("--dtype", choices=sorted(DTYPES), default="bf16")
    parser.add_argument("--repeats", type=int, default=10, help="measured launches (10)")
    parser.add_argument("--warmup", type=int, default=3, help="launches before them (3)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    return parser.parse_args(argv)


def measure(args: argparse.Namespace) -> list[float]:
    """Make the operands, warm up, and launch between cudaProfilerStart and cudaProfilerStop."""
    torch.manual_seed(args.seed)
    torch.backends.cuda.matmul.allow_tf32 = args.dtype == "tf32"
    options = {"dtype": DTYPES[args.dtype], "device": args.device}
    a, b = torch.randn(args.m, args.k, **options), torch.randn(args.k, args.n, **options)
    for _ in range(args.warmup):
        a @ b
    if args.device == "cpu":
        return launches(a, b, args.repeats)
    torch.cuda.synchronize()
    torch.cuda.profiler.start()
    times = launches(a, b, args.repeats)
    torch.cuda.profiler.stop()
    return times


def main(argv: list[str] | None = None) -> int:
    """Run the case; exit code 1 with a reason where the device is missing or too small."""
    args = parse_arguments(argv)
    if args.device == "cuda" and not torch.cuda.is_available():
        print("error: torch sees no CUDA device\n\nhint: --device cpu --m 64", file=sys.stderr)
        return 1
    try:
        times = measure(args)
    except torch.OutOfMemoryError as error:
        print(f"error: out of GPU memory: {error}\n\nhint: smaller sizes", file=sys.stderr)
        return 1
    median = statistics.median(times) if times else None
    shape = {"m": args.m, "n": args.n, "k": args.k}
    result = {
        "target": "gemm",
        **shape,
        "dtype": args.dtype,
        "flops": 2 * args.m * args.n * args.k,
        "milliseconds": times,
        "median_ms": median,
        "torch": torch.__version__,
        "gemms": [{"name": "gemm", "stage": "gemm", **shape, "calls": args.repeats}],
    }
    print(json.dumps(result))
    shown = "not timed" if median is None else f"{median:.3f} ms"
    print(f"gemm {args.m}x{args.n}x{args.k} {args.dtype}: {shown}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
