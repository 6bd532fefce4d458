"""Every unit word of real exports has a scale; an unknown one is refused by name."""

import csv
import re
from pathlib import Path

import pytest

from nsight_prof.parsers.errors import ArtifactUnreadable
from nsight_prof.parsers.units import to_base

TABLE_UNIT = re.compile(r"^ {4}\S.*? {2,}(\S+) +[\d.,]+$", re.MULTILINE)


@pytest.mark.parametrize(
    ("value", "unit", "expected"),
    [
        (1.5, "usecond", (1500.0, "ns")),
        (1.5, "us", (1500.0, "ns")),
        (139.91, "msecond", (139.91e6, "ns")),
        (2.0, "s", (2e9, "ns")),
        (7.0, "nsecond", (7.0, "ns")),
        (2.33, "Mbyte", (2.33e6, "B")),
        (102.4, "Kbyte", (102400.0, "B")),
        (661.051121, "Gbyte/second", (661.051121e9, "B/s")),
        (143.2, "Gbyte/s", (143.2e9, "B/s")),
        (1.63, "Tbyte/second", (1.63e12, "B/s")),
        (1.0, "byte/s", (1.0, "B/s")),
        (8.0, "Kbyte/block", (8000.0, "B/block")),
        (1.024, "Kbyte/cycle", (1024.0, "B/cycle")),
        (6.21, "cycle/nsecond", (6.21e9, "Hz")),
        (974.99, "cycle/usecond", (974.99e6, "Hz")),
        (1.0, "cycle/second", (1.0, "Hz")),
        (13.72, "Ghz", (13.72e9, "Hz")),
        (1.0, "hz", (1.0, "Hz")),
        (18.0, "sector/nsecond", (18e9, "sector/s")),
        (111.0, "sector/msecond", (111e3, "sector/s")),
        (58.0, "sector/usecond", (58e6, "sector/s")),
        (40.0, "register/thread", (40.0, "register/thread")),
        (64.0, "1/cycle", (64.0, "1/cycle")),
        (7.643, "%/Kbyte", (7643.0, "%/B")),
        (7643.0, "%/byte", (7643.0, "%/B")),
        (5.0, "%", (5.0, "%")),
        (5.0, "", (5.0, "")),
        (5.0, "sectors", (5.0, "sector")),
    ],
)
def test_a_value_is_given_in_base_units(
    value: float, unit: str, expected: tuple[float, str]
) -> None:
    got, base = to_base(value, unit)
    assert got == pytest.approx(expected[0], rel=1e-14)
    assert base == expected[1]


@pytest.mark.parametrize("unit", ["furlong", "Mfurlong", "byte/furlong", "furlong/s", "kbyte"])
def test_an_unknown_unit_is_refused_with_the_word_and_the_metric(unit: str) -> None:
    with pytest.raises(ArtifactUnreadable, match=rf"'{unit}' of metric dram__bytes\.sum"):
        to_base(1.0, unit, "dram__bytes.sum")


def test_every_unit_of_the_real_exports_is_known(real_exports: Path) -> None:
    words: set[str] = set()
    for path in (real_exports / "ncu").rglob("*.*"):
        if path.is_file() and path.suffix in (".csv", ".log", ".txt"):
            words |= _units(path.read_text(encoding="utf-8-sig"))
    assert len(words) > 30
    for word in words:
        to_base(1.0, word)


def _units(text: str) -> set[str]:
    start = text.find('"ID"')
    if start < 0:
        return set(TABLE_UNIT.findall(text))
    header, *records = csv.reader(text[start:].splitlines())
    if "Metric Unit" not in header:
        return set(records[0])
    place = header.index("Metric Unit")
    return {record[place] for record in records if len(record) > place}


def test_the_units_of_nsys_stats_are_known(real_exports: Path) -> None:
    pattern = re.compile(r"\((ns|us|ms|s|B|KB|MB|GB|KiB|MiB|GiB)\)")
    words = {
        word
        for path in (real_exports / "nsys").rglob("*.csv")
        for word in pattern.findall(path.read_text(encoding="utf-8-sig").partition("\n")[0])
    }
    assert "ns" in words
    for word in words:
        to_base(1.0, word)
