"""Counts the FLOPs, weights and parameters of a torch module, by stage, operator and module.

    python static_compute.py mine.py:make --out static_compute.json

`make()` of `mine.py` returns a module and the tuple of its inputs. They are made on the meta
device: shapes alone, no memory and no GPU. A target that runs its model anyway counts while it
runs (`Count`), which also knows stages and KV cache.

FLOPs are those of torch's FlopCounterMode: matrix products, convolutions and attention, 2 for a
multiplication and an addition; attention counts all pairs of query and key, causal or not. Weights
are the bytes of the parameters that a call reads: of an embedding the rows, of a mixture of experts
those that tokens were sent to; each once, as for all modules that run within one stage in a row.
"""

from __future__ import annotations

import argparse
import json
import os
import runpy
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

if not __package__:  # run as a file
    runpy.run_path(str(Path(__file__).resolve().parent / "standalone.py"))
from nsight_prof.targets.standalone import complain, need

need("torch")
import torch
from torch.utils.flop_counter import FlopCounterMode

SCHEMA = 1
FILE = "static_compute.json"


ATTENTION = (
    "_scaled_dot_product_flash_attention_for_cpu",
    "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_cudnn_attention",
)


def _attention_flops(query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
    """Count each head of the queries, of which several may share keys and values.

    Torch's own formula refuses fewer heads of keys than of queries (2.11).
    """
    batch, heads, queries, width = query
    return int(2 * batch * heads * queries * key[-2] * (width + value[-1]))


def _grouped_flops(left: Any, right: Any, *_: Any, **__: Any) -> int:
    """Each row of the tokens meets the matrix of one expert: (tokens, k) x (experts, k, n)."""
    return 2 * left[0] * left[1] * right[-1] if len(left) == 2 else 0


def _formulas() -> dict[Any, Any]:
    """Return formulas of operators that torch has none for, where this version has them."""
    known = dict.fromkeys(ATTENTION, _attention_flops) | {"_grouped_mm": _grouped_flops}
    return {getattr(torch.ops.aten, n): f for n, f in known.items() if hasattr(torch.ops.aten, n)}


class Count:
    """Counts what runs inside of it, as a context.

    `enter` says which stage it belongs to from then on; weights are counted once between two calls
    of it.
    """

    def __init__(self, module: Any) -> None:
        self._module = module
        self._flops = FlopCounterMode(display=False, custom_mapping=_formulas())
        self._before: dict[Any, int] = {}
        self._stage = ""
        self._weights: dict[int, float] = {}
        self._by_stage: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
        self._operators: dict[tuple[str, str], int] = defaultdict(int)
        self._hooks: list[Any] = []

    def __enter__(self) -> Count:
        for module in self._module.modules():
            if any(True for _ in module.parameters(recurse=False)):
                # Before hooks that end the module's stage.
                hook = module.register_forward_hook(self._read, prepend=True, with_kwargs=True)
                self._hooks.append(hook)
        self._flops.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self.enter("")
        self._flops.__exit__(*error)
        for hook in self._hooks:
            hook.remove()

    def enter(self, stage: str) -> None:
        """Count to `stage` from now on; "" counts nowhere."""
        now = self._flops.get_flop_counts().get("Global", {})
        row = self._by_stage[self._stage]
        row["calls"] += bool(self._weights)
        row["weight_bytes"] += sum(self._weights.values())
        for operator, flops in now.items():
            new = flops - self._before.get(operator, 0)
            row["flops"] += new
            self._operators[self._stage, str(operator)] += new
        self._before, self._weights, self._stage = dict(now), {}, stage

    def add_read(self, tensors: Iterable[Any]) -> None:
        """Count tensors that the stage reads and no forward does, each once: to `weight_bytes`.

        In training: parameters and gradients in the backward and in the optimizer, and its state.
        """
        self._weights |= {id(tensor): _bytes(tensor) for tensor in tensors}

    def add_cache(self, tensors: list[Any]) -> None:
        """Count the bytes of a KV cache that a decode step reads."""
        size = sum(t.numel() * t.element_size() for t in tensors)
        self._by_stage[self._stage]["kv_bytes"] += size

    def result(self, more: Mapping[str, Any]) -> dict[str, Any]:
        """Return what was counted as the contents of static_compute.json."""
        parameters = list(self._module.parameters())
        counts = self._flops.get_flop_counts()
        root = type(self._module).__name__
        return {
            "schema": SCHEMA,
            **more,
            "dtype": str(parameters[0].dtype).removeprefix("torch.") if parameters else "",
            "parameters": sum(p.numel() for p in parameters),
            "parameter_bytes": sum(p.numel() * p.element_size() for p in parameters),
            "stages": [
                {"stage": stage, **{k: int(row[k]) for k in ("calls", "flops", "weight_bytes")},
                 "kv_bytes": int(row["kv_bytes"])}
                for stage, row in self._by_stage.items()
                if stage
            ],
            "operators": [
                {"stage": stage, "operator": operator, "flops": flops}
                for (stage, operator), flops in self._operators.items()
                if stage and flops
            ],
            "modules": [
                {"module": name, "kind": type(module).__name__,
                 "parameters": sum(p.numel() for p in module.parameters()),
                 "flops": sum(counts.get(f"{root}.{name}" if name else root, {}).values())}
                for name, module in self._module.named_modules()
            ],
        }  # fmt: skip

    def _read(self, module: Any, args: Any, kwargs: Any, output: Any) -> None:
        if isinstance(module, torch.nn.Embedding):
            rows = min(args[0].numel(), module.num_embeddings)
            self._weights[id(module.weight)] = _bytes(module.weight) * rows / module.num_embeddings
            return
        given = [v for v in (*args, *kwargs.values()) if isinstance(v, torch.Tensor)]
        routes = next((v for v in given if v.ndim == 2 and not v.is_floating_point()), None)
        for parameter in module.parameters(recurse=False):
            share = 1.0
            if parameter.ndim == 3 and routes is not None and not routes.is_meta:
                share = min(1.0, routes.unique().numel() / parameter.shape[0])
            self._weights[id(parameter)] = _bytes(parameter) * share


def _bytes(tensor: Any) -> int:
    return int(tensor.numel() * tensor.element_size())


def write(path: Path, counted: Mapping[str, Any]) -> None:
    """Write what was counted as JSON."""
    path.write_text(json.dumps(counted, indent=1) + "\n", "utf-8")


def write_beside_records(counted: Mapping[str, Any]) -> None:
    """Write what a profiled program counted where prof finds it; nothing without prof."""
    records = os.environ.get("PROF_RESULTS")
    if records:
        write(Path(records).parent / FILE, counted)


def on_meta(make: Callable[[], tuple[Any, tuple[Any, ...]]]) -> dict[str, Any]:
    """Return the counts of one call of the module that `make` returns with its inputs."""
    with torch.device("meta"), torch.inference_mode():
        module, inputs = make()
        with Count(module) as count:
            count.enter("forward")
            module(*inputs)
    return count.result({"model": type(module).__name__, "device": "meta"})


def main(argv: list[str] | None = None) -> int:
    """Count; exit code 1 with a reason where the function cannot be run on the meta device."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("make", metavar="FILE.py:FUNCTION", help="returns a module and its inputs")
    parser.add_argument("--out", type=Path, default=Path(FILE), help=f"({FILE})")
    args = parser.parse_args(argv)
    file, _, name = args.make.rpartition(":")
    try:
        counted = on_meta(runpy.run_path(file)[name])
    except Exception as error:
        complain(
            f"{args.make} cannot be run on the meta device: {type(error).__name__}: {error}",
            "the function returns (module, inputs); a forward that looks at values "
            "(.item(), .tolist()) can only be counted while it runs on a device",
        )
        return 1
    write(args.out, counted)
    (forward,) = counted["stages"]
    print(json.dumps({k: counted[k] for k in ("model", "parameters")} | forward))
    return 0


if __name__ == "__main__":
    sys.exit(main())
