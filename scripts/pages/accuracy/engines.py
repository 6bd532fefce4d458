"""Single quantities of recorded engines beside their predictions: KV cache, host, operators."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

import pandas as pd

from nsight_prof.orchestrator.predict.predicting import errors, held_out
from nsight_prof.parsers.cells import records
from nsight_prof.parsers.predict.costs import Datasheet, datasheet
from nsight_prof.parsers.predict.measured import LATER_RANK, exact_costs
from nsight_prof.parsers.predict.operators import Kind, Step, operators
from nsight_prof.parsers.predict.validation import HELD_OUT, KERNEL, summary
from scripts.pages.accuracy.captures import (
    BATCH_CASE,
    ROOT,
    recorded,
    uncorrected,
    uncorrected_plan,
)
from scripts.pages.accuracy.questions import (
    ADAPTED_ENGINES,
    EXCHANGED,
    EXPERTS,
    EXTENDED_PAIRS,
    H100_PAIRS,
    LATENT_PAIR,
    NGRAM_PAIRS,
    QUESTIONS,
    SLICED,
    SPLIT,
    SPLIT_H200,
    WHOLE,
)
from scripts.pages.accuracy.tables import error_numbers, markdown_table, percent

MEMSETS = ROOT / "captures" / "prediction" / "memsets-h200"
"""What scripts/probe_memsets.py measured."""


@cache
def caches(work: Path) -> list[tuple[str, float, int, float]]:
    """Return how many tokens the KV caches of engines hold, as predicted, and the error."""
    pairs = [*(pair for q in (*SLICED, EXPERTS) for pair in q.pairs), *H100_PAIRS, LATENT_PAIR]
    pairs += [*EXTENDED_PAIRS, SPLIT_H200, *NGRAM_PAIRS]
    rows = []
    for sources, truths in pairs:
        for name in truths:
            truth = recorded(work, name)
            engine, shape = truth.engines[0], truth.full_shape
            assert shape is not None, truth.path
            planned = held_out(truth, tuple(recorded(work, source) for source in sources))
            part = engine["gpu_memory_utilization"]
            planned.settings = replace(planned.settings, utilization=part)
            held = engine["kv_blocks"] * engine["block_size"] // shape.cache_groups
            found = planned.kv_tokens(planned.engine)
            rows.append((name, held, found, found / held - 1))
    return rows


def kv_cache(work: Path) -> str:
    """Return how many tokens the KV caches of engines hold, and as predicted from their slices."""
    rows = [
        (name.rpartition("/")[2].removeprefix("baseline-"), f"{held:,.0f}", f"{found:,}",
         f"{error:+.1%}")
        for name, held, found, error in caches(work)
    ]  # fmt: skip
    return markdown_table(("engine", "tokens", "predicted", "error"), rows)


def host_adds(work: Path) -> str:
    """Return what the host adds to short prompts: as predicted of a slice, and in the engine."""
    rows = []
    for sources, truths in (*QUESTIONS[4].pairs, *H100_PAIRS):
        planned = uncorrected_plan(work, truths[0], sources)
        predictor, added = planned.predictor(), defaultdict(list)
        for row in uncorrected(work, truths[0], sources):
            case = BATCH_CASE.fullmatch(str(row["case"] or ""))
            prompt = int(case["prompt"]) if case and case["batch"] == "1" else math.inf
            if row["name"] == "ttft" and prompt < planned.engine.captured[-1]:
                gpu_s = predictor.on_gpu(Step(prefill=((int(prompt), 0),))).value
                for of in ("predicted", "measured"):
                    added[of].append(1e3 * (float(row[of]) - gpu_s))
        ends = (f"{min(added[of]):.1f} to {max(added[of]):.1f}" for of in added)
        if added:
            rows.append((truths[0].removeprefix(WHOLE), *ends))
    heads = ("engine", "predicted from its slice, ms", "in the whole engine, ms")
    return markdown_table(heads, rows)


def collectives(work: Path) -> str:
    """Return what two ranks exchange by themselves, and in a recorded engine, by its steps."""
    bench, engine = recorded(work, EXCHANGED).table("bench"), recorded(work, SPLIT)
    trace, rows = engine.trace, []
    assert trace is not None
    costs = exact_costs(Datasheet(datasheet(engine.gpu_name)), bench, trace.shape)
    for traced in trace.steps:
        for item in operators(trace.shape, traced.step, traced.rows):
            if item.kind is Kind.COLLECTIVE:
                measured = traced.seconds[item.name] / item.calls
                waits = LATER_RANK if item.name == "all_reduce" else 1.0
                found = costs.of(item).seconds / waits
                times = (f"{1e6 * value:.1f}" for value in (measured, found))
                rows.append((traced.kind, item.name, *times, f"{found / measured - 1:+.1%}"))
    heads = ("step", "collective", "in the engine, us", "by predict-ops, us", "error")
    return markdown_table(heads, rows)


def memsets() -> str:
    """Return what a memset before a kernel of a CUDA graph takes without nsys, and in its trace."""
    alone = json.loads((MEMSETS / "alone.json").read_text(encoding="utf-8"))
    nodes = pd.read_csv(MEMSETS / "trace.csv.xz")
    kernels = nodes[nodes["node"].eq("kernel")]
    after = kernels["start_ns"].diff()
    before_memset = nodes["node"].shift().eq("memset")[kernels.index]
    traced = [after[before_memset == cleared].median() / 1e3 for cleared in (False, True)]
    times = [(alone["kernel_us"], alone["with_memset_us"]), traced]
    rows = [(name, f"{a:.2f}", f"{b:.2f}", f"{b - a:.2f}")
            for name, (a, b) in zip(("without", "under"), times, strict=True)]  # fmt: skip
    heads = ("nsys", "kernel to kernel, us", "with a memset between, us", "memset, us")
    return markdown_table(heads, rows)


def adapted(work: Path) -> str:
    """Return what steps with adapters take without nsys, over what its traces sum to."""
    rows = []
    for traced, served in ADAPTED_ENGINES.items():
        engine = recorded(work, served)
        planned = uncorrected_plan(work, served, (traced,))
        predictor = planned.predictor()
        predictor.host = replace(predictor.host, untraced=1.0, decode_s=math.nan)
        ratios = [
            row["decode_step_s"] / predictor.seconds(load.steps()[1]).value
            for load, row in engine.points()
            if load.prompt * load.batch <= planned.engine.batched_tokens
        ]
        found = pd.Series(ratios)
        ends = (f"{value:.3f}" for value in (found.median(), found.min(), found.max()))
        rows.append((f"`{traced}`", f"`{served}`", len(found), *ends))
    heads = ("traced", "served", "points", "median ratio", "lowest", "highest")
    return markdown_table(heads, rows)


def operators_of(work: Path, runs: Mapping[str, tuple[tuple[str, ...], str]]) -> str:
    """Return the errors of the operators of slices: what they are predicted from -> the slice."""
    rows: list[tuple[str, ...]] = []
    for name, (sources, slice_name) in runs.items():
        truth, others = recorded(work, slice_name), tuple(recorded(work, run) for run in sources)
        every = pd.DataFrame(list(errors(held_out(truth, others), truth, HELD_OUT)))
        found = every[every["scope"].eq(KERNEL)]
        found = pd.concat([found.assign(group="all"), found])
        rows += [
            (name, str(row["group"]), str(row["n"]), *error_numbers(row)[:3])
            for row in records(summary(found, ["group"]))
        ]
    heads = ("sources", "kernels", "n", "MAPE", "90th percentile", "bias")
    return markdown_table(heads, rows)


def operator_shares(errors: pd.DataFrame) -> str:
    """Return the error of each operator of recorded steps, and what it makes of the step."""
    held_out = errors[errors["scope"].eq(KERNEL) & errors["sample"].eq(HELD_OUT)]
    steps = held_out.groupby(["source", "kind"])["measured"].transform("sum")
    moved = (held_out["predicted"] - held_out["measured"]) / steps
    rows = [
        (row["source"], row["kind"], row["name"], percent(row["part"]), f"{row['error']:+.1%}",
         f"{row['moved']:+.1%}")
        for row in records(held_out.assign(part=held_out["measured"] / steps, moved=moved))
    ]  # fmt: skip
    heads = ("run", "step", "operator", "of the kernel time", "error", "of the step")
    return markdown_table(heads, rows)
