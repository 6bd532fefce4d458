"""Real kernel summaries in every form that people have them: the same values, or a refusal."""

import codecs
import csv
import io
import lzma
import random
import tempfile
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from nsight_prof.orchestrator.imports.recognize import Kind, recognize
from nsight_prof.parsers.errors import ArtifactUnreadable
from nsight_prof.parsers.nsys.kern_sum_csv import KernelSummary, read_kernel_summary

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures" / "nsys_stats"
ROWS = 12  # the longest kernels of a summary; names and numbers of more rows are like theirs
NS = {"ns": 1, "us": 1e3, "ms": 1e6}
TOTAL, CALLS, NAME = "Total Time (ns)", "Instances", "Name"
# Decimal mark and group of digits: C, English, German, French, Swiss, Indian left out.
LOCALES = [(".", ""), (".", ","), (",", "."), (",", "\u202f"), (",", " "), (".", "\u2019")]
ENCODINGS = {
    "utf-8": lambda text: text.encode(),
    "utf-8 with a mark": lambda text: codecs.BOM_UTF8 + text.encode(),
    "utf-16 le": lambda text: codecs.BOM_UTF16_LE + text.encode("utf-16-le"),
    "utf-16 be": lambda text: codecs.BOM_UTF16_BE + text.encode("utf-16-be"),
}
BANNERS = [
    "",
    "Generating SQLite file t.sqlite\nProcessing [t.sqlite] with [kern_sum.py]...\n",
    "epoch 1\repoch 2\nloss = 0,5\n\n ** CUDA GPU Kernel Summary (cuda_gpu_kern_sum):\n\n",
]
# What the versions of nsys call the columns.
OLD_HEADS = {
    "Time (%)": "Time(%)", "Avg (ns)": "Average", "Min (ns)": "Minimum", "Max (ns)": "Maximum",
    "Med (ns)": "Median", "StdDev (ns)": "StdDev",
}  # fmt: skip
PHASES = [Phase.explicit, Phase.generate]  # to shrink an example takes minutes

Row = dict[str, str]


@dataclass(frozen=True)
class Form:
    """How a table is written."""

    layout: str
    locale: tuple[str, str]
    unit: str
    old: bool
    order: int
    without: frozenset[str]
    encoding: str
    newline: str
    banner: str


FORMS = st.builds(
    Form,
    layout=st.sampled_from(["csv", "tsv", "semicolon", "table"]),
    locale=st.sampled_from(LOCALES),
    unit=st.sampled_from(list(NS)),
    old=st.booleans(),
    order=st.integers(0, 5),
    without=st.sets(
        st.sampled_from(["Time (%)", "Avg (ns)", "Med (ns)", "Min (ns)", "Max (ns)", "StdDev (ns)"])
    ).map(frozenset),
    encoding=st.sampled_from(list(ENCODINGS)),
    newline=st.sampled_from(["\n", "\r\n"]),
    banner=st.sampled_from(BANNERS),
)


@cache
def summary(name: str) -> list[Row]:
    """The longest kernels of a summary of nsys 2025, per cents of the whole left as they are."""
    text = lzma.decompress((FIXTURES / name).read_bytes()).decode()
    return list(csv.DictReader(io.StringIO(text)))[:ROWS]


SUMMARIES = st.sampled_from(sorted(p.name for p in FIXTURES.glob("*__cuda_gpu_kern_sum.csv.xz")))


def printed(text: str, head: str, form: Form) -> str:
    """One cell in the form's unit and locale; digits are grouped where the locale has groups."""
    if head == NAME or not text:
        return text
    scaled = "(ns)" in head and form.unit != "ns"
    number = float(text) / (NS[form.unit] if scaled else 1)
    decimals = 3 if scaled else len(text.partition(".")[2])
    decimal, group = form.locale
    plain = f"{number:,.{decimals}f}".replace(",", "_").replace(".", decimal)
    return plain.replace("_", group)


def heads_of(rows: list[Row], form: Form) -> list[str]:
    heads = [head for head in rows[0] if head not in form.without]
    random.Random(form.order).shuffle(heads)
    # A text table ends with the name, which may be longer than its column.
    return [*(h for h in heads if h != NAME), NAME] if form.layout == "table" else heads


def head_text(head: str, form: Form) -> str:
    if form.old and form.unit == "ns":
        return OLD_HEADS.get(head, head)
    return head.replace("(ns)", f"({form.unit})")


def table(rows: list[Row], form: Form) -> str:
    """The text of a table, without what stands around it."""
    heads = heads_of(rows, form)
    cells = [[head_text(head, form) for head in heads]]
    cells += [[printed(row[head], head, form) for head in heads] for row in rows]
    if form.layout != "table":
        stream = io.StringIO()
        mark = {"csv": ",", "tsv": "\t", "semicolon": ";"}[form.layout]
        csv.writer(stream, delimiter=mark, lineterminator="\n").writerows(cells)
        return stream.getvalue()
    widths = [max(len(line[i]) for line in cells) for i in range(len(heads) - 1)] + [12]
    cells.insert(1, ["-" * width for width in widths])
    lines = [
        "  ".join([*(c.rjust(w) for c, w in zip(line, widths[:-1], strict=False)), line[-1]])
        for line in cells
    ]
    return "\n".join(f" {line}" for line in lines) + "\n"


