"""A rule about the whole program: its question, its thresholds, and what to do where it fires.

Rules are data: rows of the YAML files beside the modules, read here as objects with their words.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from nsight_prof.parsers.cells import known
from nsight_prof.parsers.packaged import packaged_yaml
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.findings.model import Finding
from nsight_prof.reports.page import Evidence, Name, Number, Ref, Text, Value

NSYS = Text("nsys")
"""Source of what the trace measures."""
NAMED, LISTED = 4, 5
"""Kernels that a sentence names, and that a finding leads to."""
MOST_LINKED = 4
"""Kernels whose counters evidence leads to one by one."""


@dataclass(frozen=True)
class Threshold:
    """A limit of a rule, in `unit`, and whose it is."""

    value: float
    source: Text
    unit: str = "fraction"

    @property
    def number(self) -> Number:
        """The limit with its unit."""
        return Number(self.value, self.unit)

    def met(self, label: Text, value: Number) -> Evidence:
        """Return a number that is as large as the limit as evidence."""
        return Evidence(label, value, Text("{limit} or more", limit=self.number), self.source)


@dataclass(frozen=True)
class Rule:
    """What docs/rules.md tells of a rule.

    Attributes:
        key: stands as `rule` in metrics.json.
        question: what the rule answers.
        requires: the measurements without which it abstains.
        thresholds: limits by name.
        gain: how the gain is computed; each number of it is a row of the evidence.
        action: what to do, `advice` the same for readers who do not know GPUs.
        disproof: what one would see if the finding were wrong.
    """

    key: str
    question: str
    requires: str
    thresholds: Mapping[str, Threshold] = field(default_factory=dict)
    gain: str = ""
    action: Text | None = None
    advice: Text | None = None
    disproof: Text | None = None

    def limit(self, name: str) -> float:
        """Return a threshold."""
        return self.thresholds[name].value

    def finding(self, **fields: Any) -> Finding:
        """Return a finding of this rule; the fields are those of `Finding`.

        Key, headline, action, advice and disproof are given only where they differ from the rule,
        the headline from the title. Evidence that is None is left out.
        """
        defaults: dict[str, Any] = {
            "rule": self.key,
            "key": self.key,
            "headline": fields["title"],
            "action": self.action,
            "advice": self.advice,
            "disproof": self.disproof,
        }
        evidence = tuple(row for row in fields.pop("evidence", ()) if row is not None)
        return Finding(**{**defaults, **fields}, evidence=evidence)


WORDS = ("label", "reason", "action", "advice", "disproof", "source", "does", "what", "title",
         "problem", "required", "clause", "symptom", "without")  # fmt: skip
"""Fields whose strings are messages: scripts/messages.py finds them in these files."""
LIKE = "like"
"""Field that names the row of which one has what it does not say itself."""
message: type[Text] = Text
T = TypeVar("T")


def rows_of(package: str, file: str) -> dict[str, dict[str, Any]]:
    """Return the rows of a file of `package` by key, each with what it has of another one."""
    rows: dict[str, dict[str, Any]] = packaged_yaml(package, file)

    def resolved(row: dict[str, Any]) -> dict[str, Any]:
        if LIKE not in row:
            return row
        base = resolved(rows[row[LIKE]])
        inside = {
            name: {**base[name], **value}
            for name, value in row.items()
            if isinstance(value, dict) and value and name in base
        }
        return {name: value for name, value in {**base, **row, **inside}.items() if name != LIKE}

    return {key: resolved(row) for key, row in rows.items()}


def of_row(kind: type[T], row: Mapping[str, Any], **more: Any) -> T:
    """Return an object of a class whose fields a row gives, as the annotations of the class say."""
    # Those of a NamedTuple are objects that hold the words.
    hints = {n: str(getattr(h, "__forward_arg__", h)) for n, h in kind.__annotations__.items()}
    return kind(**{name: _value(hints[name], value) for name, value in row.items()}, **more)


def _value(hint: str, value: Any) -> Any:
    if hint.startswith("Text"):
        return message(value)
    if hint.startswith("tuple"):
        return tuple(value)
    if hint.startswith("Mapping") and "tuple" in hint:
        return {key: tuple(each) for key, each in value.items()}
    return value


def measured(label: Text, value: Number, source: Text = NSYS) -> Evidence:
    """Return a number of the trace as evidence."""
    return Evidence(label, value, source=source)


def wall_evidence(wall: Number) -> Evidence:
    """Return the time that gains of idle time and copies are parts of."""
    return measured(Text("wall time of the program under nsys"), wall)


def column(table: str, name: str, row: str = "") -> tuple[Ref, ...]:
    """Return the cell, or with an empty row the whole column, that a number was read from."""
    return (Ref(table, row, name),)


STARTS = column("launches", "start_ns")
DURATIONS = column("launches", "duration_ns")


def names_of(kernels: Iterable[tuple[str, str]], limit: int = NAMED) -> list[Value]:
    """Return the names of (kernel_id, short_name), each once, that a sentence lists.

    Each leads to the first kernel of its name.
    """
    first: dict[str, str] = {}
    for key, name in kernels:
        first.setdefault(name, key)
    names: list[Value] = [Name(name, Ref("kernels", key)) for name, key in first.items()]
    rest = len(names) - limit
    return [*names[:limit], Text("{n} more", n=rest)] if rest > 0 else names


def counters(run: Run, kernel_ids: Sequence[str], columns: Iterable[str]) -> tuple[Ref, ...]:
    """Return the cells of kernels in table `counters`, as far as they are known.

    Of more than MOST_LINKED kernels, the first stands for all.
    """
    frame = run.counters.set_index("kernel_id")
    refs: list[Ref] = []
    for name in columns:
        values = {key: known(frame.at[key, name]) for key in kernel_ids if key in frame.index}
        keys = [key for key, value in values.items() if value is not None]
        if not 1 < len(keys) <= MOST_LINKED:
            keys = list(kernel_ids[:1])
        refs += [Ref("counters", key, name) for key in keys]
    return tuple(refs)
