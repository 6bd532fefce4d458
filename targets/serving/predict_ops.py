"""Measures the operators of one model at its own shapes, as vLLM calls them, for `prof predict`.

    python predict_ops.py --model qwen3-14b
    python predict_ops.py --model llama-3.1-8b --ranks 2

Products at the sizes of CUDA graphs and of prompts, attention of vLLM's back end over batch,
context and chunks, small operators, and with as many GPUs as ranks what these exchange. Each is
timed once behind another kernel (op_chains.py), not among its like. One JSON line per case. Runs by
itself in any Python that has vLLM 0.20 or newer.
"""

from __future__ import annotations

import argparse
import atexit
import runpy
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

if not __package__:  # run as a file
    runpy.run_path(str(Path(__file__).resolve().parents[1] / "standalone.py"))
from nsight_prof.targets.harness import Case, Setup, Unsupported, Work, positive, run_target
from nsight_prof.targets.serving import collectives, op_shapes
from nsight_prof.targets.serving.environment import prepare
from nsight_prof.targets.serving.layer_slice import configuration, cut
from nsight_prof.targets.serving.models import bundled, find_model
from nsight_prof.targets.serving.op_chains import added_seconds, in_graph, in_stream

SMALL = ("norm", "silu_mul", "rotary", "kv_write", "embedding", "sampling")
FAMILIES = ("product", "attention", "small", "collective")
HEAD_ROWS = 256
"""Most rows of the output projection: logits of sampled tokens alone are computed."""
MOST_TOKENS = 524_288
"""Tokens in the cache of all requests of an attention at most."""
FEWEST_COPIES = 8
"""Calls of a chain at least, so that a chain is not the difference of two short times."""
L2_BYTES = 60e6


def cases(args: argparse.Namespace) -> Iterator[Case]:
    """Yield the cases that the options ask for."""
    model = find_model(args.model, "dummy")
    prepare(model)
    config = configuration(model)
    decoder = op_shapes.Decoder.of(cut(config, 1, args.ranks))
    shared = {"family": "predict-op", "model": model.name, "ranks": args.ranks} | asdict(decoder)
    rows = [n for n in op_shapes.ROWS if n <= args.most_tokens]
    prompts = [n for n in op_shapes.PROMPTS if n <= args.most_tokens]
    families = {
        "product": _products(shared, decoder, [*rows, *prompts]),
        "attention": _attentions(shared, decoder, args.most_tokens),
        "small": _smalls(shared, decoder, [*rows[::2], *prompts]),
        "collective": _collectives(shared, decoder, args.ranks, rows, prompts),
    }
    for name in args.families:
        yield from families[name]


def _products(
    shared: dict[str, Any], decoder: op_shapes.Decoder, sizes: Sequence[int]
) -> Iterator[Case]:
    for name, (outputs, inputs) in decoder.products().items():
        for tokens in sizes:
            if name != "lm_head" or tokens <= HEAD_ROWS:
                yield _product(shared, name, tokens, outputs, inputs)


def _attentions(shared: dict[str, Any], decoder: op_shapes.Decoder, most: int) -> Iterator[Case]:
    for size in op_shapes.attended(MOST_TOKENS):
        if size.requests * size.new <= most:
            yield _attention(shared, decoder, size)


def _smalls(
    shared: dict[str, Any], decoder: op_shapes.Decoder, sizes: Sequence[int]
) -> Iterator[Case]:
    for name in SMALL:
        # torch.compile tunes a kernel for the size of its first call: an engine's is its largest.
        for tokens in reversed(sizes):
            if name != "sampling" or tokens <= HEAD_ROWS:
                yield _small(shared, decoder, name, tokens)


def _product(shared: dict[str, Any], name: str, tokens: int, outputs: int, inputs: int) -> Case:
    def pairs(setup: Setup) -> Any:
        from nsight_prof.targets.serving.op_calls import product

        return product(setup, tokens, outputs, inputs)

    moved = 2.0 * (tokens * inputs + outputs * inputs + tokens * outputs)
    work = Work(flops=2.0 * tokens * outputs * inputs, bytes=moved)
    params = {"operator": name, "tokens": tokens, "n": outputs, "k": inputs}
    cold = 2.0 * outputs * inputs
    return _case(f"product/{name}/t{tokens}", shared | params, work, cold, tokens, pairs)


