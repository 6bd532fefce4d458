"""How long engines took to issue single prompts, and what of first tokens that explains."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pandas as pd

from nsight_prof.orchestrator.predict.plan import Plan, Settings, speed_of
from nsight_prof.orchestrator.predict.predicting import held_out
from nsight_prof.orchestrator.predict.sources import BUSY, Source
from nsight_prof.parsers.cells import Row, number
from nsight_prof.parsers.predict.corrections import LONG_TOKENS
from nsight_prof.parsers.predict.operators import FEW
from nsight_prof.parsers.predict.serving import Predictor, fitted_host, host_of, point
from scripts.pages.accuracy.captures import recorded
from scripts.pages.accuracy.questions import (
    BUSY_PAIRS,
    EXTENDED_PAIRS,
    H100_PAIRS,
    LATENT_PAIR,
    LOOKED_UP,
    NGRAM_PAIRS,
    SAME_PAIRS,
    SLICED,
    TIMED_PAIRS,
)
from scripts.pages.accuracy.tables import markdown_table, percent

FAST_LOOP_S = 42e-6
"""CPU time of the loop on an engine's thread below which the host has the faster of its speeds."""
LARGEST_GRAPH, LONG_PROMPT = 256, 1024
"""Tokens of the largest graph of the whole engines, and most of prompts that wait for the host."""
SHORT_TOKENS = 200
"""Most tokens of prompts that stand for those within CUDA graphs."""


LOOKED_UP_SIZES, LOOKED_UP_PROMPT = (1, 8, 32, 128), 512
"""Requests of a step that looks n-grams up, and tokens of their prompts in the whole engine."""


def issued(work: Path) -> str:
    """Return how long whole and narrow engines of one machine took to issue short prompts."""
    rows = []
    for (_, narrow), (whole,) in (*SAME_PAIRS, *TIMED_PAIRS):
        first, second = recorded(work, narrow), recorded(work, whole)
        told, served = _issued(first.table("host_steps")), _issued(second.table("host_steps"))
        here, there = speed_of(first), speed_of(second)
        assert here is not None, narrow
        assert there is not None, whole
        own = there.engine_s / here.engine_s
        rows.append((
            f"`{second.name}`", str(len(told)), *_spread(told["issue"]), str(len(served)),
            *_spread(served["issue"]), f"{1e3 * served['after'].median():.1f}",
            f"{served['issue'].median() / told['issue'].median():.2f}x",
            f"{there.loop_s / here.loop_s:.2f}x", "–" if pd.isna(own) else f"{own:.2f}x",
        ))  # fmt: skip
    heads = ("engine", "narrow: prompts", "least, ms", "median, ms", "whole: prompts", "least, ms",
             "median, ms", "step after it, ms", "whole over narrow", "loop beside",
             "loop on its thread")  # fmt: skip
    return markdown_table(heads, rows)


def _issued(steps: pd.DataFrame) -> pd.DataFrame:
    """Return the first two steps of each single short prompt: issue, after (s)."""
    sizes = steps["case"].str.extract(r"/b1/p(\d+)/").astype(float)[0]
    chosen = steps[sizes.le(SHORT_TOKENS) & ~steps["traced"].fillna(False).astype(bool)]
    wide = chosen[chosen["index"].le(1)].pivot_table("seconds", ["case", "repeat"], "index")
    return wide.dropna().rename(columns={0: "issue", 1: "after"})


def _spread(seconds: pd.Series[float]) -> tuple[str, str]:
    return f"{1e3 * seconds.min():.1f}", f"{1e3 * seconds.median():.1f}"


def kept_busy(work: Path) -> str:
    """Return how long narrow engines took to issue prompts with an idle and a busy GPU, and whole.

    Beyond CUDA graphs are prompts of 512 or 520 and of 1,000 or 1,024 tokens.
    """
    rows = []
    for (_, narrow), (whole,) in BUSY_PAIRS:
        for name in (narrow, whole):
            steps, loops = (recorded(work, name).table(of) for of in ("host_steps", "host_loops"))
            both = steps[steps["index"].eq(0)].merge(
                loops.groupby(["case", "repeat"])["loop_s"].mean(), on=["case", "repeat"]
            )
            sizes = both["case"].str.extract(r"/b1/p(\d+)/").astype(float)[0]
            least = 513 if name == narrow else LARGEST_GRAPH + 1
            kinds = {"within": sizes.le(SHORT_TOKENS), "beyond": sizes.between(least, LONG_PROMPT)}
            spins = both["case"].str.startswith(BUSY)
            for kind, chosen in kinds.items():
                for busy, of in both[chosen].groupby(spins):
                    gpu = "whole model" if name == whole else "busy" if busy else "idle"
                    label = f"`{name.rpartition('/')[2]}`"
                    rows.append((label, f"{kind} graphs", gpu, *_by_speed(of)))
    heads = ("engine", "prompts", "GPU", "n", "median, ms", "of these fast",
             "median where fast, ms", "where slow, ms")  # fmt: skip
    return markdown_table(heads, rows)


def _by_speed(prompts: pd.DataFrame) -> tuple[str, ...]:
    """Return how many prompts, their median, the part whose loop was fast, and medians of both."""
    fast = prompts["loop_s"].lt(FAST_LOOP_S)
    medians = (1e3 * of["seconds"].median() for of in (prompts[fast], prompts[~fast]))
    return (str(len(prompts)), f"{1e3 * prompts['seconds'].median():.1f}", f"{fast.mean():.0%}",
            *("–" if math.isnan(ms) else f"{ms:.1f}" for ms in medians))  # fmt: skip


