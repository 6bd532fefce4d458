"""Section of the model alone: parameters, FLOPs and bytes that follow from its configuration."""

from __future__ import annotations

import bisect
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from nsight_prof.parsers.build.peaks import Peaks, peaks
from nsight_prof.parsers.run.run import Run
from nsight_prof.parsers.serving.model_shape import Linear, ModelShape
from nsight_prof.reports.engine.stages.names import LIMITS
from nsight_prof.reports.page import (
    Bullets,
    Column,
    Evidence,
    Fact,
    Finding,
    Json,
    Name,
    Number,
    Section,
    Table,
    Text,
    Value,
    Verbatim,
)
from nsight_prof.reports.serving.engine import Engine, Requests, engine_of, traced_requests
from nsight_prof.reports.serving.formulas import (
    Flops,
    Traffic,
    Work,
    decode,
    floor_s,
    flops,
    prefill,
    traffic,
)
from nsight_prof.reports.serving.roofs import roof_name

KEY, TITLE = "model", Text("The model, from its configuration")
BATCHES = (1, 8, 64, 256)
"""Batches of the decode steps that the table works out, beside those of the run."""
LARGEST_BATCH = 4096
NO_ROOF = Text("no roof is known for this type on this GPU")
METHOD = (
    Text(
        "FLOPs: 2 for each parameter of a matrix and token, 4 x head dimension for each head and "
        "pair of a query and a token that it attends to (causal), and the output projection for "
        "the last position of each request alone. Norms, activations and sampling are not counted."
    ),
    Text(
        "Bytes: every matrix once per step, the rows of the embedding table that the tokens name, "
        "and the keys and values of the tokens before. Activations are not counted: they are small "
        "where bytes limit."
    ),
)


@dataclass(frozen=True)
class Step:
    """A step to work out: FLOPs and bytes on one GPU, and the roofs to hold them to."""

    name: Text
    key: str
    work: Work
    flops: Flops
    traffic: Traffic
    roofs: Peaks

    @property
    def intensity(self) -> float:
        """FLOPs per byte read."""
        return self.flops.total / self.traffic.read

    @property
    def limited_by(self) -> str:
        """The roof that it meets first: "memory", "arithmetic", or "" where a roof is not known."""
        ridge = ridge_point(self.roofs)
        if ridge is None:
            return ""
        return "memory" if self.intensity < ridge else "arithmetic"


def ridge_point(roofs: Peaks) -> float | None:
    """Return the FLOP/B from which arithmetic limits; None where a roof is not known."""
    if roofs.compute is None or roofs.memory is None:
        return None
    return roofs.compute.value / roofs.memory.value


def section(run: Run) -> Section | None:
    """Return the section; None where the run has no engine."""
    engine = engine_of(run)
    if engine is None:
        return None
    if engine.shape is None or engine.shard is None:
        return Section(KEY, TITLE, (Text("Not available: {why}.", why=Verbatim(engine.reason)),))
    roofs = peaks(run, engine.dtype)
    steps = _steps(engine.shard, traced_requests(run), roofs)
    return Section(
        KEY,
        TITLE,
        (
            _intro(engine, engine.shape),
            *_memory_bound(engine.shard, steps, roofs),
            *_kv_cache(engine, engine.shard),
            _parts_table(engine.shape),
            _steps_table(steps, roofs),
            Bullets(Text("How it was measured"), METHOD),
        ),
        numbers=_numbers(engine, engine.shape, engine.shard, steps),
        facts=(Fact(Text("Model"), Verbatim(engine.model or engine.shape.model_type)),),
    )


def _intro(engine: Engine, shape: ModelShape) -> Text:
    """Return what the model is and what its memory holds."""
    split: Value = ""
    if engine.tensor_parallel > 1 and engine.shard is not None:
        split = Text(
            " Each of {gpus} GPUs holds {size} of them.",
            gpus=engine.tensor_parallel,
            size=Number(engine.shard.parameter_bytes(), "B", digits=3),
        )
    narrow = shape.quantized
    cache: Value = ""
    if engine.kv_tokens:
        cache = Text(
            ", and the cache of this engine holds {tokens} tokens", tokens=engine.kv_tokens
        )
    random = Text(" The weights are random: speed and memory are real, text is not.")
    return Text(
        "{model}: {parameters} billion parameters in {layers} layers, {size} of weights ({dtype})."
        "{split} One token takes {kv} of KV cache{cache}.{random}",
        model=Verbatim(engine.model or shape.model_type),
        parameters=Number(shape.parameters() / 1e9, digits=3),
        layers=shape.layers,
        size=Number(shape.parameter_bytes(), "B", digits=3),
        dtype=shape.dtype if narrow is None else f"{shape.dtype}, {narrow.dtype}",
        split=split,
        kv=Number(shape.kv_bytes_per_token(), "B", digits=3),
        cache=cache,
        random=random if engine.dummy_weights else "",
    )


