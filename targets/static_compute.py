"""Counts the FLOPs, weights and parameters of a torch module, by stage, operator and module.

    python static_compute.py mine.py:make --out static_compute.json

`make()` of `mine.py` returns a module and the tuple of its inputs. They are made on the meta
device: shapes alone, no memory and no GPU. A target that runs its model anyway counts while it
runs (`Count`), which also knows stages and KV cache.

FLOPs are those of torch's FlopCounterMode: matrix products, convolutions and attention, 2 for a
multiplication and an addition; attention counts all pairs of query and key, causal or not. Weights
are the bytes of the parameters that a call reads: of an embedding the rows, of a mixture of experts
those that tokens were sent to; each once, as for all modules that run within one stage in a row.
Activations are the bytes of the tensors that a module returns, over all of its calls.

A quantized layer (fp8, AWQ, GPTQ, bitsandbytes) multiplies in a kernel of its own, which torch does
not count: its FLOPs are those of its sizes, its weights all that it holds, scales too. Of a model
that is run in 16 bits, though its checkpoint is quantized, `Stored` tells what that would read.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import runpy
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

if not __package__:  # run as a file
    runpy.run_path(str(Path(__file__).resolve().parent / "standalone.py"))
from nsight_prof.targets.standalone import complain, need

need("torch")
import torch
from torch.utils.flop_counter import FlopCounterMode

from nsight_prof.targets.network_kernels.calls import list_calls

SCHEMA = 1
FILE = "static_compute.json"


ATTENTION = (
    "_scaled_dot_product_flash_attention_for_cpu",
    "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_cudnn_attention",
)
VLLM_ATTENTION = ("flash_attn_maxseqlen_wrapper", "triton_attn_wrapper", "torch_sdpa_wrapper")
"""Of vision encoders (vLLM 0.20.2); the attention of its language models is not counted."""


def _attention_flops(query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
    """Count each head of the queries, of which several may share keys and values.

    Torch's own formula refuses fewer heads of keys than of queries (2.11).
    """
    batch, heads, queries, width = query
    return int(2 * batch * heads * queries * key[-2] * (width + value[-1]))


def _grouped_flops(left: Any, right: Any, *_: Any, **__: Any) -> int:
    """Each row of the tokens meets the matrix of one expert: (tokens, k) x (experts, k, n)."""
    return 2 * left[0] * left[1] * right[-1] if len(left) == 2 else 0


def _packed_attention_flops(query: Any, key: Any, value: Any, *more: Any, **_: Any) -> int:
    """Count sequences that lie one behind the other, of (sequences, tokens, heads, width).

    Their bounds are the one vector among the arguments, which stands elsewhere in each operator.
    """
    batch, tokens, heads, width = query.shape
    bounds = next((v for v in more if isinstance(v, torch.Tensor) and v.ndim == 1), None)
    lengths = [tokens] * batch if bounds is None else bounds.diff().tolist()
    return int(2 * heads * sum(n * n for n in lengths) * (width + value.shape[-1]))


_packed_attention_flops._get_raw = True  # type: ignore[attr-defined]  # values, not shapes alone


def _formulas() -> dict[Any, Any]:
    """Return formulas of operators that torch has none for, where they are registered."""
    known: dict[str, dict[str, Any]] = {
        "aten": dict.fromkeys(ATTENTION, _attention_flops) | {"_grouped_mm": _grouped_flops},
        "vllm": dict.fromkeys(VLLM_ATTENTION, _packed_attention_flops),
    }
    return {
        getattr(operators, name): formula
        for space, formulas in known.items()
        if (operators := getattr(torch.ops, space))
        for name, formula in formulas.items()
        if hasattr(operators, name)
    }


QUANTIZED_LINEAR = "quantized linear"
"""Operator of the FLOPs of layers whose kernels torch does not count."""


def is_packed(module: Any) -> bool:
    """Tell whether a module is a linear layer whose weights are no plain matrix of floats."""
    sizes = ("in_features", "out_features")
    held = (*module.parameters(recurse=False), *module.buffers(recurse=False))
    return all(isinstance(getattr(module, size, None), int) for size in sizes) and any(
        tensor.element_size() == 1 or not tensor.is_floating_point() for tensor in held
    )


class Count:
    """Counts what runs inside of it, as a context.

    `enter` says which stage it belongs to from then on; weights are counted once between two calls
    of it. It may be entered again: counts of stages add up, those of modules are of the last time.
    """

    def __init__(self, module: Any, stored: Stored | None = None) -> None:
        """Count a module; `stored` says how its checkpoint keeps weights, where that differs."""
        self._module = module
        self._stored = {} if stored is None else stored.bytes_of(module)
        self._method = "" if stored is None else stored.method
        self._kept: dict[int, float] = {}  # of what is in _weights, as the checkpoint stores it
        self._packed: dict[int, int] = {}  # FLOPs before a packed layer began
        self._flops = FlopCounterMode(display=False, custom_mapping=_formulas())
        self._before: dict[Any, int] = {}
        self._stage = ""
        self._weights: dict[int, float] = {}
        self._by_stage: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
        self._operators: dict[tuple[str, str], int] = defaultdict(int)
        self._activations: dict[int, int] = defaultdict(int)  # bytes that a module returned
        self._hooks: list[Any] = []

    def __enter__(self) -> Count:
        for module in self._module.modules():
            self._hooks.append(module.register_forward_hook(self._returned))
            if is_packed(module):
                self._hooks += [
                    module.register_forward_pre_hook(self._begin_packed),
                    module.register_forward_hook(self._end_packed, prepend=True),
                ]
            elif any(True for _ in module.parameters(recurse=False)):
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
        self._before, self._hooks = {}, []

    def enter(self, stage: str) -> None:
        """Count to `stage` from now on; "" counts nowhere."""
        now = self._flops.get_flop_counts().get("Global", {})
        row = self._by_stage[self._stage]
        row["calls"] += bool(self._weights)
        row["weight_bytes"] += sum(self._weights.values())
        row["stored_bytes"] += sum(self._kept.get(k, size) for k, size in self._weights.items())
        for operator, flops in now.items():
            new = flops - self._before.get(operator, 0)
            row["flops"] += new
            self._operators[self._stage, str(operator)] += new
        self._before, self._weights, self._stage = dict(now), {}, stage
        self._kept = {}

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
        packed = [module for module in self._module.modules() if is_packed(module)]
        counts = self._flops.get_flop_counts()
        root = type(self._module).__name__
        return {
            "schema": SCHEMA,
            **more,
            "dtype": str(parameters[0].dtype).removeprefix("torch.") if parameters else "",
            "parameters": _parameters(self._module),
            "parameter_bytes": sum(map(_bytes, parameters))
            + sum(_bytes(b) for module in packed for b in module.buffers(recurse=False)),
            **self._quantization(packed),
            "stages": [
                {"stage": stage, **{k: int(row[k]) for k in ("calls", "flops", "weight_bytes")},
                 "kv_bytes": int(row["kv_bytes"]),
                 **({"stored_bytes": int(row["stored_bytes"])} if self._stored else {})}
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
                 "parameters": _parameters(module),
                 "flops": sum(counts.get(f"{root}.{name}" if name else root, {}).values()),
                 "activation_bytes": self._activations[id(module)]}
                for name, module in self._module.named_modules()
            ],
        }  # fmt: skip

    def _quantization(self, packed: list[Any]) -> dict[str, Any]:
        """Return how weights are kept, where that is not one value of `dtype` each."""
        if packed:
            return {"quantization": ", ".join(sorted({type(module).__name__ for module in packed}))}
        if not self._stored:
            return {}
        held = {id(p): _bytes(p) for p in self._module.parameters()}
        whole = sum(self._stored.get(key, size) for key, size in held.items())
        return {"quantization": self._method, "stored_bytes": int(whole)}

    def _begin_packed(self, module: Any, *_: Any) -> None:
        self._packed[id(module)] = self._flops.get_total_flops()

    def _end_packed(self, module: Any, args: Any, output: Any) -> None:
        held = (*module.parameters(recurse=False), *module.buffers(recurse=False))
        self._weights |= {id(tensor): _bytes(tensor) for tensor in held}
        if self._flops.get_total_flops() == self._packed.pop(id(module)):
            flops = 2 * output.numel() * module.in_features
            self._by_stage[self._stage]["flops"] += flops
            self._operators[self._stage, QUANTIZED_LINEAR] += flops

    def _returned(self, module: Any, args: Any, output: Any) -> None:
        self._activations[id(module)] += sum(map(_bytes, _tensors(output)))

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
            if id(parameter) in self._stored:
                self._kept[id(parameter)] = self._stored[id(parameter)] * share


@dataclass(frozen=True)
class Stored:
    """How a checkpoint stores the matrices of a model, by the quantization_config of config.json.

    Attributes:
        method: fp8, awq, gptq, …
        value_bytes: of a value of a matrix, with its part of the scale and zero of its group.
        kept: patterns of names of modules that stay as they are.
    """

    method: str
    value_bytes: float
    kept: tuple[str, ...] = ()

    def bytes_of(self, module: Any) -> dict[int, float]:
        """Return the bytes of each matrix that the checkpoint quantizes, by id of its parameter.

        Those are the weights of linear layers and of experts; embeddings and the head stay.
        """
        found: dict[int, float] = {}
        for name, inner in module.named_modules():
            if isinstance(inner, torch.nn.Embedding) or any(map(name.__contains__, self.kept)):
                continue
            for parameter in inner.parameters(recurse=False):
                if parameter.ndim == 3 or (parameter.ndim == 2 and hasattr(inner, "in_features")):
                    found[id(parameter)] = parameter.numel() * self.value_bytes
        return found


def stored(config: Mapping[str, Any]) -> Stored | None:
    """Return how a checkpoint stores its weights; None where as they are, or in a way not known.

    Reports of engines have this rule in parsers/serving/stored_weights.py; targets stand alone.
    Known are fp8 (a scale of 4 bytes for each block), AWQ and GPTQ (a scale of 2 bytes for each
    group, and a zero), bitsandbytes in 4 and 8 bits, and one scheme of compressed-tensors.
    """
    given = config.get("quantization_config")
    if not isinstance(given, Mapping):
        return None
    method = str(given.get("quant_method") or "").lower()
    kept = [*(given.get("modules_to_not_convert") or ()), *(given.get("ignored_layers") or ())]
    kept += [str(name).removeprefix("re:").strip(".*") for name in given.get("ignore") or ()]
    bits = _bits(method, given)
    return None if bits is None else Stored(method, bits / 8, (*map(str, kept), "lm_head"))


def _bits(method: str, given: Mapping[str, Any]) -> float | None:
    """Return the bits of a value with its part of scale and zero; None where not known."""
    bits, group = given.get("bits"), given.get("group_size")
    if method == "fp8":
        block = math.prod(given.get("weight_block_size") or [0])
        return 8 + (32 / block if block else 0)
    if method in ("awq", "gptq") and isinstance(bits, int) and isinstance(group, int):
        zero = given.get("zero_point", True) if method == "awq" else not given.get("sym", True)
        return bits + ((16 + bits * bool(zero)) / group if group > 0 else 0)
    if method == "bitsandbytes":
        return 8 if given.get("load_in_8bit") else 4 + 32 / 64  # a scale for each 64 (NF4, QLoRA)
    schemes = given.get("config_groups")
    if method == "compressed-tensors" and isinstance(schemes, Mapping) and len(schemes) == 1:
        weights = next(iter(schemes.values())).get("weights") or {}
        width, size = weights.get("num_bits"), weights.get("group_size") or 0
        return None if width is None else width + (16 / size if size > 0 else 0)
    return None


def _parameters(module: Any) -> int:
    """Return how many parameters a module has; of a packed layer those that it stands for."""
    packed = [inner for inner in module.modules() if is_packed(inner)]
    of_packed = {id(p) for inner in packed for p in inner.parameters(recurse=False)}
    biases = [inner.bias for inner in packed if getattr(inner, "bias", None) is not None]
    plain = [p for p in module.parameters() if id(p) not in of_packed]
    matrices = sum(inner.in_features * inner.out_features for inner in packed)
    return int(matrices + sum(p.numel() for p in (*plain, *biases)))


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    """Give the tensors in a tuple, list, mapping or output of a model; not those of a cache."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping | list | tuple):
        for inner in value.values() if isinstance(value, Mapping) else value:
            yield from _tensors(inner)


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
    """Return the counts of one call of the module that `make` returns with its inputs.

    `calls` are its operations in order, which `prof predict` adds up for any batch.
    """
    with torch.device("meta"), torch.inference_mode():
        module, inputs = make()
        with Count(module) as count:
            count.enter("forward")
            module(*inputs)
        calls = list_calls(module, inputs)
    return count.result({"model": type(module).__name__, "device": "meta", "calls": calls})


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
