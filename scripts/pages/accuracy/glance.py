"""The first table of the page: what is asked of predictions, and what holds of those made before.

Tables of docs/accuracy.md; scripts/accuracy.py writes the page.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from scripts.pages.accuracy import causes
from scripts.pages.accuracy.bounds import REQUIRED, unknown_host_words
from scripts.pages.accuracy.committed import predicted_before, predicted_today
from scripts.pages.accuracy.tables import markdown_table, percent

ADDED, SPLIT = re.compile(r"-(?:eagle|ngram|lora)"), re.compile(r"-tp\d")
"""Parts of the names of truths: with a head, n-grams or adapters; over several GPUs."""
LATENCIES = re.compile(r"\b(?:ttft|tpot)\b")
"""Quantities that readers know in capitals."""
SEVERAL = "two GPUs"
GROUPS = (
    "one GPU",
    SEVERAL,
    "drafts or LoRA",
    "a server with a known event loop",
    "a server without one",
)
HEADS = (
    "what", "of", "asked", "off by, predicted before", "n", "holds", "models that hold it",
    "within interval", "off by today", "within interval today",
)  # fmt: skip
LEAST_COVERED = 0.85
"""Part of the truths that intervals of 90 % are to hold at least."""


class Answer(NamedTuple):
    """A row: what is predicted, of what, whether it holds what is asked, and the cells behind."""

    what: str
    group: str
    holds: bool
    cells: tuple[str, ...]


def glance(work: Path) -> str:
    """Return what is asked, how far off was what was predicted before, and what of it holds."""
    before = predicted_before(work)
    errors = pd.concat([found.assign(where=where) for where, found, _ in before])
    errors["group"] = [_group(*key) for key in zip(errors["where"], errors["truth"], strict=True)]
    answers = list(_answers(errors, predicted_today(work)))
    rows = [(a.what, a.group, *a.cells) for a in answers]
    found = [f"- **{word}**: {_listed(answers, holds)}." for word, holds in
             (("Holds", True), ("Does not hold", False))]  # fmt: skip
    return "\n".join([markdown_table(HEADS, rows), *found])


def _group(where: str, truth: str) -> str:
    one, several, added, known, unknown = GROUPS
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
    several = group == SEVERAL
    bounds = REQUIRED | ({"tpot": 0.05} if several else {})
    off = found["error"].abs()
    asked, *missed = unknown_host_words(what, float(off.mean()), bounds, several=several).split(",")
    means = off.groupby([found["truth"], found["where"]]).mean()
    words = [unknown_host_words(what, float(m), bounds, several=several) for m in means]
    reached = sum("missed" not in of_model for of_model in words)
    keys = dict.fromkeys(zip(found["truth"], found["case"], found["name"], strict=True))
    now = [known[key] for key in keys if key in known]
    cells = (
        asked, percent(float(off.mean())), str(len(off)), "no" if missed else "yes",
        f"{reached} of {len(means)}", _covered(found["covered"]),
        percent(float(np.abs([item.error for item in now]).mean())) if now else "–",
        _covered(pd.Series([item.covered for item in now])),
    )  # fmt: skip
    return Answer(LATENCIES.sub(lambda name: name[0].upper(), what), group, not missed, cells)


def _covered(truths: pd.Series[float]) -> str:
    """Return how many truths lie within intervals, and whether these are too few."""
    inside = float(truths.astype(float).mean())
    words = "–" if pd.isna(inside) else f"{inside:.0%}"
    return f"{words}, too few" if round(inside, 2) < LEAST_COVERED else words


def _listed(answers: list[Answer], holds: bool) -> str:
    """Return which quantities hold, or do not, with what each is of."""
    found = defaultdict(list)
    for answer in answers:
        if answer.holds == holds:
            found[answer.what].append(answer.group)
    return "; ".join(f"{what} ({', '.join(groups)})" for what, groups in found.items()) or "nothing"
