"""Sections of a prediction: points, time of each step, what would change it, and sources."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pandas as pd

from nsight_prof.parsers.cells import Row, count, known, number, records, text
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.page import (
    Bullets,
    Column,
    Fact,
    Figure,
    Name,
    Number,
    Ref,
    Section,
    Table,
    Text,
    Value,
    Verbatim,
)
from nsight_prof.reports.page.charts import spaced
from nsight_prof.reports.page.frame import LEVELS
from nsight_prof.reports.page.values import Capital, Confidence
from nsight_prof.reports.predict import choices, figures, needs
from nsight_prof.reports.predict.numbers import (
    REQUEST_RATE,
    THROUGHPUT,
    TOKEN_RATE,
    asked_for,
    predicted,
    with_interval,
)

OPEN_STEPS = 2
"""Tables of steps that are open; the others are folded."""
LEAST_CORRECTION = 5e-4
"""A smaller one shows in no digit of a step."""
TIERS = {
    "T0": Text(
        "the roofline of a datasheet: a lower bound of time, or carried over from another GPU"
    ),
    "T1": Text("kernels of other shapes, measured on a GPU of this kind"),
    "T2": Text("products of these very outputs and inputs, measured on a GPU of this kind"),
    "T3": Text("a recorded engine that served this model on a GPU of this kind"),
}
KINDS = {"decode": Text("decode"), "prefill": Text("prefill")}
TYPES = {
    "weights": Text("half-width weights"),
    "kv_cache": Text("half-width KV cache"),
}
REPAIRS = {
    "kernels": Text("every kernel at its roofline"),
    "gaps": Text("no gaps between kernels"),
}
CHANGES = TYPES | REPAIRS
COVERED = Number(0.9, "fraction")
SURE: Mapping[str, Confidence] = {"T0": "low", "T1": "medium", "T2": "medium", "T3": "high"}
METHOD = (
    Text(
        "Intervals are the 5th and 95th percentile of what held-out measurements differed from "
        "their prediction: of each measured pair of outputs and inputs all sizes were left out of "
        "the fit. An interval of a step or point is as wide as other models that were served need "
        "it; where none were, it has all operators at the same end. Over several GPUs and with "
        "quantized weights operators are taken to miss independently of each other."
    ),
    Text(
        "Points come from a simulation of continuous batching: requests that generate go first, "
        "the rest of a step's tokens goes to prompts, the last of which is cut. A step is "
        "scheduled while the one before runs."
    ),
)


@dataclass(frozen=True)
class Savings:
    """What each of CHANGES saves of a decode step at most, in seconds; NaN where not known."""

    step: Row
    seconds: Mapping[str, float]

    def share(self, change: str) -> Number:
        """Return a saving as part of the step's GPU time."""
        of_step = self.seconds[change] / number(self.step["gpu_s"])
        return Number(of_step, "fraction", missing="no recorded engine or host costs")


def answer(run: Run) -> list[Text]:
    """Return the first and the last point, what the KV cache holds, costs, and what helps most."""
    points = records(run.predicted_points)
    good = [row for row in points if row["status"] == "ok"]
    loads = _loads(points)
    request = run.manifest.recipe.get("predict") or {}
    dtype = text(request.get("dtype"))
    ends = good if len(good) < 3 else [good[0], good[-1]]
    texts = [_verdict(ends, dtype), *_bound(run, loads)] if good else []
    if good:
        texts += [*_drafting(good), *_best(good), _capacity(good[-1], request), *_helps(run, loads)]
    if bad := len(points) - len(good):
        return [
            *texts,
            Text(
                "{n} point is not predicted: more KV cache is needed than there is.",
                "{n} points are not predicted: more KV cache is needed than there is.",
                n=bad,
            )
            if good or number(points[0]["kv_tokens"]) > 0
            else _does_not_fit(points[0], request),
        ]
    return texts


