"""The cases of the harness: each operation of the sweeps, and networks as a whole."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch

from nsight_prof.targets.harness import Case, Setup, Work, is_cuda
from nsight_prof.targets.harness.api import Call, Scalar
from nsight_prof.targets.harness.batches import capture
from nsight_prof.targets.llm_kernels.data import Maker, compiled, name_of
from nsight_prof.targets.network_kernels.calls import list_calls
from nsight_prof.targets.network_kernels.networks import NETWORKS, TINY_NETWORKS, Network
from nsight_prof.targets.network_kernels.plan import Plan
from nsight_prof.targets.network_kernels.sweeps import Swept, sweep

TF32 = "tf32"
IN_TENSOR_CORES = ("conv", "linear", "attention", "lstm")
COMPILED_BATCHES = (1, 32)
"""Batches of a network that is compiled too: each takes tens of seconds."""


def operation_cases(plan: Plan) -> Iterator[Case]:
    """Make each operation in a CUDA graph, cold and hot, and the smallest launched by the host."""
    for swept in sweep(plan):
        if swept.family == "fused":
            variants = ["compiled-graph"]
        else:
            variants = ["graph", *(["eager"] if swept.eager else ())]
        for variant in variants:
            if variant in plan.variants:
                yield _case(swept, variant)


def _case(swept: Swept, variant: str) -> Case:
    operation, wide = swept.operation, swept.dtype is torch.float32
    tensor = swept.family in IN_TENSOR_CORES
    dtype = TF32 if wide and tensor else name_of(swept.dtype)

    def prepare(setup: Setup) -> list[Call]:
        # The harness takes it back before the next case. Convolutions have it by default.
        torch.backends.cuda.matmul.allow_tf32 = dtype == TF32
        maker = Maker(setup)
        return [swept.make(maker) for _ in range(setup.copies)]

    sizes = {"rows": operation.rows, **operation.sizes}
    words = "-".join(f"{key.replace('_', '')}{value}" for key, value in sizes.items())
    parts = (swept.family, operation.op, operation.layout, words, dtype, variant)
    params: dict[str, Scalar] = {
        "family": swept.family,
        "op": operation.op,
        "layout": operation.layout,
        "variant": variant,
        "weight_bytes": operation.weight_bytes,
        **sizes,
    }
    return Case(
        name="/".join(part for part in parts if part),
        operation=operation.op,
        prepare=prepare,
        work=operation.work,
        footprint_bytes=operation.work.bytes or 0,
        params=params,
        dtype=dtype,
        level="tensor" if tensor else "dram",
        modes=_modes(swept, variant),
        launch="eager" if variant == "eager" else "graph",
        counted=swept.counted and variant != "eager",
    )


def _modes(swept: Swept, variant: str) -> tuple[str, ...]:
    if swept.family == "fine":
        return ("cold",)
    return ("hot",) if variant == "eager" else ("cold", "hot")


def network_cases(plan: Plan) -> Iterator[Case]:
    """Make whole networks at their batches: launched by the host, in a CUDA graph, compiled."""
    for network in (TINY_NETWORKS if plan.tiny else NETWORKS).values():
        for batch in network.batches:
            for variant in plan.variants:
                if variant != "compiled-graph" or (
                    network.compiles and batch in COMPILED_BATCHES and not plan.tiny
                ):
                    yield _network(network, batch, variant)


def _network(network: Network, batch: int, variant: str) -> Case:
    with torch.device("meta"):
        calls = list_calls(*network.made(1))
    flops = sum(call["flops"] * call["calls"] for call in calls) * batch
    weights = sum(call["weight_bytes"] * call["calls"] for call in calls)

    def prepare(setup: Setup) -> list[Call]:
        with torch.device(setup.device):
            module, inputs = network.made(batch)
        function: Any = compiled(module, inputs) if variant == "compiled-graph" else module

        def call() -> object:
            with torch.inference_mode():
                return function(*inputs)

        return [call if variant == "eager" or not is_cuda(setup.device) else _captured(call)]

    dtype = name_of(network.dtype)
    return Case(
        name=f"network/{network.key}/b{batch}/{dtype}/{variant}",
        operation=network.key,
        prepare=prepare,
        # Bytes: what must come from DRAM at least. Activations may stay in L2.
        work=Work(flops=flops, bytes=weights),
        footprint_bytes=weights,
        params={
            "family": "network",
            "op": network.key,
            "layout": network.layout,
            "rows": batch,
            "variant": variant,
        },
        dtype=TF32 if dtype == "fp32" else dtype,
        level="tensor",
        modes=("hot",),
        # A graph of its own holds the whole network, however long it takes.
        launch="eager",
        counted=False,
    )


def _captured(call: Call) -> Call:
    """Return the replay of a CUDA graph of a call, which libraries have prepared before.

    The replay holds the call, whose weights and inputs the graph reads where they were.
    """
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    return partial(_replay, capture([call]), call)


def _replay(graph: Any, call: Call) -> None:
    graph.replay()
