"""Real details pages in every form that people have them: the same values, or a refusal."""

import codecs
import csv
import io
import lzma
import random
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from nsight_prof.orchestrator.imports.recognize import Kind, recognize
from nsight_prof.parsers.errors import ArtifactUnreadable
from nsight_prof.parsers.ncu import NcuCapture, read_csv

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures" / "ncu_rules"
PAGES = st.sampled_from(["copy_blocked.csv.xz", "stencil.details.csv.xz", "stream.details.csv.xz"])
PHASES = [Phase.explicit, Phase.generate]  # to shrink an example takes minutes
# Decimal mark and group of digits: C, English, German, French, Swiss.
LOCALES = [(".", ""), (".", ","), (",", "."), (",", "\u202f"), (",", " "), (".", "\u2019")]
ENCODINGS = {
    "utf-8": lambda text: text.encode(),
    "utf-8 with a mark": lambda text: codecs.BOM_UTF8 + text.encode(),
    "utf-16 le": lambda text: codecs.BOM_UTF16_LE + text.encode("utf-16-le"),
    "utf-16 be": lambda text: codecs.BOM_UTF16_BE + text.encode("utf-16-be"),
}
OPTIONAL = ["Process Name", "Host Name", "Context", "Stream", "Device", "CC", "Rule Name"]
UNIT, VALUE, SECTION = "Metric Unit", "Metric Value", "Section Name"

Row = dict[str, str]


@dataclass(frozen=True)
class Form:
    """How a page is written."""

    locale: tuple[str, str]
    order: int
    without: frozenset[str]
    encoding: str
    newline: str
    launches: int


FORMS = st.builds(
    Form,
    locale=st.sampled_from(LOCALES),
    order=st.integers(0, 9),
    without=st.sets(st.sampled_from(OPTIONAL)).map(frozenset),
    encoding=st.sampled_from(list(ENCODINGS)),
    newline=st.sampled_from(["\n", "\r\n"]),
    launches=st.integers(1, 3),
)


@cache
def rows(name: str) -> list[Row]:
    """The metrics of the first launch of a real page, without what rules said."""
    text = lzma.decompress((FIXTURES / name).read_bytes()).decode("utf-8-sig")
    lines = [line for line in text.splitlines() if line.startswith('"')]
    found = list(csv.DictReader(lines))
    first = [row for row in found if row["ID"] == found[0]["ID"] and row["Metric Name"]]
    return [{k: v or "" for k, v in row.items() if k is not None} for row in first]


def printed(text: str, locale: tuple[str, str]) -> str:
    """A value in a locale; texts and n/a stay."""
    try:
        number = float(text.replace(",", ""))
    except ValueError:
        return text
    plain = f"{number:,.{len(text.partition('.')[2])}f}".replace(",", "_")
    return plain.replace(".", locale[0]).replace("_", locale[1])


def page(found: list[Row], form: Form) -> str:
    """A CSV page of several launches of the kernel, with its columns in another order."""
    heads = [head for head in found[0] if head not in form.without]
    first, rest = heads[:2], heads[2:]  # a record is known by the numbers that it begins with
    random.Random(form.order).shuffle(rest)
    stream = io.StringIO()
    writer = csv.writer(stream, quoting=csv.QUOTE_ALL, lineterminator="\n")
    writer.writerow(first + rest)
    for launch in range(form.launches):
        for row in found:
            cells = row | {"ID": str(launch), VALUE: printed(row[VALUE], form.locale)}
            writer.writerow([cells[head] for head in first + rest])
    return stream.getvalue()