def certainty(tiers: Iterable[str]) -> Text:
    """Return how sure a prediction is: as its least tier, and what each of its tiers is."""
    found = sorted(set(tiers))
    return Text(
        "how sure: {sure} ({tiers}){brackets}",
        sure=LEVELS[SURE[found[0]]],
        tiers=[Text("tier {tier}: {meaning}", tier=t, meaning=TIERS[t]) for t in found],
        brackets=Text("; in brackets {part} intervals", part=COVERED) if found != ["T0"] else "",
    )


def subject(run: Run) -> Text | None:
    """Return the lengths of the requests, and how sure the points are; None where there is none."""
    points = _predicted(run)
    if not points:
        return None
    return Text(
        "{prompts} prompt and {outputs} output tokens · {certainty}",
        prompts=_range(points, "prompt_tokens"), outputs=_range(points, "output_tokens"),
        certainty=certainty(text(row["tier"]) for row in points),
    )  # fmt: skip


def _range(rows: Sequence[Row], name: str) -> Value:
    low, high = (int(end(number(row[name]) for row in rows)) for end in (min, max))
    return low if low == high else Text("{low} to {high}", low=low, high=high)


def facts(run: Run) -> tuple[Fact, ...]:
    """Return the waits and the tokens per second at the first and the last load."""
    points, found = _predicted(run), []
    for row in points if len(points) < 3 else (points[0], points[-1]):
        load, rate = Capital(_load(row)), _point(row, THROUGHPUT, TOKEN_RATE)
        ttft, tpot = (_point(row, name, "s") for name in ("ttft_p50_s", "tpot_p50_s"))
        found += [
            (Text("{load}: wait for the first word, median", load=load), ttft),
            (Text("{load}: each further word or part of one, median", load=load), tpot),
            (Text("{load}: tokens generated per second, all together", load=load), rate),
        ]
    return tuple(Fact(label, with_interval(value)) for label, value in found)


def _predicted(run: Run) -> list[Row]:
    return [row for row in records(run.predicted_points) if row["status"] == "ok"]


def _bound(run: Run, loads: Mapping[str, Text]) -> Iterator[Text]:
    """Yield what bounds the decode steps of the first and the last load."""
    rows = [row for row in records(run.predicted_steps) if row["kind"] == "decode"]
    bounds: list[Value] = []
    for step in rows if len(rows) < 3 else (rows[0], rows[-1]):
        case = run.predicted_operators[run.predicted_operators["case"].eq(step["case"])]
        limit, share = figures.largest_bound(step, records(case[case["kind"].eq("decode")]))
        load = loads.get(text(step["case"]), text(step["case"]))
        of_step = Number(share, "fraction")
        bounds.append(Text("{limit} {part} at {load}", limit=limit, part=of_step, load=load))
    if bounds:
        yield Text("What bounds a decode step, by its GPU time: {bounds}.", bounds=bounds)


def _best(points: list[Row]) -> Iterator[Text]:
    """Yield what more load gains and costs users, and the loads of most goodput and least price."""
    first, last = points[0], points[-1]
    if len(points) > 1 and known(first["tpot_p50_s_high"]) is not None:
        yield Text(
            "From {first} to {last} throughput grows {gain}, and each user gets {part} of the "
            "tokens per second.",
            first=_load(first), last=_load(last),
            gain=Number(number(last[THROUGHPUT]) / number(first[THROUGHPUT]), "x"),
            part=Number(number(first["tpot_p50_s"]) / number(last["tpot_p50_s"]), "fraction"),
        )  # fmt: skip
    if rated := [row for row in points if known(row["goodput_requests_per_s"]) is not None]:
        best = max(rated, key=lambda row: number(row["goodput_requests_per_s"]))
        yield Text(
            "Goodput is highest at {load}: {goodput} within the targets.",
            load=_load(best), goodput=_point(best, "goodput_requests_per_s", REQUEST_RATE),
        )  # fmt: skip
    name = "price_per_million_output_tokens"
    if priced := [row for row in points if known(row[name]) is not None]:
        cheap = min(priced, key=lambda row: number(row[name]))
        yield Text(
            "A million output tokens cost least at {load}: {price}, in the currency of the GPU's "
            "price.",
            load=_load(cheap), price=with_interval(_point(cheap, name, "")),
        )  # fmt: skip


