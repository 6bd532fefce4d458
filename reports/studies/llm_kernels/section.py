"""The section of the target llm_kernels, and decoder layers put together from operations."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from nsight_prof.parsers.cells import grouped
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.cases.sentences import Sentences
from nsight_prof.reports.page import (
    Column,
    Finding,
    Json,
    Number,
    Ref,
    Section,
    Table,
    Text,
    Value,
    Verbatim,
    Word,
    arranged,
)
from nsight_prof.reports.page.charts import Bar, BarFigure
from nsight_prof.reports.page.units import percent
from nsight_prof.reports.page.values import Words
from nsight_prof.reports.studies.llm_kernels import (
    attention,
    linear,
    pairs,
    pointwise,
)
from nsight_prof.reports.studies.llm_kernels.points import (
    TARGET,
    Point,
    at_roofs,
    fastest,
    layers,
    model_titles,
    of_tokens,
    points,
    select,
    sequences,
    sized,
    title,
    variants_by_shape,
)

SENTENCES = Sentences("llm_kernels")

REFERENCE = "llama-3.1-8b"
METHOD = SENTENCES.texts("method")


def section(run: Run) -> Section | None:
    """Return the section, or None where the run has no measured case of this target."""
    found = points(run)
    if not found:
        return None
    model = reference_model(found)
    findings = (
        decode_limit(found, model),
        prefill_limit(found, model),
        linear.batching(found, model),
        attention.prefill_backends(found, model),
        pointwise.launch_bound(found),
        pointwise.fusion(found),
        linear.precision(found),
        pointwise.compile_overhead(found),
        attention.decode_backends(found, model),
        linear.saturation(found, model),
        attention.grouped_heads(found, model),
        linear.models(found),
        pointwise.streaming(found),
        pairs.inversion(found),
        pairs.zeros(found),
        pairs.layouts(found),
        pairs.formulas(found),
    )
    charts = (
        roof_chart(found, model),
        linear.chart(found),
        attention.prefill_chart(found, model),
        attention.decode_chart(found, model),
        pointwise.launches_chart(found),
        pointwise.fusion_chart(found),
    )
    tables = (
        table(found, model),
        linear.layer_table(found),
        linear.case_table(found, model),
        attention.table(found, "prefill"),
        attention.table(found, "decode"),
        pointwise.table(found),
        pairs.layer_table(found),
        pairs.table(found),
        pairs.formula_table(found),
    )
    return Section(
        TARGET,
        Text("The operations of a transformer"),
        arranged([_introduction(found, model)], findings, charts, tables, METHOD),
        numbers=numbers(found, model),
    )


def reference_model(found: Sequence[Point]) -> str:
    """Return the model that is shown in detail: the usual one, or the first there is."""
    models = [str(point.param("model")) for point in found if point.param("model")]
    return REFERENCE if REFERENCE in models or not models else models[0]


def _introduction(found: Sequence[Point], model: str) -> Text:
    models = dict.fromkeys(
        name for point in select(found, family="linear") for name in model_titles(point)
    )
    return SENTENCES.text(
        "introduction",
        models=Text(" of {models}", models=list(models)) if models else "",
        model=title(model),
    )


def numbers(found: Sequence[Point], model: str) -> dict[str, Json]:
    """Return for metrics.json: each case, each decoder layer, and the agreement with counters."""
    return {
        "cases": {str(point.row["case_id"]): _case(point) for point in found},
        "linear_layers": [
            {
                "model": layer.model,
                "tokens": layer.tokens,
                "dtype": dtype,
                "seconds": layer.seconds,
                "flop_per_s": layer.flop_rate.value,
                "bytes_per_s": layer.byte_rate.value,
                "roof_fraction": layer.fraction.value,
            }
            for dtype in ("bf16", "fp8")
            for layer in layers(found, dtype)
        ],
        "decoder_layers": [
            {
                "name": f"{step.stage} {step.batch} x {step.positions}",
                "seconds": step.time.value,
                "shares": {name: step.share(name).value for name in step.operations},
                "savings": {name: step.saving(name).value for name in step.operations},
            }
            for step in steps(found, model)
        ],
        "formulas": [
            {
                "operation": row.operation,
                "of": row.variant,
                "cases": len(row.cases),
                "flops_ratio": [row.flops.low, row.flops.high],
                "dram_bytes_ratio": [row.bytes.low, row.bytes.high],
            }
            for row in pairs.agreements(found)
        ],
    }


def _case(point: Point) -> dict[str, Json]:
    return {
        "seconds": point.seconds,
        "flop_per_s": point.flop_rate.value,
        "bytes_per_s": point.byte_rate.value,
        "roof": str(point.row["roof_used"] or ""),
        "roof_fraction": point.fraction.value,
        "flops_ratio": point.flops_ratio.value,
        "dram_bytes_ratio": point.bytes_ratio.value,
    }


POINTWISE = {"add-rms-norm": 2, "rotary": 1, "silu-mul": 1}
"""Operations of a decoder layer beside products and attention, and how often it has each."""
OPERATIONS = {
    "linear": Text("linear layers"),
    "attention": Text("attention"),
    "pointwise": Text("norms and activations"),
}
STAGES = {"decode": Text("decode"), "prefill": Text("prefill")}


@dataclass(frozen=True)
class Step:
    """One decoder layer of a decode step or a prefill; each operation in its fastest variant."""

    stage: str
    batch: int
    positions: int
    operations: dict[str, tuple[Point, ...]]

    @property
    def ref(self) -> Ref:
        """Its row of the table."""
        return Ref("decoder_layer", f"{self.stage} {self.batch} x {self.positions}")

    @property
    def time(self) -> Number:
        """Sum of the medians of all operations."""
        return Number(sum(map(_seconds, self.operations.values())), "s", (self.ref,))

    def share(self, operation: str) -> Number:
        """Return the part of the layer's time that an operation takes."""
        seconds = Number(_seconds(self.operations[operation]), "s", (self.ref,))
        return seconds.share_of(self.time)

    def roof_share(self, operation: str) -> Number:
        """Return the share of its roofs that an operation reaches."""
        found = self.operations[operation]
        at_roof, time = (Number(s, "s", (self.ref,)) for s in (at_roofs(found), _seconds(found)))
        return at_roof.share_of(time)

    def saving(self, operation: str) -> Number:
        """Return the part of the layer's time that an operation at its roof would save."""
        found = self.operations[operation]
        saved = Number(_seconds(found) - at_roofs(found), "s", (self.ref,))
        return saved.share_of(self.time)

    @property
    def slowest(self) -> str:
        """The operation that takes most of the time."""
        return max(self.operations, key=lambda name: _seconds(self.operations[name]))


