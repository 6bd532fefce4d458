"""Attention: which back end is fastest in prefill and decode, and what shared KV heads save."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from nsight_prof.parsers.cells import grouped, number
from nsight_prof.reports.cases.sentences import Sentences
from nsight_prof.reports.page import Column, Evidence, Finding, Name, Number, Table, Text, Verbatim
from nsight_prof.reports.page.charts import LineFigure, Panel, Series, line
from nsight_prof.reports.studies.llm_kernels.points import (
    BACKENDS,
    COUNTED,
    DRAM,
    TENSOR,
    Point,
    fastest,
    first,
    of_roof,
    rate_table,
    roof_levels,
    select,
    sequences,
    slowdown,
    title,
)

SENTENCES = Sentences("llm_kernels")

STAGES = {
    "prefill": (
        Text("Attention in prefill: back ends of torch"),
        Text("Causal; FLOPs of the scored pairs only."),
    ),
    "decode": (
        Text("Attention in decode: back ends of torch"),
        Text("One new token per sequence against its KV cache."),
    ),
}


def prefill_backends(found: Sequence[Point], model: str) -> Finding | None:
    """State which back end is fastest for a long prompt, and what the others cost."""
    single = _cases(found, "prefill", model=model, batch=1)
    sizes = sorted({point.param("keys") for point in single}, reverse=True)
    for keys in sizes:
        rivals = select(single, keys=keys)
        if len(rivals) > 2 or (len(rivals) == 2 and keys == sizes[-1]):
            ranked = sorted(rivals, key=lambda point: point.seconds)
            where = Text("a prompt of {keys} positions", keys=keys)
            return _comparison("prefill_attention", ranked, where, ranked[0].flop_rate)
    return None


def decode_backends(found: Sequence[Point], model: str) -> Finding | None:
    """State which back end is fastest for a decode step with a long KV cache."""
    by_size = grouped(
        _with_groups(_cases(found, "decode", model=model)),
        lambda point: (point.param("batch"), point.param("keys")),
    )
    compared = {size: rivals for size, rivals in by_size.items() if len(rivals) > 1}
    if not compared:
        return None
    batch, keys = max(compared, key=lambda size: (len(compared[size]), size[0] * size[1]))
    ranked = sorted(compared[batch, keys], key=lambda point: point.seconds)
    where = Text(
        "one new token of {batch} with {keys} positions each", batch=sequences(n=batch), keys=keys
    )
    return _comparison("decode_attention", ranked, where, ranked[0].byte_rate)


def _cases(found: Sequence[Point], stage: str, **params: Any) -> list[Point]:
    return select(found, family="attention", stage=stage, variant="graph", **params)


def _with_groups(found: list[Point]) -> list[Point]:
    """Return the cases with grouped KV heads; all where there are none."""
    return [point for point in found if point.param("kv_groups") != "none"] or found


def _comparison(rule: str, ranked: list[Point], where: Text, rate: Number) -> Finding:
    best, *others = ranked
    in_prefill = rule == "prefill_attention"
    return SENTENCES.finding(
        rule,
        backend=best.backend,
        where=where,
        slower=[
            Text(
                "{backend} takes {longer} as long",
                backend=p.backend,
                longer=p.time.times(best.time),
            )
            for p in others
        ],
        time=best.time,
        rate=rate,
        of_roof=of_roof(best),
        heads=best.param("heads"),
        kv_heads=best.param("kv_heads"),
        size=best.param("head_dim"),
        dtype=best.dtype,
        function=Name("torch.nn.attention.sdpa_kernel"),
        backends=[p.backend for p in ranked if p.param("kv_groups") == "expanded"] or None,
        n=len(ranked) if in_prefill else None,
        longer=ranked[-1].time.times(best.time) if in_prefill else None,
    )


def grouped_heads(found: Sequence[Point], model: str) -> Finding | None:
    """State what sharing KV heads saves in a decode step."""
    chosen = _cases(found, "decode", model=model, backend="flash")
    for full in select(chosen, kv_groups="none"):
        batch, keys = full.param("batch"), full.param("keys")
        shared = first(chosen, kv_groups="native", batch=batch, keys=keys)
        if shared is None:
            continue
        heads = shared.param("heads") // shared.param("kv_heads")
        return SENTENCES.finding(
            "grouped_kv_heads",
            (
                Text("{batch} of {keys} positions", batch=sequences(n=batch), keys=keys),
                Evidence(Text("back end:"), shared.backend),
            ),
            gain=full.time.times(shared.time),
            heads=heads,
        )
    return None


def table(found: Sequence[Point], stage: str) -> Table[Point]:
    """Return every shape of a stage with each back end, and how it compares with the fastest."""
    rows = _cases(found, stage)
    heading, note = STAGES[stage]

    def over_fastest(point: Point) -> Number:
        best = fastest(rival for rival in rows if _shape(rival) == _shape(point))
        return Number(slowdown(point, best), "x", (point.ref,))

    return rate_table(
        f"llm-attention-{stage}",
        heading,
        [
            Column(Text("model, heads / KV heads"), _heads),
            Column(Text("sequences"), lambda point: point.param("batch")),
            Column(Text("positions"), lambda point: point.param("keys")),
            Column(Text("back end"), lambda point: point.backend),
        ],
        rows,
        Text("{stage} {counted}", stage=note, counted=COUNTED),
        [Column(Text("over the fastest"), over_fastest)],
    )


def _shape(point: Point) -> tuple[object, ...]:
    return tuple(point.param(key) for key in ("model", "batch", "keys", "kv_heads"))


def _heads(point: Point) -> str:
    heads = f"{point.param('heads')} / {point.param('kv_heads')} x {point.param('head_dim')}"
    expanded = ", expanded" if point.param("kv_groups") == "expanded" else ""
    return f"{title(point.param('model'))}, {heads}{expanded}"


def prefill_chart(found: Sequence[Point], model: str) -> LineFigure | None:
    """Return TFLOP/s of causal attention over positions, one line per back end, one sequence."""
    series = _by_backend(
        _cases(found, "prefill", model=model, batch=1), lambda point: point.flop_rate, 1e12
    )
    if not series:
        return None
    return LineFigure(
        **SENTENCES.chart("llm-prefill"),
        title=Text("Attention of a prompt, {model}: the back ends", model=Verbatim(title(model))),
        x_log=True,
        series=series,
        levels=roof_levels(found, TENSOR[:1], 1e12),
    )


def decode_chart(found: Sequence[Point], model: str) -> LineFigure | None:
    """Return GB/s of decode attention over positions: back ends as lines, batches as panels."""
    chosen = _with_groups(_cases(found, "decode", model=model))
    panels = []
    for batch in sorted({point.param("batch") for point in chosen}):
        same = select(chosen, batch=batch)
        if len({point.param("keys") for point in same}) < 2:
            continue
        panels.append(
            Panel(
                "GB/s",
                _by_backend(same, lambda point: point.byte_rate, 1e9),
                title=Text("{n} sequence", "{n} sequences", n=batch),
                levels=roof_levels(found, DRAM, 1e9),
            )
        )
    if not panels:
        return None
    return LineFigure(
        **SENTENCES.chart("llm-decode"),
        title=Text(
            "Attention of one new token, {model}: the back ends", model=Verbatim(title(model))
        ),
        x_log=True,
        panels=tuple(panels),
    )


def _by_backend(
    found: Sequence[Point], rate: Callable[[Point], Number], scale: float
) -> tuple[Series, ...]:
    def keys(point: Point) -> float:
        return float(point.param("keys"))

    swept = {key: sorted(select(found, backend=key), key=keys) for key in BACKENDS}
    return tuple(
        line(points[0].backend, points, keys, lambda p: number(rate(p).value) / scale, group=key)
        for key, points in swept.items()
        if len(points) > 1
    )
