"""Section of the model alone: parameters, FLOPs and bytes that follow from its configuration."""

from __future__ import annotations

import bisect
import dataclasses
import math
from collections.abc import Mapping

from nsight_prof.parsers.build.peaks import Peaks, peaks
from nsight_prof.parsers.cells import known
from nsight_prof.parsers.model_shape import Linear, ModelShape
from nsight_prof.reports.bench.models import BenchFinding, BenchTable, Json, Section
from nsight_prof.reports.formats import (
    NA,
    byte_rate,
    count,
    counted,
    data_size,
    difference,
    flop_count,
    flop_rate,
    intensity,
    seconds,
    share,
)
from nsight_prof.reports.load import Run
from nsight_prof.reports.serving.engine import Engine, Requests, engine_of, traced_requests
from nsight_prof.reports.serving.formulas import Work, decode, floor_s, flops, prefill, traffic

KEY, TITLE = "model", "The model, from its configuration"
BATCHES = (1, 8, 64, 256)
"""Batches of the decode steps that the table works out, beside those of the run."""
LARGEST_BATCH = 4096
METHOD = (
    "FLOPs: 2 for each parameter of a matrix and token, 4 x head dimension for each head and pair "
    "of a query and a token that it sees (causal), and the output projection for the last position "
    "of each request alone. Norms, activations and sampling are not counted.",
    "Bytes: every matrix once a step, the rows of the embedding table that the tokens name, and "
    "the keys and values of the tokens before. Activations are not counted: they are small where "
    "bytes limit.",
)


def section(run: Run) -> Section | None:
    """Return the section; None where the run has no engine or the model is not known."""
    engine = engine_of(run)
    if engine is None:
        return None
    if engine.shape is None or engine.shard is None:
        return Section(KEY, TITLE, f"Not available: {engine.reason}.")
    roofs = peaks(run, engine.dtype)
    steps = step_works(traced_requests(run))
    return Section(
        key=KEY,
        title=TITLE,
        intro=intro(engine, engine.shape),
        findings=_findings(engine, engine.shape, engine.shard, steps, roofs),
        tables=(parts_table(engine.shape), steps_table(engine.shard, steps, roofs)),
        method=METHOD,
        numbers=numbers(engine, engine.shape, engine.shard, steps),
        plain=(("Model", engine.model or engine.shape.model_type),),
    )


def intro(engine: Engine, shape: ModelShape) -> str:
    """Return in two sentences what the model is and what its memory holds."""
    split = ""
    if engine.tensor_parallel > 1 and engine.shard is not None:
        one = data_size(engine.shard.parameters() * shape.weight_bytes)
        split = f" Each of {engine.tensor_parallel} GPUs holds {one} of them."
    kv = f"One token takes {data_size(shape.kv_bytes_per_token())} of KV cache"
    if engine.kv_tokens:
        kv += f", and the cache of this engine holds {count(engine.kv_tokens)} tokens"
    random = " The weights are random: speed and memory are real, text is not."
    return (
        f"{engine.model or shape.model_type}: {shape.parameters() / 1e9:.2f} billion parameters in "
        f"{counted(shape.layers, 'layer')}, {data_size(shape.parameters() * shape.weight_bytes)} "
        f"of weights ({shape.dtype}).{split} {kv}.{random if engine.dummy_weights else ''}"
    )