def _drafting(points: list[Row]) -> Iterator[Text]:
    """Yield from how many tokens per step on drafting pays, at the first and the last load."""
    judged = [row for row in points if known(row["break_even_accept"]) is not None]
    for row in judged if len(judged) < 3 else (judged[0], judged[-1]):
        yield Text(
            "At {load} speculative decoding is faster where a step gives each request more than "
            "{limit} tokens; --accept says {given}.",
            load=_load(row), limit=_point(row, "break_even_accept", ""),
            given=Number(number(row["accept"]), ""),
        )  # fmt: skip


def _capacity(row: Row, request: Mapping[str, Any]) -> Text:
    """Return how many requests of a point's lengths the KV cache holds at once."""
    tokens, length = number(row["kv_tokens"]), int(row["prompt_tokens"] + row["output_tokens"])
    limit = known(request.get("max_num_seqs")) or math.inf
    values: dict[str, Value] = {
        "tokens": Number(tokens, "count", (Ref("predicted_points", text(row["case"])),)),
        "bytes": Number(number(request.get("kv_bytes_per_token")) * tokens, "B", digits=3),
        "requests": int(tokens // length),
        "length": length,
    }
    if limit < tokens // length:
        return Text(
            "The KV cache of each GPU holds {tokens} tokens ({bytes}), enough for {requests} "
            "requests of {length} tokens; the engine runs at most {limit} at a time.",
            limit=int(limit),
            **values,
        )
    return Text(
        "The KV cache of each GPU holds {tokens} tokens ({bytes}), {requests} requests of {length} "
        "tokens at once: with more, some wait.",
        **values,
    )


def _does_not_fit(row: Row, request: Mapping[str, Any]) -> Text:
    """Return why nothing is predicted: weights, and the memory that they are to fit in."""
    share = number(request.get("utilization"))
    return Text(
        "{model} does not fit {gpu}: its weights take {weights} of each GPU, and the engine may "
        "take {memory} ({part} of {all}). More GPUs (--tp) or smaller weights (--dtype fp8) are "
        "needed.",
        model=text(row["model"]), gpu=text(row["gpu"]), part=Number(share, "fraction"),
        weights=Number(known(request.get("weight_bytes")), "B"),
        memory=Number(share * number(request.get("memory_bytes")), "B"),
        all=Number(known(request.get("memory_bytes")), "B"),
    )  # fmt: skip


def _helps(run: Run, loads: Mapping[str, Text]) -> Iterator[Text]:
    """Yield what would make decode faster: the most that there is to gain, and the best choice."""
    if savings := _savings(run):
        shares = {name: savings[-1].share(name) for name in CHANGES}
        best = max(shares, key=lambda name: shares[name].value or 0.0)
        case = text(savings[-1].step["case"])
        yield Text(
            "Most to gain in decode: {change}, at most {share} of a step of {case}.",
            change=CHANGES[best], share=shares[best], case=loads.get(case, case),
        )  # fmt: skip
    if best_choice := choices.answer(run, loads):
        yield best_choice


def _loads(points: list[Row]) -> dict[str, Text]:
    """Return how requests come, by point; nothing where lengths or kinds of load differ."""
    kinds = {(row["experiment"], row["prompt_tokens"], row["output_tokens"]) for row in points}
    return {text(row["case"]): _load(row) for row in points} if len(kinds) == 1 else {}


def _load(row: Row) -> Text:
    """Return how the requests of a point come."""
    if known(row["batch"]) is not None:
        return Text("batch {n}", n=count(row["batch"]) or 0)
    if known(row["concurrency"]) is not None:
        return Text("{n} client", "{n} clients", n=count(row["concurrency"]) or 0)
    if known(row["request_rate"]) is not None:
        return Text("{rate}", rate=Number(row["request_rate"], REQUEST_RATE))
    return Text("{n} requests of a trace", n=count(row["requests"]) or 0)


def _verdict(ends: list[Row], dtype: str) -> Text:
    """Return throughput and latencies at the first and the last load, with their intervals."""
    gpus, gpu = count(ends[0]["tensor_parallel"]) or 1, text(ends[0]["gpu"])
    model = text(ends[0]["model"])
    rates = [
        Text(
            "{rate} at {load}, with the first token after {ttft} and then one every {tpot}",
            rate=with_interval(_point(row, THROUGHPUT, TOKEN_RATE)), load=_load(row),
            ttft=with_interval(_point(row, "ttft_p50_s", "s")),
            tpot=with_interval(_point(row, "tpot_p50_s", "s")),
        )
        for row in ends
    ]  # fmt: skip
    return Text(
        "On {gpu}, {model} generates {rates}.",
        gpu=f"{gpus} x {gpu}" if gpus > 1 else gpu,
        model=f"{model} ({dtype})" if dtype else model,
        rates=rates[0] if len(ends) < 2 else Text("{a}; {b}", a=rates[0], b=rates[1]),
    )


def _name(row: Row) -> Name:
    case = text(row["case"])
    return Name(case, Ref("predicted_points", case))


def _point(row: Row, name: str, unit: str) -> Number:
    return predicted(row, name, unit, Ref("predicted_points", text(row["case"]), name))


def sections(run: Run) -> tuple[Section, ...]:
    """Return all sections of the report."""
    return (*drawn_sections(run), _changes(run), needs.section(run), sources(run, METHOD))


def drawn_sections(run: Run) -> tuple[Section, ...]:
    """Return those that have pictures."""
    return _points(run), _steps(run)


def _points(run: Run) -> Section:
    points, request = records(run.predicted_points), run.manifest.recipe.get("predict") or {}
    tokens = next((number(row["kv_tokens"]) for row in points), None)
    kv_bytes = None if tokens is None else number(request.get("kv_bytes_per_token")) * tokens
    full, limit = tokens or 0.0, known(request.get("max_num_seqs")) or math.inf
    charts = (
        figures.pareto(points),
        *figures.latencies(points, full, limit),
        figures.kv_cache(points, full, limit),
    )
    return Section(
        "points",
        Text("How fast it serves"),
        (
            Text(
                "Each number with its interval in brackets. The KV cache of each GPU holds "
                "{tokens} tokens ({bytes}) beside {weights} of weights. TPOT also counts steps "
                "that read prompts of other requests: a decode step alone may be shorter.",
                tokens=Number(tokens, "count"), bytes=Number(kv_bytes, "B", digits=3),
                weights=Number(known(request.get("weight_bytes")), "B", digits=3),
            ),
            Table(
                "predicted-points",
                Text("Points"),
                [
                    Column(Text("Point"), lambda row: text(row["case"])),
                    _column(Text("TTFT, median"), "ttft_p50_s", "s"),
                    _column(Text("TPOT, median"), "tpot_p50_s", "s"),
                    _column(Text("Output"), THROUGHPUT, TOKEN_RATE),
                    _column(Text("Answered"), "requests_per_s", REQUEST_RATE),
                    *asked_for(points, _point),
                    Column(Text("KV cache used"), _kv_used),
                    Column(Text("Tier"), lambda row: text(row["tier"])),
                ],
                points,
                note=_waiting(points),
                refs=lambda row: [Ref("predicted_points", text(row["case"]))],
            ),
            *(Figure(chart) for chart in charts if chart is not None),
        ),
    )  # fmt: skip


def _column(heading: Text, name: str, unit: str) -> Column[Row]:
    return Column(heading, lambda row: _point(row, name, unit), "" if unit == "s" else unit)


def _waiting(points: list[Row]) -> Text | None:
    """Say of which points not all requests fit the KV cache at once."""
    waiting = [_name(row) for row in points if row["status"] == "ok" and row["reason"]]
    if not waiting:
        return None
    return Text(
        "Not all requests fit the KV cache at once: some wait, or are computed again ({cases}).",
        cases=waiting,
    )


def _kv_used(row: Row) -> Number:
    used, tokens = number(row["kv_needed_tokens"]), number(row["kv_tokens"])
    missing = "not fixed in an open loop"
    return Number(used / tokens if tokens > 0 else None, "fraction", missing=missing)


def _steps(run: Run) -> Section:
    """Return what each step spends its time on, decode first."""
    operators = records(run.predicted_operators)
    rows = figures.different(records(run.predicted_steps))
    by_kind = [[row for row in rows if row["kind"] == kind] for kind in KINDS]
    loads, tables = _loads(records(run.predicted_points)), []
    for index, step in enumerate([row for kind in by_kind for row in spaced(kind, figures.MOST)]):
        of_step = [r for r in operators if (r["case"], r["kind"]) == (step["case"], step["kind"])]
        load = loads.get(text(step["case"]), text(step["case"]))
        key, folded = f"predicted-step-{index + 1}", index >= OPEN_STEPS
        tables.append(_step(step, of_step, load, key, folded))
    return Section(
        "steps",
        Text("What a step spends its time on"),
        (
            Text(
                "Of each operator the time of all its calls in the step, and what the datasheet's "
                "roofline allows: the difference is what a better kernel could gain."
            ),
            *(Figure(chart) for kind in KINDS if (chart := figures.steps(run, kind)) is not None),
            *tables,
        ),
    )


def _step(step: Row, operators: list[Row], load: Value, key: str, folded: bool) -> Table[Row]:
    # Quantizations that a recorded engine did within other kernels take no time of their own.
    rows = [row for row in operators if number(row["seconds"])]
    rows.sort(key=lambda row: -number(row["seconds"]))
    if (gap := known(step["gap_s"])) is not None:
        share = gap / number(step["gpu_s"])
        rows.append({"operator": "gaps", "seconds": gap, "share": share, "bound_by": "host"})
    share = figures.correction(step) - 1
    if abs(share) >= LEAST_CORRECTION:
        seconds = share * number(step["gpu_s"])
        rows.append(
            {"operator": "correction", "seconds": seconds, "share": share, "bound_by": None}
        )
    note, host = None, known(step["host_s"])
    if text(step["bound_by"]) == "host":
        note = Text("The step waits for the host, which needs {time}.", time=Number(host, "s"))
    elif host is not None:
        note = Text("The host needs at least {time}.", time=Number(host, "s"))
    added: dict[str, Value] = {
        "gaps": Text("gaps between kernels"),
        "correction": Text("correction by recorded steps and the power limit"),
    }
    return Table(
        key,
        Text(
            "{case}: {kind}, {time}",
            case=Capital(load), kind=KINDS[step["kind"]],
            time=with_interval(predicted(step, "seconds", "s")),
        ),
        [
            Column(Text("Operator"), lambda row: added.get(name := text(row["operator"]), name)),
            Column(Text("Calls"), lambda row: _cell(row, "calls", "count")),
            Column(Text("Rows"), lambda row: _cell(row, "m", "count")),
            Column(Text("Time"), lambda row: predicted(row, "seconds", "s")),
            Column(Text("Share"), lambda row: _cell(row, "share", "fraction")),
            Column(Text("Roofline"), lambda row: _cell(row, "roofline_s", "s")),
            Column(Text("Bound by"), lambda row: _limit(row["bound_by"])),
            Column(Text("Tier"), lambda row: text(row.get("tier")) or None),
        ],
        rows,
        note=note,
        folded=folded,
    )  # fmt: skip


def _cell(row: Row, name: str, unit: str) -> Number | None:
    """Return a value; gaps and collectives have not all, such as what the datasheet allows."""
    value = known(row.get(name))
    return None if value is None else Number(value, unit)


def _limit(name: object) -> Value | None:
    return None if name is None else figures.LIMITS.get(text(name), Verbatim(text(name)))


def _savings(run: Run) -> list[Savings]:
    """Return what each decode step could save, by its operators: upper limits, no forecasts."""
    operators, found = run.predicted_operators, []
    by_case = dict(list(operators[operators["kind"].eq("decode")].groupby("case", sort=False)))
    for step in records(run.predicted_steps):
        if step["kind"] != "decode":
            continue
        rows = by_case[step["case"]]
        seconds = {
            "weights": _half_of_bytes(rows[rows["group"].eq("product")]),
            "kv_cache": _half_of_bytes(rows[rows["group"].eq("decode attention")]),
            "kernels": float((rows["seconds"] - rows["roofline_s"]).clip(lower=0).sum()),
            "gaps": number(step["gap_s"]),
        }
        found.append(Savings(step, seconds))
    return found


def _half_of_bytes(operators: pd.DataFrame) -> float:
    """Return the seconds that half of the bytes would save where moving them takes the time."""
    return float(operators[operators["bound_by"].eq("dram")]["roofline_s"].sum()) / 2


def _changes(run: Run) -> Section:
    savings = _savings(run)
    cases = {row["case"] for row in spaced([saving.step for saving in savings], figures.MOST)}
    savings = [saving for saving in savings if saving.step["case"] in cases]
    owner = Section(
        "choices",
        Text("Choices"),
        (
            *choices.blocks(run),
            _limits("predicted-types", Text("Upper bounds of half-width types"), TYPES, savings),
        ),
    )
    waits = Column[Savings](Text("Waits for"), lambda row: _limit(row.step["bound_by"]))
    repairs = Section(
        "repairs",
        Text("Headroom"),
        (_limits("predicted-savings", Text("Upper bounds of savings"), REPAIRS, savings, waits),),
    )
    return Section("changes", Text("What would change it"), children=(owner, repairs))


def _limits(
    key: str,
    title: Text,
    changes: Mapping[str, Text],
    savings: list[Savings],
    *more: Column[Savings],
) -> Table[Savings]:
    """Return the limits of what decode steps could save by some changes."""
    case = Column[Savings](Text("Point"), lambda row: text(row.step["case"]))
    note = Text(
        "At most so much of the GPU time of a decode step, by the datasheet's roofline: limits, no "
        "forecasts."
    )
    shares = [Column(CHANGES[name], partial(Savings.share, change=name)) for name in changes]
    return Table(key, title, [case, *shares, *more], savings, note=note)


def sources(run: Run, method: tuple[Text, ...] = ()) -> Section:
    """Return what a prediction rests on: its runs, and the part of each tier; `method` after it."""
    request = run.manifest.recipe.get("predict") or {}
    shares = run.predicted_operators.groupby("tier")["seconds"].sum()
    total = float(shares.sum())
    runs = request.get("on")
    names: Value = Text("no recorded run")
    if isinstance(runs, list) and runs:
        names = [str(name) for name in runs]
    return Section(
        "sources",
        Text("What it rests on"),
        (
            Text(
                "Measured: {runs}. Datasheet: {datasheet}.",
                runs=names,
                datasheet=text(request.get("datasheet")),
            ),
            Table(
                "predicted-tiers",
                Text("Tiers"),
                [
                    Column[str](Text("Tier"), str),
                    Column(Text("Source"), lambda tier: TIERS[tier]),
                    Column(
                        Text("Of the predicted GPU time"),
                        lambda tier: Number(float(shares[tier]) / total, "fraction"),
                    ),
                ],
                sorted(map(str, shares.index)),
            ),
            *([Bullets(Text("How it was measured"), method)] if method else []),
        ),
    )
