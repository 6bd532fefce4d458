"""Measures what a memset between two kernels of a CUDA graph takes; needs a GPU and torch.

    python scripts/probe_memsets.py            prints a line of JSON
    nsys profile --trace=cuda --cuda-graph-trace=node --capture-range=cudaProfilerApi
        --capture-range-end=stop python scripts/probe_memsets.py

Both were done on an H200 (captures/prediction/memsets-h200): the line, and start, duration and kind
of all nodes in the trace. The difference is what nsys adds (parsers/predict/trace.py).
"""

from __future__ import annotations

import ctypes
import json
import time
from importlib import import_module
from typing import Any

KERNELS, REPLAYS, CLEARED_BYTES = 144, 10, 384


def graph(torch: Any, data: Any, cleared: Any = None) -> Any:
    """Return a CUDA graph of kernels one after the other, with a memset before each or without."""
    loaded = ctypes.CDLL(f"libcudart.so.{torch.version.cuda.partition('.')[0]}")
    found = torch.cuda.CUDAGraph()
    loaded.cudaMemsetAsync.argtypes = [
        ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t, ctypes.c_void_p,
    ]  # fmt: skip
    with torch.cuda.graph(found):
        for _ in range(KERNELS):
            if cleared is not None:
                stream = torch.cuda.current_stream().cuda_stream
                if loaded.cudaMemsetAsync(cleared.data_ptr(), 0, CLEARED_BYTES, stream):
                    raise SystemExit("cudaMemsetAsync failed")
            data.add_(1.0)
    return found


def seconds(torch: Any, found: Any) -> float:
    """Return the median time of a replay."""
    times = []
    for _ in range(REPLAYS):
        torch.cuda.synchronize()
        start = time.perf_counter()
        found.replay()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return sorted(times)[REPLAYS // 2]


def main() -> None:
    """Print microseconds for each kernel, without a memset before it and with one."""
    torch = import_module("torch")
    data, cleared = (torch.zeros(size, device="cuda") for size in (4 << 20, 1024))
    data.add_(1.0)
    both = [graph(torch, data), graph(torch, data, cleared)]
    for found in both:
        seconds(torch, found)
    torch.cuda.cudart().cudaProfilerStart()
    alone, with_memset = (1e6 * seconds(torch, found) / KERNELS for found in both)
    torch.cuda.cudart().cudaProfilerStop()
    print(json.dumps({"kernel_us": alone, "with_memset_us": with_memset}))


if __name__ == "__main__":
    main()