def _attention(
    shared: dict[str, Any], decoder: op_shapes.Decoder, size: op_shapes.Attended
) -> Case:
    def pairs(setup: Setup) -> Any:
        from nsight_prof.targets.serving.op_calls import attention

        return attention(setup, decoder, size)

    longest, tokens = size.new + size.before, size.requests * size.new
    query_keys = size.requests * (size.new * size.before + size.new * (size.new + 1) / 2)
    cold = float(decoder.cache_bytes(size.requests * longest))
    moved = cold + 4.0 * tokens * decoder.heads * decoder.head_dim
    work = Work(flops=4.0 * decoder.heads * decoder.head_dim * query_keys, bytes=moved)
    params = {
        "operator": f"attention_{size.stage}", "tokens": tokens, "requests": size.requests,
        "new": size.new, "before": size.before,
    }  # fmt: skip
    name = f"attention/{size.stage}/r{size.requests}/n{size.new}/c{size.before}"
    return _case(name, shared | params, work, cold, tokens, pairs)


def _small(shared: dict[str, Any], decoder: op_shapes.Decoder, name: str, tokens: int) -> Case:
    def pairs(setup: Setup) -> Any:
        from nsight_prof.targets.serving.op_calls import SMALL

        return SMALL[name](setup, decoder, tokens)

    params = {"operator": name, "tokens": tokens}
    return _case(f"small/{name}/t{tokens}", shared | params, Work(), 0.0, tokens, pairs)


def _case(
    name: str, params: dict[str, Any], work: Work, cold_bytes: float, tokens: int,
    pairs: Callable[[Setup], Any],
) -> Case:  # fmt: skip
    # Small operators take the GPU less time than the host needs to launch them one by one.
    captured = tokens <= max(op_shapes.ROWS) or params["operator"] in SMALL

    def samples(setup: Setup) -> list[float]:
        import torch

        if torch.device(setup.device).type == "cpu":
            raise Unsupported("vLLM's operators are measured on a GPU")
        with torch.inference_mode():
            before, calls = pairs(setup)
            copies = -(-FEWEST_COPIES // len(calls))
            make = in_graph if captured else in_stream
            return added_seconds([*before] * copies, [*calls] * copies, make)

    return Case(
        name=name, operation=str(params["operator"]), prepare=lambda setup: [], work=work,
        footprint_bytes=cold_bytes or L2_BYTES, params=params, dtype="bf16", samples=samples,
        counted=False, launch="graph" if captured else "eager",
    )  # fmt: skip


def _collectives(
    shared: dict[str, Any], decoder: op_shapes.Decoder, ranks: int, rows: Sequence[int],
    prompts: Sequence[int],
) -> Iterator[Case]:  # fmt: skip
    group: list[collectives.Ranks] = []

    def together() -> collectives.Ranks:
        if not group:
            import torch

            if torch.cuda.device_count() < ranks:
                raise Unsupported(f"{ranks} ranks need as many GPUs")
            group.append(collectives.Ranks(ranks))
            atexit.register(group[0].close)
        return group[0]

    def samples(exchange: collectives.Exchange, _: Setup) -> list[float]:
        return together().seconds(exchange)

    if ranks == 1:
        return
    inputs = decoder.heads * decoder.head_dim
    every = collectives.exchanges(decoder.hidden, inputs, decoder.vocabulary, rows, prompts)
    for exchange in every:
        params = {"operator": exchange.kind, "tokens": exchange.tokens, "width": exchange.width}
        moved = 2.0 * exchange.tokens * exchange.width
        if exchange.kind == collectives.ALL_GATHER:
            moved *= ranks
        yield Case(
            name=f"collective/{exchange.kind}/t{exchange.tokens}", operation=exchange.kind,
            prepare=lambda setup: [], work=Work(bytes=moved), params=shared | params, dtype="bf16",
            samples=partial(samples, exchange), counted=False,
            launch="graph" if exchange.captured else "eager",
        )  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that choose the model and the cases."""
    text = f"bundled ({', '.join(bundled())}), a local folder, or a hub name"
    parser.add_argument("--model", default="qwen2.5-7b", help=text)
    parser.add_argument("--ranks", "--tensor-parallel", type=positive, default=1, metavar="N",
                        help="GPUs of tensor parallelism that share the model (1)")  # fmt: skip
    parser.add_argument("--families", nargs="+", choices=FAMILIES, default=FAMILIES,
                        help="(all; collectives with --ranks alone)")  # fmt: skip
    parser.add_argument("--most-tokens", type=positive, default=8192, metavar="N",
                        help="of a step (8192)")  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    """Measure; return the exit code of the harness."""
    return run_target(
        "predict_ops", cases, argv, description=__doc__,
        add_arguments=add_arguments,
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