def parts_table(shape: ModelShape) -> BenchTable:
    """Return the parts of the whole model with parameters, bytes and FLOPs a token."""
    whole = shape.parameters()

    def row(name: str, size: str, layers: int, parameters: int, active: float) -> tuple[str, ...]:
        return (
            name,
            size,
            count(layers),
            count(parameters),
            share(parameters / whole),
            data_size(parameters * shape.weight_bytes),
            flop_count(2.0 * active) if active else "–",
        )

    rows = [
        row(line.path, _size(line), line.layers, line.parameters, line.active)
        for line in shape.linears()
    ]
    table = f"{count(shape.vocabulary)} x {count(shape.hidden)}"
    rows.append(row("embed_tokens", table, 1, shape.embedding_parameters(), 0))
    rows.append(row("norms", f"{count(shape.hidden)}", shape.layers, shape.norm_parameters(), 0))
    head = shape.head()
    own = 0 if shape.tied else head.parameters
    rows.append(row("lm_head", _size(head), 1, own, head.active))
    active = sum(line.active for line in (*shape.linears(), head))
    rows.append(row("all", "–", shape.layers, whole, active))
    note = "FLOPs of a token that gets logits, without attention, which depends on the context."
    if shape.tied:
        note += " lm_head is the embedding table: it has no parameters of its own."
    return BenchTable(
        "Parts of the model",
        ("Part", "Matrix", "Layers", "Parameters", "Share", "Bytes", "FLOPs a token"),
        tuple(rows),
        note,
        left=("Part",),
        folded=True,
    )


def _size(line: Linear) -> str:
    size = f"{count(line.outputs)} x {count(line.inputs)}"
    return size if line.copies == 1 else f"{line.copies} x ({size}), {line.used} a token"