def tables(found: list[Row], form: Form, layout: str) -> str:
    """The same as text tables: of today, of 2020 (no heads), or averages over launches."""
    averages = layout == "averages"
    behind = {
        "today": " (8, 1, 1)x(64, 1, 1), Context 1, Stream 7, Device 0, CC 8.6",
        "2020": ", 2020-Mar-20 14:53:13, Context 1, Stream 7",
        "averages": " (8, 1, 1)x(64, 1, 1), Device 0, CC 8.6, Invocations 3",
    }[layout]
    lines = ["==PROF== Connected to process 7 (/x/app)", "[7] app@127.0.0.1"]
    for _ in range(form.launches):
        lines.append(f"  f(int){behind}")
        for section in dict.fromkeys(row[SECTION] for row in found):
            rule = f"    {'-' * 80} {'-' * 20} {'-' * 20}" + f" {'-' * 20} {'-' * 20}" * averages
            values = ["Minimum", "Maximum", "Average"] if averages else [VALUE]
            head = f"    {'Metric Name':80} {UNIT:>20}" + "".join(f" {v:>20}" for v in values)
            lines += [f"    Section: {section}", rule, *([] if layout == "2020" else [head, rule])]
            for row in (row for row in found if row[SECTION] == section):
                value = printed(row[VALUE], form.locale)
                others = f" {printed('0.25', form.locale):>20}" * 2 * averages
                cells = f"{row['Metric Name']:80} {row[UNIT]:>20}{others} {value:>20}"
                lines.append(f"    {cells}")
            lines += [rule, ""]
    return "\n".join(lines) + "\n"


def read(text: str, form: Form) -> NcuCapture:
    """Read what is written; a refusal names the file. Nothing but a refusal may be raised."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "mine.txt"
        path.write_bytes(ENCODINGS[form.encoding](text.replace("\n", form.newline)))
        try:
            assert recognize(path) is Kind.NCU_TEXT
            return read_csv(path)
        except ArtifactUnreadable as error:
            if "mine.txt" not in error.message:
                raise AssertionError(f"names no file: {error.message}") from error
            raise


def values(capture: NcuCapture) -> list[dict[str, float]]:
    """The numbers of each launch."""
    known = capture.metrics.dropna(subset="value")
    return [
        dict(zip(part["metric"], part["value"], strict=True))
        for _, part in known.groupby("profile")
    ]


PLAIN = Form((".", ""), 0, frozenset(), "utf-8", "\n", 1)


@settings(max_examples=settings().max_examples // 3, phases=PHASES)
@given(name=PAGES, form=FORMS)
def test_a_real_page_in_any_form_has_the_same_values(name: str, form: Form) -> None:
    (whole,) = values(read(page(rows(name), PLAIN), PLAIN))
    assert len(whole) > 20
    assert values(read(page(rows(name), form), form)) == [pytest.approx(whole)] * form.launches


@settings(max_examples=settings().max_examples // 3, phases=PHASES)
@given(name=PAGES, form=FORMS, layout=st.sampled_from(["today", "2020", "averages"]))
def test_the_same_page_as_tables_has_the_same_values(name: str, form: Form, layout: str) -> None:
    found = [row for row in rows(name) if not row.get("Body Item Label")]
    (whole,) = values(read(page(found, PLAIN), PLAIN))
    capture = read(tables(found, form, layout), form)
    assert values(capture) == [pytest.approx(whole)] * form.launches
    assert any("averages" in w for w in capture.warnings) == (layout == "averages")


@settings(max_examples=settings().max_examples // 3, phases=PHASES)
@given(name=PAGES, form=FORMS, lost=st.sampled_from([UNIT, VALUE, "Metric Name", "Kernel Name"]))
def test_a_page_without_a_needed_column_is_refused(name: str, form: Form, lost: str) -> None:
    lines = list(csv.reader(io.StringIO(page(rows(name), form))))
    place = lines[0].index(lost)
    stream = io.StringIO()
    writer = csv.writer(stream, quoting=csv.QUOTE_ALL, lineterminator="\n")
    writer.writerows([cell for i, cell in enumerate(line) if i != place] for line in lines)
    with pytest.raises(ArtifactUnreadable):
        read(stream.getvalue(), form)