def looked_up(work: Path) -> str:
    """Return how long each step of slices of several layers, and of the whole, waits for look-ups.

    That is what a step takes beside its kernels and gaps.
    """
    (base, _), (whole,) = NGRAM_PAIRS[0]
    truth, rows = recorded(work, whole), []
    waited: dict[int, float] = {}
    for layers, name in LOOKED_UP.items():
        run = recorded(work, name)
        planned = held_out(truth, (recorded(work, base), run))
        predictor = planned.predictor()
        known = predictor.exposed.by_requests
        waits = {size: known[size].value for size in LOOKED_UP_SIZES}
        for load, row in truth.points():
            if load.prompt == LOOKED_UP_PROMPT:
                step = predictor.seconds(load.steps()[1]).value
                waited[load.batch] = number(row["decode_step_s"]) - step + waits[load.batch]
        rows.append((str(layers), run, waits))
    rows.append(("all", truth, waited))
    table = [
        (name, *(f"{1e3 * waits[size]:.1f}" for size in LOOKED_UP_SIZES),
         f"{run.table('host_loops')['loop_s'].lt(FAST_LOOP_S).mean():.0%}")
        for name, run, waits in rows
    ]  # fmt: skip
    sizes = (f"{size} requests, ms" for size in LOOKED_UP_SIZES)
    heads = ("layers", *sizes, "loops that were fast")
    return markdown_table(heads, table)


def explained(work: Path) -> str:
    """Return errors of first tokens as predicted, and with the time to issue that engines timed."""
    pairs = [pair for question in SLICED for pair in question.pairs]
    pairs += [*H100_PAIRS, LATENT_PAIR, *EXTENDED_PAIRS, *SAME_PAIRS, *TIMED_PAIRS, *BUSY_PAIRS]
    found = pd.DataFrame(
        [
            row
            for sources, truths in pairs
            for name in truths
            for row in _errors(work, sources, name)
        ]
    )
    rows = []
    for name, of in [*found.groupby("engine"), ("all", found)]:
        numbers = [
            text for column in ("predicted", "explained") for text in
            (percent(of[column].abs().mean()), f"{of[column].mean():+.1%}")
        ]  # fmt: skip
        rows.append((str(name), str(len(of)), *numbers))
    heads = ("engine", "n", "MAPE, as predicted", "bias", "MAPE, issued as the engine timed it",
             "bias")  # fmt: skip
    return markdown_table(heads, rows)


def _errors(work: Path, sources: tuple[str, ...], name: str) -> Iterator[Row]:
    """Yield the errors of each single short prompt of an engine on one GPU, both ways."""
    truth = recorded(work, name)
    steps = truth.table("host_steps")
    if truth.shape is None or truth.shape.tensor_parallel > 1 or steps.empty:
        return
    predictor = held_out(truth, tuple(recorded(work, source) for source in sources)).predictor()
    for load, measured in truth.points():
        own = steps[steps["case"].eq(measured["case"]) & steps["index"].eq(0)]["seconds"]
        if load.batch == 1 and load.prompt < LONG_TOKENS and len(own):
            timed = _issued_in(predictor, float(own.median()))
            first = float(measured["ttft_p50_s"])
            errors = [point(p, load)["ttft_p50_s"] / first - 1 for p in (predictor, timed)]
            yield {"engine": f"`{truth.name}`", "predicted": errors[0], "explained": errors[1]}


def _issued_in(predictor: Predictor, seconds: float) -> Predictor:
    """Return the same with a host that issues each prompt in so many seconds."""
    unknown = dict.fromkeys(("issue_s", "issue_graph_s", "others_s", "others_graph_s"), math.nan)
    host = replace(predictor.host, eager_s=seconds, graph_s=seconds, mean_speed=False)
    host = host.scaled(unknown)
    moved = predictor.correction and replace(predictor.correction, host=1.0)
    return replace(predictor, host=host, correction=moved)


def further_requests(work: Path) -> str:
    """Return errors of steps of many requests, predicted from fewer layers of the same slice."""
    names = dict.fromkeys(sources[-1] for q in SLICED for sources, _ in q.pairs)
    names |= dict.fromkeys(sources[0] for sources, _ in H100_PAIRS)
    found = pd.DataFrame([row for name in names for row in _of_many(recorded(work, name))])
    rows = []
    for name, of in [*found.groupby("slice"), ("all", found)]:
        numbers = [
            text for column in ("further", "alone") for text in
            (percent(of[column].abs().mean()), f"{of[column].mean():+.1%}")
        ]  # fmt: skip
        rows.append((str(name), str(len(of)), *numbers))
    heads = ("slice", "n", "MAPE, with what further requests add", "bias",
             "MAPE, as with one request", "bias")  # fmt: skip
    return markdown_table(heads, rows)


def _of_many(source: Source) -> Iterator[Row]:
    """Yield errors of steps of the most layers of a slice of one GPU, by its fewest."""
    assert source.shape is not None, source.path
    planned = Plan(source.model, source.shape, (source,), Settings())
    points = {layers: (engine, of) for (layers, engine, _), of in
              planned.single_steps(planned.engine).items()}  # fmt: skip
    fewest, greatest = min(points), max(points)
    if source.shape.tensor_parallel > 1 or fewest == greatest:
        return
    few, many = (
        planned.as_measured(layers, points[layers][0], sliced=True) for layers in (fewest, greatest)
    )
    known = fitted_host(few, points[fewest][1])
    hosts = {"further": known, "alone": replace(known, each_s=0.0)}
    for load, _, measured in points[greatest][1]:
        if load.batch > FEW and measured > 0:
            errors: Row = {"slice": f"`{source.name}`"}
            for kind, host in hosts.items():
                there = replace(many, host=host_of(many.host, {fewest: host}, greatest))
                seconds = there.seconds(load.steps()[1]).value
                errors |= {kind: seconds / measured - 1}
            yield errors
