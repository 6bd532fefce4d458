"""Turns the tables that ncu prints without --csv into launches and values.

A launch is a line with its name and shape, a table stands under a line of dashes that tells the
columns' widths:

      gemm(const float *, int) (32, 32, 1)x(32, 1, 1), Context 1, Stream 7, Device 0, CC 8.6
        Section: Launch Statistics
        -------------------- ----------- ------------
        Metric Name          Metric Unit Metric Value
        -------------------- ----------- ------------
        Registers Per Thread register/thread       40

Values have 2 decimals of a scaled unit. Copies of such texts have other margins, and break the line
of a launch before its shape. Older versions print the date instead of the shape, and
tables without the heads. `--print-summary` prints "Invocations 14" behind the shape, and minimum,
maximum and average over these launches instead of the value; the average is read.

Under the tables of a section stands what ncu's rules say of it, up to an empty line or dashes:

        OPT   Est. Speedup: 25%
              This kernel's theoretical occupancy (75.0%) is limited by the number of registers.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from nsight_prof.parsers.ncu.capture import Gatherer, Launch, dimensions
from nsight_prof.parsers.ncu.labels import metric_name
from nsight_prof.parsers.ncu.rules import rule_of_text
from nsight_prof.parsers.numbers import find_marks, is_unavailable
from nsight_prof.parsers.run.sentences import stored

_PROCESS = re.compile(r"^\[(?P<pid>\d+)\] \S.*@\S+$")
_SHAPE = r"(?P<grid>\(\d+, \d+, \d+\))x(?P<block>\(\d+, \d+, \d+\))"
_LAUNCH = re.compile(
    rf"^\s+(?P<name>\S.*?)(?: {_SHAPE}|, \d{{4}}-\w{{3}}-\d\d [\d:]+)(?=, (?:Context|Device) \d)"
    r"(?:, Context (?P<context>\d+), Stream (?P<stream>\d+))?"
    r"(?:, Device (?P<device>\d+), CC (?P<cc>[\d.]+))?(?:, Invocations (?P<invocations>\d+))?\s*$"
)
_REST = re.compile(rf"^\s*{_SHAPE}, Context \d")  # of a line that was broken behind the name
_SECTION = re.compile(r"^\s+Section: (?P<section>.*\S)\s*$")
_DASHES = re.compile(r"^\s*-{4,} +-{4,} +-{4,}(?: +-{4,} +-{4,})?\s*$")
_RULE = re.compile(r"^\s+(?P<kind>OPT|WRN|INF|ERR)\s+(?P<text>\S.*)$")
_HEAD = re.compile(
    r"^\s*Metric Name\s+Metric Unit\s+(?:Metric Value|Minimum\s+Maximum\s+Average)\s*$"
)


@dataclass(frozen=True)
class _Row:
    profile: int
    section: str
    label: str
    unit: str
    text: str


def parse_tables(text: str, gatherer: Gatherer, where: str) -> None:
    """Add every launch and value of `text` to `gatherer`; nothing where it holds no table.

    Raises:
        ArtifactUnreadable: the decimal mark cannot be told.
    """
    reader = _Reader(gatherer)
    for line in text.split("\n"):
        reader.line(line)
    reader.end_rule()
    if not text.endswith("\n") and reader.in_table and reader.rows:
        row = reader.rows.pop()
        gatherer.warn(
            stored(
                "{where} was cut: the last value, {label}, is left out",
                where=where,
                label=row.label,
            )
        )
    marks = find_marks((row.text for row in reader.rows), where)
    for row in reader.rows:
        metric = metric_name(row.section, "", row.label)
        number = None if "(!)" in row.text else marks.parse(row.text)
        if is_unavailable(row.text):
            gatherer.add_text(row.profile, metric, None)
        elif number is None:
            gatherer.add_text(row.profile, metric, row.text)
        else:
            gatherer.add(row.profile, metric, number, row.unit)


class _Reader:
    def __init__(self, gatherer: Gatherer) -> None:
        self.rows: list[_Row] = []
        self.in_table = False
        self._gatherer = gatherer
        self._pid: int | None = None
        self._section = ""
        self._before = ""
        self._nameless = False
        self._rule: list[str] = []
        self._spans: list[tuple[int, int]] = []

    def line(self, line: str) -> None:
        if _REST.match(line):
            line = f"  {self._before} {line.strip()}"
            self._nameless = not self._before
            if self._nameless:
                self._gatherer.warn(stored("the values of a launch without a name are left out"))
        self._read(line)
        outside = not (self.in_table or _DASHES.match(line) or _SECTION.match(line))
        self._before = line.strip() if outside else ""

    def _read(self, line: str) -> None:
        self.end_rule(line)
        if process := _PROCESS.match(line):
            self._pid = int(process["pid"])
        elif launch := _LAUNCH.match(line):
            self._add_launch(launch)
        elif section := _SECTION.match(line):
            self._section, self.in_table = section["section"], False
        elif _HEAD.match(line):
            self.in_table = False
        elif _DASHES.match(line):
            self.in_table = not self.in_table
            self._spans = [match.span() for match in re.finditer("-+", line)]
        elif rule := _RULE.match(line):
            self._rule, self.in_table = [rule["kind"], rule["text"].strip()], False
        elif self._rule:
            self._rule.append(line.strip())
        elif self.in_table and line.strip():
            self._add_row(line)
        else:
            self.in_table = False

    def end_rule(self, line: str = "") -> None:
        """Keep what a rule said, where this line is no more of it."""
        if not self._rule or (
            line.strip() and not _RULE.match(line) and line.lstrip()[:4] != "----"
        ):
            return
        kind, *lines = self._rule
        self._rule = []
        if self._gatherer.launches and not self._nameless:
            profile = self._gatherer.launches[-1].profile
            result = rule_of_text(self._section, kind, lines, profile)
            if result.rule:
                self._gatherer.rules.append(result)

    def _add_launch(self, found: re.Match[str]) -> None:
        self._section, self.in_table, self._nameless = "", False, False
        if invocations := found["invocations"]:
            self._gatherer.warn_of_averages(int(invocations))
        self._gatherer.launches.append(
            Launch(
                profile=len(self._gatherer.launches),
                name=found["name"],
                grid=dimensions(found["grid"] or ""),
                block=dimensions(found["block"] or ""),
                device=_integer(found["device"]),
                pid=self._pid,
                stream=_integer(found["stream"]),
                context=_integer(found["context"]),
                compute_capability=found["cc"],
            )
        )

    def _add_row(self, line: str) -> None:
        if not self._gatherer.launches or self._nameless:
            return
        (_, name_end), (_, unit_end), *_ = self._spans
        last = self._spans[-2][1]
        profile = self._gatherer.launches[-1].profile
        label, unit, text = line[:name_end], line[name_end:unit_end], line[last:]
        row = _Row(profile, self._section, label.strip(), unit.strip(), text.strip())
        if row.label and row.text:
            self.rows.append(row)


def _integer(text: str | None) -> int | None:
    return int(text) if text else None
