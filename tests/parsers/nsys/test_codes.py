"""Sums and statistics over codes, part by part."""

import numpy as np
import pandas as pd
import pytest

from nsight_prof.parsers.nsys.sqlite import codes


@pytest.mark.parametrize("at_once", [1, 5, 1 << 20])
def test_statistics_do_not_depend_on_the_size_of_the_parts(
    monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr(codes, "_SORTED", at_once)
    monkeypatch.setattr(codes, "STEP", 7)
    random = np.random.default_rng(1)
    code = random.choice([1, 2, 5], 60).astype(np.int16)
    value = random.integers(0, 1 << 33, 60)
    groups = pd.Series(value).groupby(code)
    expected = groups.agg(["count", "sum", "mean", "median", "min", "max", "std"])
    found = codes.statistics(code, value, 7)
    assert found["count"].tolist() == [0, *expected["count"][:2], 0, 0, expected["count"][5], 0]
    for ours, theirs in zip(found.columns, expected.columns, strict=True):
        assert found.loc[expected.index, ours].to_numpy() == pytest.approx(expected[theirs])
    assert found.loc[[0, 3, 4, 6], "median"].isna().all()


def test_columns_get_wider_when_a_value_needs_it() -> None:
    columns = codes.Columns(10, np.uint32, np.int16)
    columns.append(codes.short(np.array([1, 2])), np.array([1, 2], np.int16))
    columns.append(codes.short(np.array([5 << 32])), codes.narrow(np.array([40_000]), 40_001))
    durations, numbers = columns.finish()
    assert durations.tolist() == [1, 2, 5 << 32]
    assert numbers.tolist() == [1, 2, 40_000]


def test_rows_are_coded_in_order_of_appearance() -> None:
    found, rows = codes.factor([np.array([3, 1, 3, 1]), np.array([0, 0, 0, 9])])
    assert found.tolist() == [0, 1, 0, 2]
    assert rows == [(3, 0), (1, 0), (1, 9)]
    book: codes.Codebook[tuple[int, ...]] = codes.Codebook()
    book.code((1, 9))
    assert book.translate(found, rows).tolist() == [1, 2, 1, 0]
