"""What the table of all measures says is reached, and what it rests on."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from scripts.pages.accuracy import asked
from scripts.pages.accuracy.asked import Measure

ENGINE = "one GPU"


def rows_of(monkeypatch: pytest.MonkeyPatch, found: list[float], item: Measure) -> list[str]:
    """Return the row of a measure where predictions were off by `found`."""
    frame = pd.DataFrame({"error": found, "what": "throughput", "group": ENGINE, "covered": 1.0})
    frame = frame.assign(
        truth=[str(number) for number in range(len(found))], case="", name="throughput",
        models="one", written=pd.Timestamp("2026-11-28"),
    )  # fmt: skip
    monkeypatch.setattr(asked, "errors_before", lambda _: frame)
    monkeypatch.setattr(asked, "predicted_today", lambda _: {})
    (row,) = asked._measured(Path(), item)
    return list(row)


@pytest.mark.parametrize(
    ("found", "reached"),
    [
        ([0.02, -0.04], "yes"),
        ([0.02, -0.12], "missed"),  # the mean is too far
        ([0.0, 0.0, 0.0, -0.12], "missed"),  # one is
    ],
)
def test_a_measure_is_reached_where_its_mean_and_its_worst_are_near(
    monkeypatch: pytest.MonkeyPatch, found: list[float], reached: str
) -> None:
    item = Measure("throughput", ("throughput",), (ENGINE,), 0.05, "worst", 0.10)
    assert rows_of(monkeypatch, found, item)[-1] == reached


def test_points_that_others_recorded_are_nearer_than_by_aiconfigurator() -> None:
    points = pd.read_csv(asked.SILICON)
    both = points.dropna(subset=["their_tpot", "their_ttft"])
    assert 0 < len(both) < len(points)  # those that only one tool predicts do not count
    for name, row in zip(("tpot", "ttft"), asked._silicon(), strict=True):
        assert str(len(both)) in row[1]
        off = (both[name] / both[f"silicon_{name}_ms"] - 1).abs().mean()
        assert row[5].startswith(f"{off:.1%}")
        assert row[-1] == "yes"