def _seconds(found: Sequence[Point]) -> float:
    return sum(point.seconds for point in found)


def steps(found: Sequence[Point], model: str) -> list[Step]:
    """Return the decode steps and prefills of which every operation was measured."""
    linear = {layer.tokens: layer.projections for layer in layers(found, model=model)}
    pointwise: dict[int, dict[str, Point]] = {}
    for variants in variants_by_shape(found):
        point = fastest(variants.values())
        pointwise.setdefault(point.tokens, {})[point.param("op")] = point
    chosen = []
    for stage in STAGES:
        cases = select(found, family="attention", stage=stage, model=model, variant="graph")
        sizes = grouped(
            (point for point in cases if point.param("kv_groups") != "none"),
            lambda point: (point.param("batch"), point.param("keys")),
        )
        for (batch, keys), rivals in sizes.items():
            tokens = batch if stage == "decode" else batch * keys
            others = pointwise.get(tokens, {})
            if tokens in linear and POINTWISE.keys() <= others.keys():
                repeated = tuple(others[op] for op, n in POINTWISE.items() for _ in range(n))
                operations = {
                    "linear": linear[tokens],
                    "attention": (fastest(rivals),),
                    "pointwise": repeated,
                }
                chosen.append(Step(stage, batch, keys, operations))
    return chosen


def table(found: Sequence[Point], model: str) -> Table[Step]:
    """Return the decoder layer of each step, and what each operation takes and could save."""

    def columns(operation: str) -> list[Column[Step]]:
        name = OPERATIONS[operation]
        return [
            Column(Text("{operation}", operation=name), lambda row: row.share(operation)),
            Column(
                Text("{operation} could save", operation=name), lambda row: row.saving(operation)
            ),
        ]

    return Table(
        "llm-decoder-layer",
        Text("One decoder layer of {model} by its operations", model=title(model)),
        [
            Column(Text("stage"), lambda row: STAGES[row.stage]),
            Column(Text("sequences"), lambda row: row.batch),
            Column(Text("positions"), lambda row: row.positions),
            Column(Text("time"), lambda row: row.time),
            *(column for operation in OPERATIONS for column in columns(operation)),
        ],
        steps(found, model),
        note=SENTENCES.note("llm-decoder-layer"),
        refs=lambda row: [row.ref],
    )


def decode_limit(found: Sequence[Point], model: str) -> Finding | None:
    """State which operation limits decode, and from which KV cache on another one does."""
    rows = [step for step in steps(found, model) if step.stage == "decode"]
    if not rows:
        return None
    rows.sort(key=lambda step: step.batch * step.positions)
    small, large = rows[0], rows[-1]
    usual = next((step for step in rows if step.batch > 1), small)
    evidence = _evidence([usual] if usual is large else [usual, large])
    values: dict[str, Value] = {
        "share": usual.share(usual.slowest),
        "batch": sequences(n=usual.batch),
        "positions": usual.positions,
        "saving": _fp8_saving(found, usual),
    }
    if large.slowest == usual.slowest:
        operation = OPERATIONS[usual.slowest]
        return SENTENCES.finding(
            "decode_limit", evidence, operation=operation, model=title(model), **values
        )
    turn = next(step for step in rows if step.slowest == large.slowest)
    as_usual = (usual.slowest, large.slowest) == ("linear", "attention")
    return SENTENCES.finding(
        "decode_limit/turn" if as_usual else "decode_limit/other",
        evidence,
        first=OPERATIONS[usual.slowest],
        second=OPERATIONS[large.slowest],
        turn_share=turn.share(turn.slowest),
        turn_batch=sequences(n=turn.batch),
        turn_positions=turn.positions,
        **values,
    )


