"""What is predicted from what by the models of today, and how far off it is."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from nsight_prof.orchestrator.predict.predicting import held_out
from nsight_prof.parsers.cells import Row, records
from nsight_prof.parsers.predict.corrections import LONG_TOKENS
from nsight_prof.parsers.predict.validation import HELD_OUT, IN_SAMPLE, KERNEL, summary
from scripts.pages.accuracy.captures import BATCH_CASE, recorded, validated
from scripts.pages.accuracy.first_tokens import waits
from scripts.pages.accuracy.questions import (
    H100_CLASSES,
    KERNELS_RUNS,
    KNOWN,
    OFFLINE,
    SERVER,
    SLICED,
    TRACE,
    Pair,
    Question,
)
from scripts.pages.accuracy.tables import error_numbers, markdown_table, percent
from scripts.pages.accuracy.texts import KNOWN_SERVER, LIGHT
from scripts.pages.host_floor import NEARLY, OPEN_LIMIT


def _by_length(row: Row) -> str:
    """Return how an error of a batch is called: TTFT by whether it has LONG_TOKENS of prompts."""
    case = BATCH_CASE.fullmatch(str(row["case"] or ""))
    if case is None or row["name"] != "ttft":
        return str(row["name"])
    long = int(case["batch"]) * int(case["prompt"]) >= LONG_TOKENS
    return "ttft, long" if long else "ttft, short"


def answered(work: Path, questions: Sequence[Question]) -> list[str]:
    """Return the sections of questions; copies of captures are made below `work`."""
    parts = []
    for question in questions:
        errors = pd.concat(
            validated(work, truth, sources)
            for sources, truths in question.pairs
            for truth in truths
        )
        parts += [f"\n## {question.title}\n", *map(_runs, question.pairs)]
        parts += [*([question.text.strip() + "\n"] if question.text else []), _sums(errors)]
    return parts


def known_server(work: Path) -> str:
    """Return the errors of the loads of a server whose light loads are known, and are not."""
    sources = (*KERNELS_RUNS, TRACE, OFFLINE)
    before = _loads(validated(work, SERVER, sources), HELD_OUT)
    after = _loads(validated(work, SERVER, (*sources, SERVER)), IN_SAMPLE)
    names = ("ttft", "tpot", "throughput")
    rows: list[tuple[str, ...]] = [
        (load, *(f"{found[load, name]:+.1%}" for name in names for found in (before, after)))
        for load in dict.fromkeys(load for load, _ in after)
    ]
    means = [
        sum(abs(error) for (_, of), error in found.items() if of == name) / len(rows)
        for name in names
        for found in (before, after)
    ]
    rows.append(("mean absolute error", *map(percent, means)))
    heads = [f"{name}, server {known}" for name in ("TTFT", "TPOT", "throughput")
             for known in ("not known", "known")]  # fmt: skip
    return "\n".join([KNOWN_SERVER, markdown_table(("load", *heads), rows)])


def waiting(work: Path) -> str:
    """Return where first tokens of open loops waited, and how fast the hosts of servers were."""
    rows: list[tuple[str, ...]] = []
    for sources, truths in KNOWN.pairs:
        others = tuple(recorded(work, source) for source in sources)
        for name in truths:
            server, errors = recorded(work, name), validated(work, name, sources)
            issue_s = held_out(server, others).predictor().host.issue_s
            found = errors[errors["sample"].eq(HELD_OUT) & errors["name"].eq("ttft")]
            rows += waits(server, issue_s, dict(zip(found["case"], found["error"], strict=True)))
    heads = ("server", "load", "TTFT, ms", "outside of the engine", "within", "host over the trace",
             "error of predicted TTFT")  # fmt: skip
    return markdown_table(heads, rows)


def _loads(errors: pd.DataFrame, sample: str) -> dict[tuple[str, str], float]:
    """Return the errors of loads that are not light, by load and quantity."""
    points = errors[errors["sample"].eq(sample) & errors["case"].notna()]
    clients = pd.to_numeric(points["case"].str.extract(r"^closed/c(\d+)/")[0])
    heavy = records(points[clients.isna() | clients.gt(LIGHT)])
    return {(str(row["case"]), str(row["name"])): float(row["error"]) for row in heavy}


def intervals(work: Path) -> str:
    """Return how many batches of models that were left out lie within the intervals of slices."""
    classes = {
        "one H200": [pair for question in SLICED for pair in question.pairs],
        **H100_CLASSES,
    }
    classes["all"] = [pair for pairs in classes.values() for pair in pairs]
    rows: list[tuple[str, ...]] = []
    for name, pairs in classes.items():
        both = [(sources, truth) for sources, truths in pairs for truth in truths]
        found = pd.concat([validated(work, truth, sources) for sources, truth in both])
        found = found[found["sample"].eq(HELD_OUT)]
        models = str(len({sources for sources, _ in both}))
        kinds = [_by_length(row) for row in records(found)]
        rows += [
            (name, str(row["what"]), models, str(row["n"]), *error_numbers(row))
            for row in records(summary(found.assign(what=kinds), ["what"]))
        ]
    heads = ("engine", "what", "models", "n", "MAPE", "90th percentile", "bias", "within interval")
    return markdown_table(heads, rows)


def _runs(pair: Pair) -> str:
    named = [", ".join(f"`{name}`" for name in names) for names in pair]
    return f"From {named[0]}; held against {named[1]}.\n"


def _sums(errors: pd.DataFrame) -> str:
    """Return held-out and in-sample errors by quantity, each kind of operator by itself."""
    names = errors["name"].where(~errors["scope"].eq(KERNEL), errors["group"])
    loads = _loops(errors)
    names = names.where(loads.eq(""), loads + ": " + names)
    found = records(summary(errors.assign(what=names), ["scope", "what", "sample"]))
    rows = []
    for row in (row for row in found if row["sample"] == HELD_OUT):
        key = row["scope"], row["what"]
        same = [r for r in found if (r["scope"], r["what"]) == key and r["sample"] == IN_SAMPLE]
        mape = percent(same[0]["mape"]) if same else "–"
        rows.append((row["scope"], row["what"], str(row["n"]), *error_numbers(row), mape))
    heads = ("of", "what", "n", "MAPE", "90th percentile", "bias", "within interval",
             "MAPE in sample")  # fmt: skip
    return markdown_table(heads, rows)


def _loops(errors: pd.DataFrame) -> pd.Series:
    """Return how the load of each error is called: closed or open, and within the capacity or not.

    The capacity is the highest measured throughput of the closed loops of a server.
    """
    cases, capacity = errors["case"].astype(str), {}
    closed = errors[cases.str.startswith("closed/") & errors["name"].eq("throughput")]
    for source, of_source in closed.groupby("source"):
        outputs = of_source["case"].str.extract(r"/o(\d+)$")[0].astype(float)
        capacity[source] = (of_source["measured"] / outputs).max()
    rates = cases.str.extract(r"^open/r([\d.]+)/")[0].astype(float)
    first = errors["source"].str.replace(r"-start-\d+$", "", regex=True)  # had closed loops
    within = rates.le(OPEN_LIMIT * NEARLY * first.map(capacity))
    names = within.map({True: "open loop, up to 80 % of the capacity", False: "open loop, beyond"})
    names = names.where(rates.notna(), "")
    return names.mask(cases.str.startswith("closed/"), "closed loop")