def read(text: str, form: Form) -> KernelSummary:
    """Read what is written; a refusal names the file. Nothing but a refusal may be raised."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "mine.txt"
        whole = (form.banner + text).replace("\n", form.newline)
        path.write_bytes(ENCODINGS[form.encoding](whole))
        try:
            assert recognize(path) is Kind.KERN_SUM
            return read_kernel_summary(path)
        except ArtifactUnreadable as error:
            if "mine.txt" not in error.message:
                raise AssertionError(f"names no file: {error.message}") from error
            raise


def expected(rows: list[Row]) -> list[tuple[str, float, int]]:
    return sorted((row[NAME], float(row[TOTAL]), int(row[CALLS])) for row in rows)


def same(got: KernelSummary, rows: list[Row], form: Form) -> None:
    """All kernels have the values that were written, to the digits that were printed."""
    columns = got.kernels[["name", "total_ns", "calls"]]
    found = sorted(columns.itertuples(index=False, name=None))
    rounding = 0.51 if form.unit == "ns" else 0.00051 * NS[form.unit]
    for (name, total, calls), (other, ns, count) in zip(found, expected(rows), strict=True):
        assert (name, calls) == (other, count)
        assert abs(total - ns) <= rounding


@settings(max_examples=settings().max_examples // 3, phases=PHASES)
@given(name=SUMMARIES, form=FORMS)
def test_a_real_summary_in_any_form_has_the_same_values(name: str, form: Form) -> None:
    rows = summary(name)
    try:
        got = read(table(rows, form), form)
    except ArtifactUnreadable:
        # Per cents always tell the decimal mark, and so does a locale without groups.
        assert "Time (%)" in form.without
        return
    same(got, rows, form)
    assert not got.notes


@settings(max_examples=settings().max_examples // 3, phases=PHASES)
@given(name=SUMMARIES, form=FORMS, ranks=st.integers(2, 4), close=st.booleans())
def test_tables_of_several_ranks_are_added_up_and_their_lines_named(
    name: str, form: Form, ranks: int, close: bool
) -> None:
    """Whether or not an empty line parts them; each rank has other times."""
    rows = summary(name)
    parts = [
        [row | {TOTAL: str(int(row[TOTAL]) * (rank + 1))} for row in rows] for rank in range(ranks)
    ]
    text = ("" if close and form.layout == "table" else "\n").join(table(p, form) for p in parts)
    try:
        got = read(text, form)
    except ArtifactUnreadable:
        assert "Time (%)" in form.without
        return
    assert got.kernels["calls"].sum() == ranks * sum(int(row[CALLS]) for row in rows)
    total = sum(int(row[TOTAL]) for part in parts for row in part)
    assert got.kernels["total_ns"].sum() == pytest.approx(
        total, abs=len(rows) * ranks * (0.51 if form.unit == "ns" else 0.00051 * NS[form.unit])
    )
    assert f"{ranks} kernel summaries" in got.notes[0]


@settings(max_examples=settings().max_examples // 3, phases=PHASES)
@given(name=SUMMARIES, form=FORMS, lost=st.sampled_from([TOTAL, CALLS, NAME]))
def test_a_table_without_a_needed_column_is_refused(name: str, form: Form, lost: str) -> None:
    rows = [{head: text for head, text in row.items() if head != lost} for row in summary(name)]
    form = replace(form, layout="csv")
    with pytest.raises(ArtifactUnreadable):
        read(table(rows, form), form)


@settings(max_examples=settings().max_examples // 3, phases=PHASES)
@given(name=SUMMARIES, form=FORMS, part=st.floats(0.05, 1), lost=st.sampled_from([TOTAL, CALLS]))
def test_a_cut_or_holed_table_never_gives_another_number(
    name: str, form: Form, part: float, lost: str
) -> None:
    """Cut at any place, as by a full disk; or with one needed cell empty."""
    rows = summary(name)
    with pytest.raises(ArtifactUnreadable):
        read(table([*rows[:-1], rows[-1] | {lost: ""}], form), form)
    form = replace(form, layout="table")  # its last column is the name, which has no digits
    text = table(rows, form)
    try:
        got = read(text[: int(len(text) * part)], form)
    except ArtifactUnreadable:
        return
    same(got, [row | {NAME: got_name(got, row)} for row in rows[: len(got.kernels)]], form)


def got_name(got: KernelSummary, row: Row) -> str:
    """The name of a row as it was read: that of the last one may be cut."""
    found = [name for name in got.kernels["name"] if row[NAME].startswith(name)]
    return str(max(found, key=len))