def prefill_limit(found: Sequence[Point], model: str) -> Finding | None:
    """State which operation limits prefill, and what perfect kernels would save."""
    rows = [step for step in steps(found, model) if step.stage == "prefill"]
    if not rows:
        return None
    step = max(rows, key=lambda row: row.positions)
    return replace(
        SENTENCES.finding(
            "prefill_limit",
            _evidence([step]),
            operation=OPERATIONS[step.slowest],
            tokens=of_tokens(n=step.batch * step.positions),
            share=step.share(step.slowest),
            model=title(model),
            at_roof=_at_roof(step),
            saving=_fp8_saving(found, step),
        ),
        lay_verdict=SENTENCES.text(
            "prefill_limit",
            share=step.roof_share("linear"),
        )
        if step.slowest == "linear" and step.roof_share("linear").value is not None
        else None,
    )


def _at_roof(step: Step) -> Text | str:
    share = step.roof_share(step.slowest)
    if share.value is None:
        return ""
    return Text(", already at {share} of the roof", share=share)


def _fp8_saving(found: Sequence[Point], step: Step) -> Text | str:
    """Return what fp8 linear layers save of a step; empty where they were not measured."""
    tokens = step.batch if step.stage == "decode" else step.batch * step.positions
    model = step.operations["linear"][0].param("model")
    narrow = [layer for layer in layers(found, "fp8", model) if layer.tokens == tokens]
    if not narrow:
        return ""
    saved = _seconds(step.operations["linear"]) - narrow[0].seconds
    share = Number(saved, "s", (narrow[0].ref,)).share_of(step.time)
    return Text(" (saves {share} of the layer)", share=share)


def _evidence(chosen: Sequence[Step]) -> list[Text]:
    """Return time and possible savings of steps."""
    texts = []
    for step in chosen:
        known = [name for name in OPERATIONS if step.saving(name).value is not None]
        savings = [
            Text("{operation} {saving}", operation=OPERATIONS[name], saving=step.saving(name))
            for name in known
        ]
        if savings:
            texts.append(
                SENTENCES.text(
                    "step_savings",
                    batch=sequences(n=step.batch),
                    positions=step.positions,
                    time=step.time,
                    savings=savings,
                )
            )
    return texts


def roof_chart(found: Sequence[Point], model: str) -> BarFigure | None:
    """Return the share of the roof that each operation reaches, at few and at many tokens."""
    bars = tuple(
        Bar(label, 100 * share, group=f"bound by {point.roof}", text=percent(100 * share, 2))
        for label, point in _representatives(found, model)
        if (share := point.fraction.value) is not None
    )
    if not bars:
        return None
    return BarFigure(
        **SENTENCES.chart("llm-roofs"),
        bars=bars,
    )


def _representatives(found: Sequence[Point], model: str) -> list[tuple[Words, Point]]:
    """Return labelled points: each operation at its second smallest and its largest size."""
    linear = select(found, family="linear", model=model, variant="graph")
    chosen = _ends_by_operation(point for point in linear if point.dtype == "bf16")
    for stage in ("prefill", "decode"):
        cases = select(found, family="attention", stage=stage, model=model, variant="graph")
        for batch in dict.fromkeys(point.param("batch") for point in cases):
            same = select(cases, batch=batch)
            keys = max(point.param("keys") for point in same)
            best = fastest(select(same, keys=keys))
            shape = Verbatim(f"{batch:,} x {keys:,}, {best.backend}")
            chosen.append(
                (Text("attention {stage}, {shape}", stage=Word(stage), shape=shape), best)
            )
    chosen += _ends_by_operation(fastest(of.values()) for of in variants_by_shape(found))
    for family in ("conv", "lstm"):
        cases = select(found, family=family, variant="graph")
        if cases:
            best = max(cases, key=lambda point: point.fraction.value or -math.inf)
            detail = best.param("layer") or f"batch {best.param('batch')}"
            chosen.append((f"{best.operation}, {detail}", best))
    return chosen


def _ends_by_operation(points: Iterable[Point]) -> list[tuple[Words, Point]]:
    found: list[tuple[Words, Point]] = []
    for same in grouped(points, lambda point: point.operation).values():
        ordered = sorted(same, key=lambda point: point.tokens)
        ends = {point.tokens: point for point in (ordered[min(1, len(ordered) - 1)], ordered[-1])}
        found += [(sized(point), point) for point in ends.values()]
    return found
