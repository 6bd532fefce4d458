"""Turns a saved CSV output of ncu, raw or details page of any version, into an `NcuCapture`.

The raw page is the one to export, with `--print-units base`. Its precision depends on the units
(11,062 non-zero values of 26 H200 results against the full precision of the .ncu-rep, ncu 2025.3.1;
the same rules in 2024.1.1): `base` prints integers exactly (bytes, time, operations) and all else
with 2 decimals, so 4 % of the values, small ratios such as stall reasons, are off by more than
0.1 %. The default (`auto`) prints 6 decimals of a scaled unit that all rows of a column share:
0.4 % are off by more than 0.1 %, but among them the DRAM bytes of small kernels (0.000019 Gbyte;
up to 3.4 % off). `--print-fp` prints 2 decimals of everything; the details page has 2 decimals of a
scaled unit.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from pathlib import Path

from nsight_prof.parsers.errors import ArtifactUnreadable, NoKernels
from nsight_prof.parsers.ncu import nvtx
from nsight_prof.parsers.ncu.capture import Gatherer, Launch, NcuCapture, dimensions
from nsight_prof.parsers.ncu.labels import metric_name
from nsight_prof.parsers.ncu.records import Page, split_pages
from nsight_prof.parsers.ncu.rules import rule_of_record
from nsight_prof.parsers.ncu.text_file import Banner, no_data, read_banner, read_text
from nsight_prof.parsers.ncu.text_tables import parse_tables
from nsight_prof.parsers.numbers import Marks, find_marks, is_unavailable
from nsight_prof.parsers.reading import reading
from nsight_prof.parsers.run.sentences import stored

_ABOUT_LAUNCH = frozenset(
    ("ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Kernel Time", "Context")
    + ("Stream", "Block Size", "Grid Size", "Device", "CC", "Invocations")
)
_NAME, _UNIT, _VALUE = "Metric Name", "Metric Unit", "Metric Value"
# `--print-summary`: minimum, maximum and average over the launches of a kernel, by what tells it.
_AVERAGE, _INVOCATIONS = "Average", "Invocations"
_RESULT = ("ID", "Process ID", "Kernel Name")
_SUMMARY = ("Process ID", "Kernel Name", "Block Size", "Grid Size", "Device")
_HINT = "export it again: LC_ALL=C ncu --import FILE.ncu-rep --csv --page raw > FILE.csv"
_SPEEDUP = "Estimated Speedup"
# --print-metric-instances appends them: "3670 (32; 32; 64)" or "0 (0: 0)".
_INSTANCES = re.compile(r"^(?P<value>[^(]*\S) \(.*\)$", re.DOTALL)


def read_csv(path: Path) -> NcuCapture:
    """Read a saved text output of ncu: CSV (raw or details page) or plain tables; .xz too.

    Values are in base units, as precise as the file prints them.

    Raises:
        NoKernels: empty, or ncu profiled nothing.
        PermissionRefused: ncu was refused the counters.
        ArtifactUnreadable: cut before its first whole record, a git LFS pointer, binary, or of a
            layout or number format that cannot be told.
    """
    with reading(path, "an output of ncu", _HINT):
        return _read(path)


def _read(path: Path) -> NcuCapture:
    text = read_text(path)
    banner = read_banner(text)
    gatherer = Gatherer("csv")
    pages = split_pages(text)
    if pages:
        gatherer.page = "details" if any(_NAME in page.header for page in pages) else "raw"
        _read_pages(pages, gatherer, path)
    else:
        gatherer.page = "text"
        parse_tables(text, gatherer, str(path))
    if not gatherer.launches:
        raise no_data(path, banner) if not pages else _no_record(path, pages)
    _tell(banner, gatherer)
    return gatherer.capture(version="")


def _no_record(path: Path, pages: list[Page]) -> ArtifactUnreadable:
    if any(page.cut for page in pages):
        return ArtifactUnreadable(f"{path} ends within its first record", "export it again")
    return NoKernels(f"{path} has a header and no record", "profile again, or export it again")


def _tell(banner: Banner, gatherer: Gatherer) -> None:
    for sentence in banner.errors:
        gatherer.warn(
            stored("ncu failed after the kernels shown here: {sentence}", sentence=sentence)
        )
    for sentence in banner.warnings:
        gatherer.warn(f"ncu: {sentence}")
    if len(banner.passes) == len(gatherer.launches):
        for launch, (_, passes) in zip(
            gatherer.launches, sorted(banner.passes.items()), strict=True
        ):
            launch.passes = passes


@dataclass(frozen=True)
class _Context:
    """What the readers of one page need beside its records."""

    page: Page
    marks: Marks
    gatherer: Gatherer
    path: Path
    failed: set[int] = field(default_factory=set)

    def put(self, profile: int, metric: str, unit: str, text: str) -> None:
        """Add one printed value: a number, a text, or `n/a`; nothing where it is empty."""
        number = self.marks.simple(text)
        if number is not None and (number or profile not in self.failed):
            self.gatherer.add(profile, metric, number, unit)
            return
        text = text.strip()
        if text.endswith(")") and (instances := _INSTANCES.match(text)):
            text = instances["value"]
        if not text:
            return
        if is_unavailable(text):
            self.gatherer.add_text(profile, metric, None)
            return
        number = None if "(!)" in text else self.marks.parse(text)
        if number == 0 and profile in self.failed:
            # ncu 2024.1.1 prints the NaN of a result it could not measure as 0.000000.
            self.gatherer.add_text(profile, metric, None)
            return
        if number is None:
            self.gatherer.add_text(profile, metric, text)
        else:
            self.gatherer.add(profile, metric, number, unit)

    def launch(self, record: list[str]) -> Launch:
        """Make the launch that `record` belongs to."""
        cells = dict(zip(self.page.header, record, strict=False))
        name = cells.get("Kernel Name", "")
        launch = Launch(
            profile=len(self.gatherer.launches),
            name=name,
            mangled_name=name if name.startswith("_Z") else None,
            grid=dimensions(cells.get("Grid Size", "")),
            block=dimensions(cells.get("Block Size", "")),
            device=_integer(cells.get("Device")),
            pid=_integer(cells.get("Process ID")),
            stream=_integer(cells.get("Stream")),
            context=_integer(cells.get("Context")),
            nvtx=nvtx.parse_columns(cells),
            compute_capability=cells.get("CC") or None,
            result=_integer(cells.get("ID")),
        )
        if "Grid Size" in cells and launch.grid is None:
            self.failed.add(launch.profile)
            self.gatherer.warn(
                stored(
                    "ncu could not profile result {profile}, {name}: no grid",
                    profile=launch.profile,
                    name=name,
                )
            )
        if (launches := _integer(cells.get(_INVOCATIONS))) is not None:
            self.gatherer.warn_of_averages(launches)
        self.gatherer.launches.append(launch)
        return launch


def _read_pages(pages: list[Page], gatherer: Gatherer, path: Path) -> None:
    marks = find_marks((text for page in pages for text in _printed(page)), str(path))
    for page in pages:
        context = _Context(page, marks, gatherer, path)
        if _NAME in page.header:
            _read_details(context)
        else:
            _read_raw(context)
        if page.cut:
            gatherer.warn(
                stored(
                    "{name} was cut: {cut} unfinished records are left out",
                    name=path.name,
                    cut=page.cut,
                )
            )


def _value_place(header: list[str]) -> int:
    """Return the column of the values of a details page: the value, or the average of launches."""
    found = [header.index(name) for name in (_VALUE, _AVERAGE) if name in header]
    return found[0] if found and _UNIT in header else -1


def _printed(page: Page) -> list[str]:
    column = _value_place(page.header)
    if column >= 0:
        return [record[column] for record in page.records if len(record) > column]
    columns = _metric_columns(page.header)
    return [record[i] for record in page.records for i in columns if i < len(record)]


def _metric_columns(header: list[str]) -> list[int]:
    known = _ABOUT_LAUNCH
    return [i for i, name in enumerate(header) if name not in known and not nvtx.is_column(name)]


def _read_raw(context: _Context) -> None:
    """Read a raw page: one column per metric, first the units, then one record per launch.

    The header has the columns of ncu 2020 to 2026, in any number and order.
    """
    page = context.page
    if not page.records:
        return
    units, *records = page.records
    if any(units[: page.header.index("Kernel Name") + 1]):
        raise ArtifactUnreadable(
            f"{context.path}: the raw page has no row of units behind its header",
            "export it again; without units a value could be wrong by 10^9",
        )
    columns = _metric_columns(page.header)
    for record in records:
        if len(record) != len(page.header):
            page.cut += 1
            continue
        profile = context.launch(record).profile
        for column in columns:
            context.put(profile, page.header[column], units[column], record[column])


def _read_details(context: _Context) -> None:
    """Read a details page: one record per metric, or what a rule said."""
    header = context.page.header
    columns = {name: i for i, name in enumerate(header)}
    where = _value_place(header)
    if where < 0:
        raise ArtifactUnreadable(
            f"{context.path}: the details page lacks the column {_VALUE} or {_UNIT}",
            "export it again: ncu --import FILE.ncu-rep --csv --page raw",
        )
    told_by = [n for n in (_SUMMARY if _INVOCATIONS in columns else _RESULT) if n in columns]
    profiles: dict[tuple[str, ...], int] = {}
    for record in context.page.records:
        if len(record) <= where:
            context.page.cut += 1
            continue
        key = tuple(record[columns[name]] for name in told_by)
        if key not in profiles:
            profiles[key] = context.launch(record).profile
        if not record[columns[_NAME]]:
            _add_rule(context, record, columns, profiles[key])
            continue
        section, item = (
            record[columns[n]] if n in columns else "" for n in ("Section Name", "Body Item Label")
        )
        metric = metric_name(section, item, record[columns[_NAME]])
        context.put(profiles[key], metric, record[columns[_UNIT]], record[where])


def _add_rule(context: _Context, record: list[str], columns: dict[str, int], profile: int) -> None:
    where = columns.get(_SPEEDUP, len(record))
    printed = context.marks.parse(record[where]) if where < len(record) else None
    speedup = math.nan if printed is None else printed
    rule = rule_of_record(record, columns, profile, speedup)
    if rule.rule:
        context.gatherer.rules.append(rule)


def _integer(text: str | None) -> int | None:
    return int(text) if text and text.strip().isdigit() else None
