"""Which predictions the first tables of docs/accuracy.md rest on, and what they say of them."""

from __future__ import annotations

import math

import pandas as pd
import pytest

from scripts.pages.accuracy.before import BEFORE
from scripts.pages.accuracy.glance import FROZEN, Answer, Sum, latest_of


def test_every_prediction_says_which_models_made_it_and_when() -> None:
    frozen = pd.read_csv(FROZEN, parse_dates=["written"])
    assert sorted(frozen["predicted"]) == sorted(path.stem for path in BEFORE.glob("*.csv"))
    assert frozen["models"].str.fullmatch("[0-9a-f]{8}").all()
    assert frozen["written"].notna().all()


def test_thelatest_of_go_back_until_two_engines_are_among_them() -> None:
    found = pd.DataFrame({
        "models": ["old", "before", "newest", "newest"],
        "written": pd.to_datetime(["2026-11-01", "2026-11-02", "2026-11-03", "2026-11-03"]),
        "truth": ["a", "b", "c", "c"],
    })  # fmt: skip
    chosen, models = latest_of(found)
    assert list(chosen["truth"]) == ["b", "c", "c"]
    assert models == "`before`, 02 Nov and later"
    chosen, models = latest_of(found.tail(2))  # no more are there
    assert list(chosen["truth"]) == ["c", "c"]
    assert models == "`newest`, 03 Nov"


@pytest.mark.parametrize(
    ("holds", "inside", "verdict"),
    [
        (True, 0.9, "yes"),
        (True, 0.8, "number only"),
        (False, 0.9, "interval only"),
        (False, 0.8, "no"),
        (True, math.nan, "yes"),
        (False, math.nan, "no"),
    ],
)
def test_a_number_is_trusted_where_it_is_near_and_its_interval_holds(
    holds: bool, inside: float, verdict: str
) -> None:
    latest = Sum(0.02, 9, 2, inside)
    answer = Answer("TPOT", "one GPU", "3%", holds, latest, "", latest, ("–", "–"))
    assert answer.verdict == verdict