def _steps(shard: ModelShape, ran: Sequence[Requests], roofs: Peaks) -> list[Step]:
    """Return the steps to work out: those of the run, and decode at other batches."""

    def step(name: Text, key: str, work: Work) -> Step:
        return Step(name, key, work, flops(shard, work), traffic(shard, work), roofs)

    context = max((r.prompt_tokens + r.output_tokens // 2 for r in ran), default=1024)
    prefills = {(r.batch, r.prompt_tokens): prefill(r.batch, r.prompt_tokens) for r in ran}
    return [
        step(
            Text("prefill of {batch} x {tokens}", batch=batch, tokens=tokens),
            f"prefill of {batch} x {tokens}",
            work,
        )
        for (batch, tokens), work in prefills.items()
    ] + [
        step(
            Text("decode of {batch}, {tokens} before", batch=batch, tokens=context),
            f"decode of {batch}, {context} before",
            decode(batch, context),
        )
        for batch in sorted({*BATCHES, *(r.batch for r in ran)})
    ]


_Part = tuple[Value, Value | None, int, float, float, float]
"""Name, size, layers, parameters, values that a token meets, bytes that quantization saves."""


def _parts_table(shape: ModelShape) -> Table[_Part]:
    """Return the parts of the model with parameters, bytes and FLOPs per token."""
    total, head = shape.parameters(), shape.head()
    rows: list[_Part] = [
        (Name(line.path), _size(line), line.layers, line.parameters, line.active, shape.saved(line))
        for line in shape.linears()
    ]
    table = Verbatim(f"{shape.vocabulary:,} x {shape.hidden:,}")
    norms = shape.norm_parameters()
    rows.append((Name("embed_tokens"), table, 1, shape.embedding_parameters(), 0, 0))
    rows.append((Text("norms"), Verbatim(f"{shape.hidden:,}"), shape.layers, norms, 0, 0))
    head_parameters = 0 if shape.tied else head.parameters
    rows.append((Name("lm_head"), _size(head), 1, head_parameters, head.active, 0))
    active = sum(line.active for line in (*shape.linears(), head))
    saved = sum(row[-1] for row in rows)
    rows.append((Text("all"), None, shape.layers, total, active, saved))
    tied = Text(" lm_head is the embedding table: it has no parameters of its own.")
    return Table(
        "model-parts",
        Text("Parts of the model"),
        [
            Column(Text("Part"), lambda row: row[0]),
            Column(Text("Matrix"), lambda row: row[1]),
            Column(Text("Layers"), lambda row: row[2]),
            Column(Text("Parameters"), lambda row: Number(row[3], "count")),
            Column(Text("Share"), lambda row: Number(row[3] / total, "fraction")),
            Column(Text("Bytes"), lambda row: Number(row[3] * shape.weight_bytes - row[-1], "B")),
            Column(
                Text("FLOPs per token"),
                lambda row: Number(2.0 * row[4], "FLOP") if row[4] else None,
            ),
        ],
        rows,
        note=Text(
            "FLOPs of a token that gets logits, without attention, which depends on the context."
            "{tied}",
            tied=tied if shape.tied else "",
        ),
        folded=True,
    )


def _size(line: Linear) -> Value:
    size = Verbatim(f"{line.outputs:,} x {line.inputs:,}")
    if line.copies == 1:
        return size
    return Text("{n} x ({size}), {used} per token", n=line.copies, size=size, used=line.used)


def _steps_table(steps: Sequence[Step], roofs: Peaks) -> Table[Step]:
    """Return what each step must compute and read on one GPU, and which roof that meets."""
    note = Text("What limits a step is not known: {why}.", why=NO_ROOF)
    if roofs.compute is not None and roofs.memory is not None:
        note = Text(
            "Arithmetic limits from {ridge} on, the ridge point: {compute} {flops} over {memory} "
            "{bytes}.",
            ridge=Number(ridge_point(roofs), "FLOP/B", digits=3),
            compute=roof_name(roofs.compute.name),
            flops=Number(roofs.compute.value, "FLOP/s", digits=3),
            memory=roof_name(roofs.memory.name),
            bytes=Number(roofs.memory.value, "B/s", digits=3),
        )
    return Table(
        "model-steps",
        Text("What a step must compute and read on one GPU"),
        [
            Column(Text("Step"), lambda s: s.name),
            Column(Text("FLOPs"), lambda s: Number(s.flops.total, "FLOP")),
            Column(
                Text("Attention"), lambda s: Number(s.flops.attention / s.flops.total, "fraction")
            ),
            Column(Text("Weights read"), lambda s: Number(s.traffic.weights, "B")),
            Column(Text("KV cache read"), lambda s: Number(s.traffic.kv_read, "B")),
            Column(Text("Intensity"), lambda s: Number(s.intensity, "FLOP/B")),
            Column(Text("Limited by"), lambda s: LIMITS.get(s.limited_by) or NO_ROOF),
        ],
        steps,
        note=note,
    )


def turning_batch(shard: ModelShape, context: int, roofs: Peaks) -> int | None:
    """Return the smallest decode batch that arithmetic limits; None where there is none.

    Long contexts have none: each request reads its own KV cache, which no batch shares.
    """
    ridge = ridge_point(roofs)
    if ridge is None:
        return None

    def limited(batch: int) -> bool:
        work = decode(batch, context)
        return flops(shard, work).total / traffic(shard, work).read >= ridge

    # FLOPs grow with the batch, weights do not: once arithmetic limits, it goes on doing so.
    batch = bisect.bisect_left(range(1, LARGEST_BATCH + 1), True, key=limited) + 1
    return batch if batch <= LARGEST_BATCH else None


def _memory_bound(shard: ModelShape, steps: Sequence[Step], roofs: Peaks) -> Iterator[Finding]:
    """Yield up to which batch weights limit decode, and what contexts of the run add to it."""
    turn = turning_batch(shard, 0, roofs)
    if turn is None or roofs.compute is None or roofs.memory is None:
        return
    compute, memory = roofs.compute, roofs.memory
    evidence: list[Evidence | Text] = [
        Evidence(roof, Number(peak.value, unit, digits=3))
        for peak, unit in ((compute, "FLOP/s"), (memory, "B/s"))
        if isinstance(roof := roof_name(peak.name), Text)
    ]
    decodes = [s.work for s in steps if s.work.decode and len(s.work.decode) < turn]
    if len(decodes) > 1:
        first, last = decodes[0], decodes[-1]
        floors = [
            Number(floor_s(shard, work, memory.value, compute.value), "s", digits=3)
            for work in (first, last)
        ]
        evidence.insert(
            0,
            Text(
                "with {tokens} tokens before, the floor of batch {large} is {large_floor}, that of "
                "batch {small} {small_floor}: {more} more",
                tokens=last.decode[0],
                large=len(last.decode),
                large_floor=floors[1],
                small=len(first.decode),
                small_floor=floors[0],
                more=(floors[1] - floors[0]).share_of(floors[0]),
            ),
        )
    yield Finding(
        "memory_bound_decode",
        Text(
            "Reading weights limits decode up to a batch of {batch}, with short contexts: up to "
            "there only the KV caches of its requests make a step longer.",
            batch=turn - 1,
        ),
        tuple(evidence),
        disproof=Text(
            "By the roofs: each request adds a KV cache to what is read, which no batch shares."
        ),
        technical=True,
    )


def _kv_cache(engine: Engine, shard: ModelShape) -> Iterator[Finding]:
    if not engine.kv_tokens or not engine.max_model_len:
        return
    size = Number(shard.kv_bytes_per_token(), "B", digits=3)
    each = Number(shard.kv_bytes, "B")
    if shard.latent is not None:
        content = Text(
            "{size} per token and GPU: {layers} layers x {dim} x {bytes}, one latent vector for "
            "all heads",
            size=size, layers=shard.layers, dim=shard.latent.cached, bytes=each,
        )  # fmt: skip
    else:
        content = Text(
            "{size} per token and GPU: 2 x {layers} layers x {heads} heads x {dim} x {bytes}",
            size=size, layers=shard.layers, heads=shard.kv_heads, dim=shard.head_dim, bytes=each,
        )  # fmt: skip
    yield Finding(
        "kv_cache",
        Text(
            "The KV cache holds {tokens} tokens: {n} requests of the longest context ({context} "
            "tokens) at once.",
            tokens=engine.kv_tokens,
            n=engine.kv_tokens // engine.max_model_len,
            context=engine.max_model_len,
        ),
        (content,),
        technical=True,
    )


def _numbers(
    engine: Engine, shape: ModelShape, shard: ModelShape, steps: Sequence[Step]
) -> dict[str, Json]:
    """Return the analysis for metrics.json, in base units."""

    def of_step(step: Step) -> Mapping[str, Json]:
        done, moved = step.flops, step.traffic
        return {
            "flops_linear": done.linear,
            "flops_attention": done.attention,
            "flops_head": done.head,
            "weight_bytes": moved.weights,
            "kv_read_bytes": moved.kv_read,
            "kv_written_bytes": moved.kv_written,
        }

    return {
        "model": engine.model,
        "parameters": shape.parameters(),
        "parameters_per_gpu": shard.parameters(),
        "weight_bytes": shape.parameter_bytes(),
        "kv_bytes_per_token": shape.kv_bytes_per_token(),
        "kv_cache_tokens": engine.kv_tokens,
        "tensor_parallel": engine.tensor_parallel,
        "parts": [
            {
                **dataclasses.asdict(line),
                "parameters": line.parameters,
                "flops_per_token": 2 * line.active,
            }
            for line in (*shape.linears(), shape.head())
        ],
        "steps_per_gpu": {step.key: of_step(step) for step in steps},
    }
