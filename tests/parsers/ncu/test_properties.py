"""Any name, number and separator: what is written comes back, or the file is refused."""

import csv
import io
import math
import tempfile
from pathlib import Path

import pandas as pd
from hypothesis import given, settings
from hypothesis import strategies as st

from nsight_prof.parsers.errors import ArtifactUnreadable
from nsight_prof.parsers.ncu import read_csv
from nsight_prof.parsers.ncu.records import split_pages
from nsight_prof.parsers.numbers import find_marks

HEADER = ["ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream"]
HEADER += ["Block Size", "Grid Size", "Device", "CC"]
NAMES = st.text(
    st.characters(exclude_categories=("Cs", "Cc"), exclude_characters="\u2028\u2029"), min_size=1
)
NUMBERS = st.one_of(
    st.integers(0, 10**15).map(float),
    st.floats(0, 1e15).map(lambda x: round(x, 2)),
    st.floats(0, 1e6).map(lambda x: round(x, 6)),
)
LOCALES = st.sampled_from([(",", "."), (".", ","), ("\u202f", ","), ("'", "."), ("", ".")])
UNITS = st.sampled_from([("byte", 1.0), ("Mbyte", 1e6), ("usecond", 1e3), ("%", 1.0)])


def printed(number: float, decimals: int, locale: tuple[str, str]) -> str:
    """Print as ncu does: integers without decimals, all else with 2 or 6."""
    text = f"{number:,.0f}" if number == int(number) else f"{number:,.{decimals}f}"
    group, decimal = locale
    return text.replace(",", "_").replace(".", decimal).replace("_", group)


def page(rows: list[list[str]]) -> str:
    stream = io.StringIO()
    csv.writer(stream, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows(rows)
    return stream.getvalue()


def read(text: str) -> pd.DataFrame:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.csv"
        path.write_text(text, encoding="utf-8")
        capture = read_csv(path)
    assert capture.launches["profile"].tolist() == list(range(len(capture.launches)))
    frame = capture.metrics.merge(capture.launches[["profile", "name"]], on="profile")
    return frame.sort_values(["profile", "metric"], ignore_index=True)


@settings(max_examples=settings().max_examples // 2)
@given(
    names=st.lists(NAMES, min_size=1, max_size=3),
    numbers=st.lists(NUMBERS, min_size=3, max_size=3),
    locale=LOCALES,
    unit=UNITS,
    decimals=st.sampled_from([2, 6]),
)
def test_what_a_raw_page_prints_is_what_is_read(
    names: list[str],
    numbers: list[float],
    locale: tuple[str, str],
    unit: tuple[str, float],
    decimals: int,
) -> None:
    word, factor = unit
    texts = [printed(number, decimals, locale) for number in numbers]
    metrics = ["a__x.sum", "b__x.sum", "c__x.sum"]
    records = [
        [str(i), "1", "app", "h", name, "1", "7", "(1, 1, 1)", "(2, 1, 1)", "0", "9.0", *texts]
        for i, name in enumerate(names)
    ]
    text = page([HEADER + metrics, [""] * len(HEADER) + [word] * 3, *records])
    try:
        frame = read(text)
    except ArtifactUnreadable:
        # Only where nothing tells the decimal mark.
        assert not any("." in t and "," in t for t in texts)
        return
    assert frame["name"].tolist() == [name for name in names for _ in metrics]
    for got, number in zip(frame["value"], numbers * len(names), strict=True):
        whole = number == int(number)
        rounding = 0.0 if whole else 0.5 * 10.0**-decimals
        assert abs(got - number * factor) <= rounding * factor + abs(number * factor) * 1e-12


@settings(max_examples=settings().max_examples // 2)
@given(number=NUMBERS, others=st.lists(NUMBERS, max_size=4), locale=LOCALES)
def test_a_number_is_read_as_itself_or_its_file_is_refused(
    number: float, others: list[float], locale: tuple[str, str]
) -> None:
    texts = [printed(n, 2, locale) for n in (number, *others)]
    try:
        marks = find_marks(texts, "x.csv")
    except ArtifactUnreadable:
        return
    got = marks.parse(texts[0])
    assert got is not None
    assert math.isclose(got, float(f"{number:.2f}"), rel_tol=1e-12)


@settings(max_examples=settings().max_examples // 2)
@given(
    values=st.lists(NUMBERS, min_size=1, max_size=4),
    names=st.lists(NAMES, min_size=4, max_size=4),
    cut=st.integers(0, 400),
)
def test_a_cut_file_never_gives_another_number(
    values: list[float], names: list[str], cut: int
) -> None:
    columns = [*HEADER, "Section Name", "Metric Name", "Metric Unit", "Metric Value"]
    records = [
        [str(i), "1", "app", "h", name, "1", "7", "(1, 1, 1)", "(2, 1, 1)", "0", "9.0"]
        + ["S", "a__x.sum", "byte", printed(value, 2, (",", "."))]
        for i, (value, name) in enumerate(zip(values, names, strict=False))
    ]
    whole = page([columns, *records])
    try:
        frame = read(whole[: len(whole) - cut])
    except ArtifactUnreadable:
        return
    for got, number in zip(frame["value"], values, strict=False):
        assert math.isclose(got, float(f"{number:.2f}"), rel_tol=1e-12)


@settings(max_examples=settings().max_examples // 2)
@given(st.text(max_size=300), st.binary(max_size=300))
def test_any_text_or_bytes_are_read_or_refused(text: str, data: bytes) -> None:
    split_pages(text)
    for content in (data, (page([[*HEADER, "a__x.sum"]]) + text).encode("utf-8", "replace")):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "x.csv"
            path.write_bytes(content)
            try:
                read_csv(path)
            except ArtifactUnreadable:
                continue
