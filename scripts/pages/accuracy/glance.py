"""The first tables of the page: may a number be trusted, and on what evidence.

Tables of docs/accuracy.md; scripts/accuracy.py writes the page.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from scripts.pages import host_floor
from scripts.pages.accuracy import causes
from scripts.pages.accuracy.bounds import REQUIRED, unknown_host_words
from scripts.pages.accuracy.captures import ROOT
from scripts.pages.accuracy.committed import batch_errors, predicted_before, predicted_today
from scripts.pages.accuracy.questions import CARRIED_TITLE, ELSEWHERE, NINTH_CARRIED_TITLE
from scripts.pages.accuracy.tables import markdown_table, percent

FROZEN = ROOT / "captures" / "prediction" / "frozen.csv"
"""Of each prediction below before/: at which commit its models were frozen, and when it was
written."""
ADDED, SPLIT = re.compile(r"-(?:eagle|ngram|lora)"), re.compile(r"-tp\d")
"""Parts of the names of truths: with a head, n-grams or adapters; over several GPUs."""
LATENCIES = re.compile(r"\b(?:ttft|tpot)\b")
"""Quantities that readers know in capitals."""
SEVERAL = "two GPUs"
ENGINES = ("one GPU", SEVERAL, "drafts or LoRA")
FLOORS = dict(zip(ENGINES, ("", host_floor.SEVERAL, host_floor.ADDED), strict=True))
"""Group of engines -> that of their floors."""
SERVERS = ("a server with a known event loop", "a server without one")
GROUPS = (*ENGINES, *SERVERS)
CARRIED = (CARRIED_TITLE, NINTH_CARRIED_TITLE)
"""Engines of an H100 that were predicted from runs of an H200 and the datasheet."""
LEAST_COVERED = 0.85
"""Part of the truths that intervals of 90 % are to hold at least."""
LEAST_TRUTHS = 2
"""Engines or servers that the latest predictions of a row are held against at least."""
VERDICTS = {
    (True, True): "yes", (True, False): "number only",
    (False, True): "interval only", (False, False): "no",
}  # fmt: skip
"""Whether to trust a prediction: is the number as near as is asked, does the interval hold."""
EVIDENCE_HEADS = (
    "what", "of", "asked", "latest: off by", "n", "engines or servers", "within interval",
    "models of", "all: off by", "n", "within interval", "off by today", "within interval",
)  # fmt: skip


class Sum(NamedTuple):
    """Predictions as one number: mean absolute error, how many, of what, and held by intervals."""

    off: float
    points: int
    truths: int
    inside: float

    @property
    def covered(self) -> str:
        """How many lie within their interval."""
        return "–" if math.isnan(self.inside) else f"{self.inside:.0%}"


class Answer(NamedTuple):
    """A row: what is predicted, of what, what is asked, and how right predictions were."""

    what: str
    group: str
    asked: str
    holds: bool
    latest: Sum
    models: str
    all_before: Sum
    today: tuple[str, str]

    @property
    def verdict(self) -> str:
        """Whether to trust such a prediction; without intervals the number alone decides."""
        inside = self.latest.inside
        return VERDICTS[self.holds, self.holds if math.isnan(inside) else inside >= LEAST_COVERED]

    @property
    def cells(self) -> tuple[str, ...]:
        """The row of the evidence."""
        latest, everything = self.latest, self.all_before
        return (
            self.what, self.group, self.asked, percent(latest.off), str(latest.points),
            str(latest.truths), latest.covered, self.models, percent(everything.off),
            str(everything.points), everything.covered, *self.today,
        )  # fmt: skip


@cache
def errors_before(work: Path) -> pd.DataFrame:
    """Return the errors of all that was predicted before, with group, models and when written."""
    before = predicted_before(work)
    errors = pd.concat([found.assign(where=where) for where, found, _ in before])
    errors["group"] = [_group(*key) for key in zip(errors["where"], errors["truth"], strict=True)]
    frozen = pd.read_csv(FROZEN, parse_dates=["written"])
    errors = errors.merge(frozen, on="predicted", how="left", validate="many_to_one")
    unknown = errors.loc[errors["models"].isna(), "predicted"].unique()
    assert not len(unknown), f"{FROZEN} does not say which models predicted {unknown}"
    return errors


@cache
def answers(work: Path) -> tuple[Answer, ...]:
    """Return how right predictions are, by quantity and by what is predicted."""
    return tuple(_answers(errors_before(work), predicted_today(work)))


def glance(work: Path) -> str:
    """Return how far off to expect a prediction, and whether to trust it."""
    found = {(answer.what, answer.group): answer for answer in answers(work)}
    tables = []
    for head, groups in (("batches of requests", ENGINES), ("loads of a server", SERVERS)):
        rows = []
        for what in dict.fromkeys(what for what, group in found if group in groups):
            cells = (found.get((what, group)) for group in groups)
            rows.append((what, *("–" if a is None else f"{percent(a.latest.off)}, **{a.verdict}**"
                                 for a in cells)))  # fmt: skip
        tables.append(markdown_table((head, *groups), rows))
    return "\n".join(tables)


def carried(work: Path) -> str:
    """Return how far predictions of H100 engines lie that have runs of an H200 alone (T0)."""
    order = {what.lower(): number for number, what in enumerate(REQUIRED)}
    rows: list[tuple[str, ...]] = []
    frozen = pd.read_csv(FROZEN, parse_dates=["written"]).set_index("predicted")
    for title in CARRIED:
        errors = batch_errors(work, ELSEWHERE[title][0])
        when = f"{errors['predicted'].map(frozen['written']).max():%d %b}"
        for what, found in errors.groupby("what", sort=False):
            of = _sum(found)
            rows.append((LATENCIES.sub(lambda name: name[0].upper(), str(what)), when,
                         str(of.truths), str(of.points), percent(of.off),
                         percent(float(found["error"].abs().quantile(0.9))),
                         f"{found['error'].mean():+.1%}"))  # fmt: skip
    rows.sort(key=lambda row: order[row[0].lower()])
    heads = ("what", "written", "engines", "n", "off by", "90th percentile", "bias")
    return markdown_table(heads, rows)


def evidence(work: Path) -> str:
    """Return what each cell of the first tables rests on."""
    return markdown_table(EVIDENCE_HEADS, [answer.cells for answer in answers(work)])


def _group(where: str, truth: str) -> str:
    one, several, added = ENGINES
    known, unknown = SERVERS
    if where.startswith("server"):
        return unknown if where.endswith("not known") else known
    return added if ADDED.search(truth) else several if SPLIT.search(truth) else one


def _answers(errors: pd.DataFrame, known: Mapping[causes.Key, causes.Today]) -> Iterator[Answer]:
    for what in REQUIRED:
        for group in GROUPS:
            found = errors[errors["what"].eq(what) & errors["group"].eq(group)]
            if len(found):
                yield _answer(what, group, found, known)


def _answer(
    what: str, group: str, found: pd.DataFrame, known: Mapping[causes.Key, causes.Today]
) -> Answer:
    bounds = REQUIRED | ({"tpot": 0.05} if group == SEVERAL else {})
    newest, models = latest_of(found)
    latest = _sum(newest)
    asked, *missed = unknown_host_words(what, latest.off, bounds, FLOORS.get(group, "")).split(",")
    now = today_of(found, known)
    today = _sum(now.assign(truth=""))
    return Answer(
        LATENCIES.sub(lambda name: name[0].upper(), what), group, asked, not missed, latest, models,
        _sum(found), (percent(today.off), today.covered) if len(now) else ("–", "–"),
    )  # fmt: skip


def today_of(found: pd.DataFrame, known: Mapping[causes.Key, causes.Today]) -> pd.DataFrame:
    """Return the same points, each once, as the models of today predict them."""
    keys = dict.fromkeys(zip(found["truth"], found["case"], found["name"], strict=True))
    return pd.DataFrame([known[key] for key in keys if key in known], columns=causes.Today._fields)


def latest_of(found: pd.DataFrame) -> tuple[pd.DataFrame, str]:
    """Return those of the newest models, of as many as enough truths need, and which these are."""
    newest = found.groupby("models")["written"].max().sort_values(ascending=False)
    chosen, oldest = found, newest.index[-1]
    for number, models in enumerate(newest.index, 1):
        chosen, oldest = found[found["models"].isin(newest.index[:number])], models
        if chosen["truth"].nunique() >= LEAST_TRUTHS:
            break
    since = "" if oldest == newest.index[0] else " and later"
    return chosen, f"`{oldest}`, {newest[oldest]:%d %b}{since}"


def _sum(found: pd.DataFrame) -> Sum:
    inside = float(found["covered"].astype(float).mean())
    return Sum(float(found["error"].abs().mean()), len(found), found["truth"].nunique(), inside)
