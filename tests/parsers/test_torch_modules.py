"""GPU time by module in the operator view, where a trace of CUDA graphs has none."""

from __future__ import annotations

import json
import lzma
from collections import Counter
from pathlib import Path

from nsight_prof.parsers.torch.trace import open_torch_trace

RECORDED = Path(__file__).parents[1] / "fixtures" / "torch_trace" / "qwen-eager.json.xz"


def module_event(
    name: str, start: float, length: float, outputs: bool = False
) -> dict[str, object]:
    text = f"{{'Module': '{name}', '{'Outputs' if outputs else 'Inputs'}': [[8, 4]]}}"
    return annotation(text, start, length)


def annotation(name: str, start: float, length: float) -> dict[str, object]:
    return {
        "ph": "X",
        "cat": "user_annotation",
        "name": name,
        "pid": 1,
        "tid": 1,
        "ts": start,
        "dur": length,
        "args": {},
    }


def launch(number: int, start: float, gpu: float, graph: bool = False) -> list[dict[str, object]]:
    """A call of the host and a kernel of `gpu` us."""
    name = "cudaGraphLaunch" if graph else "cudaLaunchKernel"
    args = {"correlation": number}
    call = {"ph": "X", "cat": "cuda_runtime", "name": name, "pid": 1, "tid": 1, "ts": start}
    kernel = {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1000.0 + number}
    more = {"grid": [1, 1, 1], "device": 0}
    return [call | {"dur": 1.0, "args": args}, kernel | {"dur": gpu, "args": args | more}]


def test_kernels_count_to_the_innermost_module(tmp_path: Path) -> None:
    events = [
        annotation("decode", 0, 100),
        module_event("M.layers.0", 10, 30),
        module_event("M.layers.0.mlp", 15, 10),
        module_event("M.layers.0.mlp", 26, 0, outputs=True),
        module_event("M.layers.1", 45, 20),
        *launch(1, 12, 2.0),
        *launch(2, 16, 5.0),
        *launch(3, 50, 3.0),
        *launch(4, 80, 10.0),
        *launch(5, 55, 20.0, graph=True),
    ]
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": events}), encoding="utf-8")
    rows = open_torch_trace(path, {"decode": "decode"}).modules().to_dict("records")
    found = {r["module"]: (r["instances"], r["launches"], r["kernel_ns"]) for r in rows}
    assert found == {"M.layers.*": (2, 2, 5000), "M.layers.*.mlp": (1, 1, 5000)}
    assert {r["stage"] for r in rows} == {"decode"}
    assert {r["source"] for r in rows} == {"operators"}
    assert sum(r["share"] for r in rows) == 10 / 40


def test_a_real_trace_without_modules_has_none() -> None:
    events = json.loads(lzma.decompress(RECORDED.read_bytes()))["traceEvents"]
    named = Counter("'Module'" in str(event["name"]) for event in events)
    frame = open_torch_trace(RECORDED).modules()
    assert frame.empty == (named[True] == 0)
