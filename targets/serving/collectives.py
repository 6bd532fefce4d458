"""Times what vLLM's tensor parallelism exchanges, among processes that each have a GPU.

The first rank is this process; it broadcasts to the others what to do next, and all do it
together. Calls are vLLM's own, so that its choice of an all-reduce by size holds: in a CUDA graph
up to the tokens that vLLM captures, else as the host launches them.
"""

from __future__ import annotations

import contextlib
import socket
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from multiprocessing import get_context
from typing import Any

from nsight_prof.targets.harness import Call
from nsight_prof.targets.serving.op_chains import Chain, added_seconds, in_stream

PAIRS = 16
"""Products, each with a collective behind it, in a chain."""
ALL_REDUCE, ALL_GATHER = "all_reduce", "all_gather"


@dataclass(frozen=True)
class Exchange:
    """A collective: `tokens` rows of `width` values of 16 bits on each rank.

    Behind a product of `inputs` inputs, whose outputs it exchanges; `captured`: in a CUDA graph.
    """

    kind: str
    tokens: int
    width: int
    inputs: int
    captured: bool


class Ranks:
    """The processes of a tensor parallel group; close it to end them."""

    def __init__(self, count: int) -> None:
        with contextlib.closing(socket.socket()) as free:
            free.bind(("127.0.0.1", 0))
            address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
        spawn = get_context("spawn")
        self._others = [
            spawn.Process(target=_serve, args=(rank, count, address), daemon=True)
            for rank in range(1, count)
        ]
        for process in self._others:
            process.start()
        _join(0, count, address)

    def seconds(self, exchange: Exchange) -> list[float]:
        """Return samples of the seconds of an exchange, by the first rank."""
        _broadcast(asdict(exchange))
        return _samples(exchange)

    def close(self) -> None:
        """End the other processes."""
        _broadcast(None)
        for process in self._others:
            process.join(timeout=10)
            if process.is_alive():
                process.kill()


def _serve(rank: int, count: int, address: str) -> None:
    """Do what the first rank says until it says nothing more."""
    _join(rank, count, address)
    while (wanted := _broadcast(None)) is not None:
        _samples(Exchange(**wanted))


def _join(rank: int, count: int, address: str) -> None:
    import torch
    from vllm.config import VllmConfig, set_current_vllm_config
    from vllm.distributed import parallel_state

    torch.cuda.set_device(rank)
    with set_current_vllm_config(VllmConfig()):
        parallel_state.init_distributed_environment(count, rank, address, rank)
        parallel_state.initialize_model_parallel(count)
    print(f"rank {rank} of {count} joined", file=sys.stderr, flush=True)


def _broadcast(message: Any) -> Any:
    """Return what the first rank gives to all."""
    import torch.distributed as dist
    from vllm.distributed.parallel_state import get_tp_group

    box = [message]
    dist.broadcast_object_list(box, src=0, group=get_tp_group().cpu_group)
    return box[0]


def _samples(exchange: Exchange) -> list[float]:
    import torch
    from vllm.distributed import tensor_model_parallel_all_gather, tensor_model_parallel_all_reduce

    device = torch.device("cuda", torch.cuda.current_device())
    tokens, width, inputs = exchange.tokens, exchange.width, exchange.inputs

    def empty(*shape: int) -> torch.Tensor:
        return torch.empty(*shape, dtype=torch.bfloat16, device=device)

    x = empty(tokens, inputs).normal_()
    weights = [empty(width, inputs).normal_(0.0, inputs**-0.5) for _ in range(PAIRS)]
    outputs = [empty(tokens, width) for _ in weights]
    exchanged = {
        ALL_REDUCE: tensor_model_parallel_all_reduce,
        ALL_GATHER: tensor_model_parallel_all_gather,
    }[exchange.kind]
    before = [partial(torch.mm, x, w.t(), out=y) for w, y in zip(weights, outputs, strict=True)]
    calls = [partial(exchanged, y) for y in outputs]
    with torch.inference_mode():
        make = _in_graph_of_vllm if exchange.captured else in_stream
        found = added_seconds(before, calls, make)
    torch.cuda.empty_cache()
    return found


def _in_graph_of_vllm(calls: Sequence[Call]) -> Chain:
    """Return the calls as a CUDA graph whose buffers vLLM's all-reduce knows on all ranks."""
    import torch
    from vllm.distributed.parallel_state import graph_capture

    graph = torch.cuda.CUDAGraph()
    device = torch.device("cuda", torch.cuda.current_device())
    with graph_capture(device=device) as context, torch.cuda.graph(graph, stream=context.stream):
        for call in calls:
            call()
    return lambda: graph.replay()


def exchanges(width: int, inputs: int, vocabulary: int, rows: Sequence[int],
              prompts: Sequence[int]) -> Iterator[Exchange]:  # fmt: skip
    """Give the all-reduces of a layer's output, and the all-gathers of the logits."""
    for tokens in (*rows, *prompts):
        yield Exchange(ALL_REDUCE, tokens, width, inputs, tokens in rows)
    for tokens in (row for row in rows if row <= 256):
        yield Exchange(ALL_GATHER, tokens, vocabulary, width, captured=False)