def step_works(ran: tuple[Requests, ...]) -> dict[str, Work]:
    """Return named steps to work out: those of the run, and decode at other batches."""
    context = max((r.prompt_tokens + r.output_tokens // 2 for r in ran), default=1024)
    named = {f"prefill of {r.batch} x {r.prompt_tokens}": _prefill(r) for r in ran}
    batches = sorted({*BATCHES, *(r.batch for r in ran)})
    return named | {f"decode of {b}, {context} before": decode(b, context) for b in batches}


def _prefill(ran: Requests) -> Work:
    return prefill(ran.batch, ran.prompt_tokens)


def steps_table(shard: ModelShape, steps: Mapping[str, Work], roofs: Peaks) -> BenchTable:
    """Return what each step must compute and read on one GPU, and which roof that meets."""
    rows = []
    for name, work in steps.items():
        done, moved = flops(shard, work), traffic(shard, work)
        rows.append(
            (
                name,
                flop_count(done.total),
                share(done.attention / done.total),
                data_size(moved.weights),
                data_size(moved.kv_read),
                intensity(done.total / moved.read),
                bound(done.total, moved.read, roofs),
            )
        )
    left = ("Step", "Limited by")
    heads = ("FLOPs", "Attention", "Weights read", "KV cache read", "FLOP/B")
    return BenchTable(
        "What a step must compute and read on one GPU",
        (left[0], *heads, left[1]),
        tuple(rows),
        _roofs_note(roofs),
        left=left,
    )


def bound(done: float, read: float, roofs: Peaks) -> str:
    """Return what limits a step: "memory", "arithmetic", or n/a where a roof is not known."""
    if roofs.compute is None or roofs.memory is None:
        return NA
    return "memory" if read / roofs.memory.value > done / roofs.compute.value else "arithmetic"


def _roofs_note(roofs: Peaks) -> str:
    if roofs.compute is None or roofs.memory is None:
        return "What limits a step is not told: no roof is known for this type on this GPU."
    ridge = roofs.compute.value / roofs.memory.value
    return (
        f"Arithmetic limits from {intensity(ridge)} on: {roofs.compute.name} "
        f"{flop_rate(roofs.compute.value)} over {roofs.memory.name} "
        f"{byte_rate(roofs.memory.value)}."
    )


def turning_batch(shard: ModelShape, context: int, roofs: Peaks) -> int | None:
    """Return the smallest decode batch that arithmetic limits; None where there is none.

    Long contexts have none: each request reads its own KV cache, which no batch shares.
    """
    if roofs.compute is None or roofs.memory is None:
        return None

    def limited(batch: int) -> bool:
        work = decode(batch, context)
        return bound(flops(shard, work).total, traffic(shard, work).read, roofs) == "arithmetic"

    # FLOPs grow with the batch, weights do not: once arithmetic limits, it goes on doing so.
    batch = bisect.bisect_left(range(1, LARGEST_BATCH + 1), True, key=limited) + 1
    return batch if batch <= LARGEST_BATCH else None


def _with_contexts(shard: ModelShape, steps: Mapping[str, Work], turn: int, roofs: Peaks) -> str:
    """Say what the largest such batch of the table costs by the roofs, with the run's contexts."""
    if roofs.compute is None or roofs.memory is None:
        return ""
    compute, memory = roofs.compute.value, roofs.memory.value
    decodes = [work for work in steps.values() if work.decode and len(work.decode) < turn]
    if len(decodes) < 2:
        return ""
    first, last = (pick(decodes, key=lambda work: len(work.decode)) for pick in (min, max))
    floors = [floor_s(shard, work, memory, compute) for work in (first, last)]
    sizes = [len(work.decode) for work in (first, last)]
    return (
        f" With {count(last.decode[0])} tokens before, the floor of batch {sizes[1]} is "
        f"{seconds(floors[1])}, that of batch {sizes[0]} {seconds(floors[0])}: "
        f"{difference(floors[1] / floors[0] - 1)}."
    )


def _findings(
    engine: Engine,
    shape: ModelShape,
    shard: ModelShape,
    steps: Mapping[str, Work],
    roofs: Peaks,
) -> tuple[BenchFinding, ...]:
    found = []
    turn = turning_batch(shard, 0, roofs)
    if turn is not None and roofs.compute is not None and roofs.memory is not None:
        found.append(
            BenchFinding(
                f"By the roofs, decode is limited by reading weights up to a batch of {turn - 1} "
                "(short contexts): up to there a step takes longer only by the KV caches of its "
                f"requests.{_with_contexts(shard, steps, turn, roofs)}",
                f"FLOPs and bytes of the configuration, {roofs.compute.name} "
                f"{flop_rate(roofs.compute.value)}, {roofs.memory.name} "
                f"{byte_rate(roofs.memory.value)}.",
                "Each request adds its own KV cache to what is read, which no batch shares.",
            )
        )
    if engine.kv_tokens and engine.max_model_len:
        found.append(
            BenchFinding(
                f"The KV cache holds {count(engine.kv_tokens)} tokens: "
                f"{counted(engine.kv_tokens // engine.max_model_len, 'request')} at once of the "
                f"longest context, {count(engine.max_model_len)} tokens.",
                f"{data_size(shard.kv_bytes_per_token())} a token and GPU: 2 x "
                f"{shard.layers} layers x {shard.kv_heads} heads x {shard.head_dim} x "
                f"{shard.kv_bytes:.0f} B.",
            )
        )
    return tuple(found)


def numbers(
    engine: Engine, shape: ModelShape, shard: ModelShape, steps: Mapping[str, Work]
) -> dict[str, Json]:
    """Return the analysis for metrics.json, in base units."""
    parts = [
        {
            **{f.name: getattr(line, f.name) for f in dataclasses.fields(line)},
            "parameters": line.parameters,
            "flops_per_token": 2 * line.active,
        }
        for line in (*shape.linears(), shape.head())
    ]
    return {
        "model": engine.model,
        "parameters": shape.parameters(),
        "parameters_per_gpu": shard.parameters(),
        "weight_bytes": shape.parameters() * shape.weight_bytes,
        "kv_bytes_per_token": shape.kv_bytes_per_token(),
        "kv_cache_tokens": engine.kv_tokens,
        "tensor_parallel": engine.tensor_parallel,
        "parts": parts,
        "steps_per_gpu": {name: step_numbers(shard, work) for name, work in steps.items()},
    }


def step_numbers(shard: ModelShape, work: Work) -> dict[str, Json]:
    """Return FLOPs and bytes of a step by part."""
    done, moved = flops(shard, work), traffic(shard, work)
    values = {
        "flops_linear": done.linear,
        "flops_attention": done.attention,
        "flops_head": done.head,
        "weight_bytes": moved.weights,
        "kv_read_bytes": moved.kv_read,
        "kv_written_bytes": moved.kv_written,
    }
    return {key: known(value) if math.isfinite(value) else None for key, value in values.items()}
