"""Tables of the operations of a transformer: times, rates, share of the roof, counters."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from nsight_prof.parsers.cells import number
from nsight_prof.reports.bench.case_rows import case_anchor
from nsight_prof.reports.bench.llm_kernels_points import (
    VARIANTS,
    Point,
    layers,
    one,
    pointwise,
    select,
    times,
    title,
)
from nsight_prof.reports.bench.models import BenchTable
from nsight_prof.reports.formats import byte_rate, clock, count, flop_rate, seconds, share, speedup

NONE = "–"
RATES = ("time", "FLOP/s", "B/s", "of the roof", "counted")
RATIOS_NOTE = (
    "Counted: FLOPs and DRAM bytes by ncu in multiples of the formula's; – where that case was not "
    "counted."
)


def tables(found: list[Point], reference: str) -> tuple[BenchTable, ...]:
    """Return every table that the points allow; `reference` is the model shown in detail."""
    makers = (
        linear_overview(found),
        linear_details(found, reference),
        fp8_table(found),
        *(attention_table(found, stage) for stage in ("prefill", "decode")),
        pointwise_table(found),
        launch_table(found),
        other_table(found),
        hot_table(found),
        zeros_table(found),
    )
    return tuple(table for table in makers if table is not None)


@dataclass(frozen=True)
class Shown:
    """A row of a table with the points whose numbers it shows."""

    points: tuple[Point, ...]
    cells: tuple[str, ...]


def _table(
    title: str, columns: tuple[str, ...], rows: Sequence[Shown], note: str, left: tuple[str, ...]
) -> BenchTable | None:
    """Return the table with the ids of the cases of each row; None without a row."""
    if not rows:
        return None
    ids = tuple(tuple(case_anchor(p.row) for p in row.points) for row in rows)
    cells = tuple(row.cells for row in rows)
    return BenchTable(title, columns, cells, note, left=left, anchors=ids)


def shown(value: float, formatted: str) -> str:
    """Return the formatted value, "–" where the value is unknown."""
    return NONE if math.isnan(value) else formatted


def _rates(point: Point) -> tuple[str, ...]:
    """Return the cells of RATES."""
    return (
        seconds(point.seconds),
        shown(point.flop_rate, flop_rate(point.flop_rate)),
        shown(point.byte_rate, byte_rate(point.byte_rate)),
        shown(point.fraction, f"{share(point.fraction)} of {point.roof}"),
        _several((point.flops_ratio, point.bytes_ratio)),
    )


def _several(ratios: Sequence[float]) -> str:
    """Return ratios side by side; one "–" where none is known."""
    if all(map(math.isnan, ratios)):
        return NONE
    return ", ".join(shown(ratio, speedup(ratio)) for ratio in ratios)


def linear_overview(found: list[Point]) -> BenchTable | None:
    """Return one row a linear layer of each model: time and share of the roof by tokens."""
    chosen = [p for p in select(found, family="linear", variant="graph") if _is(p, "bf16")]
    tokens = sorted({p.param("tokens") for p in chosen})
    rows = []
    for key in dict.fromkeys((p.param("models"), p.param("projection")) for p in chosen):
        mine = [p for p in chosen if (p.param("models"), p.param("projection")) == key]
        cells = []
        for size in tokens:
            point = one(mine, tokens=size)
            fraction = math.nan if point is None else point.fraction
            tail = shown(fraction, f" ({share(fraction)})").replace(NONE, "")
            cells.append(NONE if point is None else seconds(point.seconds) + tail)
        shape = f"{count(mine[0].param('n'))} x {count(mine[0].param('k'))}"
        models = ", ".join(title(model) for model in key[0].split(", "))
        rows.append(Shown(tuple(mine), (models, key[1], shape, *cells)))
    heads = tuple(f"{count(n)} token{'' if n == 1 else 's'}" for n in tokens)
    return _table(
        "Linear layers, bf16: time, and share of what the measured roofs allow",
        ("model", "layer", "outputs x inputs", *heads),
        rows,
        "In a CUDA graph, weights not in L2. The head computes logits of sampled tokens only.",
        left=("model", "layer", "outputs x inputs"),
    )


def _is(point: Point, dtype: str) -> bool:
    return bool(point.row["dtype"] == dtype)


def linear_details(found: list[Point], reference: str) -> BenchTable | None:
    """Return rates and counters of the linear layers of one model, and batched products."""
    chosen = select(found, family="linear", model=reference, variant="graph")
    rows = [
        Shown((p,), (p.param("projection"), p.row["dtype"], count(p.param("tokens")), *_rates(p)))
        for p in sorted(chosen, key=lambda p: (p.row["dtype"], p.param("tokens")))
    ]
    return _table(
        f"Linear layers of {title(reference)} in detail",
        ("layer", "dtype", "tokens", *RATES),
        rows,
        RATIOS_NOTE,
        left=("layer", "dtype", "of the roof"),
    )


def fp8_table(found: list[Point]) -> BenchTable | None:
    """Return what fp8 gains over bf16 for a decoder layer of the model measured with both."""
    narrow = {(p.model, p.tokens): p for p in layers(found, "fp8")}
    rows = []
    for wide in layers(found):
        fast = narrow.get((wide.model, wide.tokens))
        if fast is not None:
            cells = (
                title(wide.model),
                count(wide.tokens),
                seconds(wide.seconds),
                seconds(fast.seconds),
                speedup(wide.seconds / fast.seconds),
                flop_rate(fast.flop_rate),
                shown(fast.fraction, share(fast.fraction)),
            )
            rows.append(Shown((*wide.parts, *fast.parts), cells))
    return _table(
        "Linear layers of one decoder layer: fp8 against bf16",
        ("model", "tokens", "bf16", "fp8", "gain", "fp8 FLOP/s", "fp8, of the roof"),
        rows,
        "QKV, out, gate/up and down together; one scale a tensor; quantization is not included.",
        left=("model",),
    )


def attention_table(found: list[Point], stage: str) -> BenchTable | None:
    """Return every shape of a stage with each back end, and how it compares with the fastest."""
    chosen = select(found, family="attention", stage=stage, variant="graph")
    rows = []
    for point in chosen:
        rivals = [p for p in chosen if _shape(p) == _shape(point)]
        best = min(rivals, key=lambda p: p.seconds)
        over = speedup(times(point, best).value)
        rows.append(Shown((point,), (*_shape_cells(point), point.backend, *_rates(point), over)))
    return _table(
        f"Attention, {stage}: back ends of torch",
        ("model, heads / KV", "batch x positions", "back end", *RATES, "over the fastest"),
        rows,
        f"{_stage_note(stage)} {RATIOS_NOTE}",
        left=("model, heads / KV", "back end", "of the roof"),
    )


def _stage_note(stage: str) -> str:
    if stage == "prefill":
        return "Causal; only scored pairs are counted as work."
    return "One new token a sequence against its KV cache."


def _shape(point: Point) -> tuple[object, ...]:
    return tuple(point.param(key) for key in ("model", "batch", "keys", "kv_heads"))


def _shape_cells(point: Point) -> tuple[str, ...]:
    batch, keys = count(point.param("batch")), count(point.param("keys"))
    heads = f"{point.param('heads')} / {point.param('kv_heads')} x {point.param('head_dim')}"
    if point.param("kv_groups") == "expanded":
        heads += ", expanded"
    return f"{title(point.param('model'))}, {heads}", f"{batch} x {keys}"


def by_shape(found: list[Point]) -> Iterator[dict[str, Point]]:
    """Yield {variant: point} of each pointwise operation and number of tokens."""
    chosen = select(pointwise(found))
    for key in dict.fromkeys((p.param("op"), p.param("tokens")) for p in chosen):
        mine = (p for p in chosen if (p.param("op"), p.param("tokens")) == key)
        yield {p.param("variant"): p for p in mine}


def pointwise_table(found: list[Point]) -> BenchTable | None:
    """Return the variants of norms, activations, gathers and sampling side by side."""
    rows = []
    for made in by_shape(found):
        best = min(made.values(), key=lambda p: p.seconds)
        eager, fused = made.get("eager"), made.get("compiled")
        moved = [math.nan if p is None else p.bytes_ratio for p in (eager, fused)]
        cells = (
            best.operation,
            count(best.param("tokens")),
            *(seconds(made[v].seconds) if v in made else NONE for v in VARIANTS),
            byte_rate(best.byte_rate),
            shown(best.fraction, share(best.fraction)),
            _several(moved),
        )
        rows.append(Shown(tuple(made.values()), cells))
    heads = ("of the roof", "DRAM bytes")
    return _table(
        "Norms, activations, gathers and sampling: the variants",
        ("operation", "tokens", *VARIANTS.values(), "fastest: B/s", *heads),
        rows,
        "DRAM bytes: eager, compiled, in multiples of the compulsory ones. – : not measured or "
        "not counted.",
        left=("operation",),
    )


def launch_table(found: list[Point]) -> BenchTable | None:
    """Return products and attention as the host launches them and in a graph."""
    rows = []
    for family in ("linear", "bmm", "attention", "conv", "lstm"):
        for eager in select(found, family=family, variant="eager"):
            graph = _twin(found, eager)
            if graph is not None:
                case = eager.name.rpartition("/")[0].partition("/")[2]
                rows.append(Shown((eager, graph), _both(case, eager, graph)))
    return _table(
        "Products, attention, convolution and LSTM: launched by the host, and in a CUDA graph",
        ("operation", "case", "eager", "graph", "eager over graph"),
        rows,
        "",
        left=("operation", "case"),
    )


def _both(case: str, slow: Point, fast: Point) -> tuple[str, ...]:
    """Return the cells of one operation measured in two ways."""
    over = speedup(times(slow, fast).value)
    return slow.operation, case, seconds(slow.seconds), seconds(fast.seconds), over


def _twin(found: list[Point], eager: Point) -> Point | None:
    shape = eager.name.rpartition("/")[0]
    return next((p for p in select(found, variant="graph") if p.name == f"{shape}/graph"), None)


def other_table(found: list[Point]) -> BenchTable | None:
    """Return batched products, convolutions and LSTMs with rates and counters."""
    rows = [
        Shown((p,), (p.operation, _what(p), *_rates(p)))
        for family in ("bmm", "conv", "lstm")
        for p in select(found, family=family, variant="graph")
    ]
    return _table(
        "Batched products, convolution and LSTM",
        ("operation", "case", *RATES),
        rows,
        RATIOS_NOTE,
        left=("operation", "case", "of the roof"),
    )


def _what(point: Point) -> str:
    if point.param("family") == "bmm":
        sizes = " x ".join(count(point.param(key)) for key in ("batch", "m", "n", "k"))
        return f"{point.param('what')} ({sizes})"
    if point.param("family") == "conv":
        sizes = f"{point.param('kernel')} x {point.param('kernel')}"
        return f"{point.param('layer')}, {sizes}, {point.param('layout')}"
    return (
        f"batch {point.param('batch')}, {point.param('steps')} steps, {point.param('hidden')} wide"
    )


def hot_table(found: list[Point]) -> BenchTable | None:
    """Return what was measured with its data in the L2 cache as well."""
    rows = []
    for hot in select(found, mode="hot"):
        cold = next((p for p in select(found) if p.name == hot.name), None)
        if cold is not None:
            rows.append(Shown((cold, hot), _both(hot.name.partition("/")[2], cold, hot)))
    return _table(
        "Data in the L2 cache (hot) and not (cold)",
        ("operation", "case", "cold", "hot", "cold over hot"),
        rows,
        "",
        left=("operation", "case"),
    )


def zeros_table(found: list[Point]) -> BenchTable | None:
    """Return what was measured on zeros as well, with the clock that both ran at."""
    rows = []
    for blank in select(found, data="zeros"):
        random = next((p for p in select(found) if p.name == blank.name), None)
        if random is not None:
            clocks = [clock(number(p.row["clock_hz"])) for p in (random, blank)]
            case = blank.name.partition("/")[2]
            rows.append(Shown((random, blank), (*_both(case, random, blank), *clocks)))
    return _table(
        "Zeros instead of random numbers",
        ("operation", "case", "random", "zeros", "random over zeros", "clock, random",
         "clock, zeros"),
        rows,
        "",
        left=("operation", "case"),
    )  # fmt: skip
