"""Turns what ncu's own rules said about a result into rows, the same from a report and from CSV."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import pandas as pd

RULE_DTYPES = {
    "profile": "Int64",
    "section": "string",
    "rule": "string",
    "kind": "string",
    "title": "string",
    "message": "string",
    "speedup_pct": "float64",
    "speedup_of": "string",
    "metrics": "string",
}
# Rule Type of the CSV; the names are those of ncu_report's MsgType.
KINDS = {"OPT": "optimization", "WRN": "warning", "INF": "information", "ERR": "error"}
SCOPES = ("global", "local")
PRINTED = (
    ("GPU Speed Of Light Throughput", "", "SOLBottleneck"),
    ("GPU Speed Of Light Roofline Chart", "", "SOLFPRoofline"),
    ("Launch Statistics", "", "LaunchConfiguration"),
    ("Occupancy", "is limited by", "TheoreticalOccupancy"),
    ("Occupancy", "", "AchievedOccupancy"),
    ("Scheduler Statistics", "", "IssueSlotUtilization"),
    ("Warp State Statistics", "cycles being stalled", "CPIStall"),
    ("Warp State Statistics", "threads being active", "ThreadDivergence"),
    ("Compute Workload Analysis", "", "HighPipeUtilization"),
    ("Instruction Statistics", "", "FPInstructions"),
    ("Memory Workload Analysis", "bank conflict", "SharedMemoryConflicts"),
    ("Memory Workload Analysis", "", "MemoryCacheAccessPattern"),
    ("GPU and Memory Workload Distribution", "", "WorkloadImbalance"),
    ("Source Counters", "uncoalesced global", "UncoalescedGlobalAccess"),
    ("Source Counters", "uncoalesced shared", "UncoalescedSharedAccess"),
)
"""How a section begins, words of a message, and the rule that prints it, which text does not
name."""
# In a report: @section:LaunchStats:Launch Statistics@, @url:Text:https://…@, @sass:0x10:text@.
_SECTION_OR_SASS = re.compile(r"@(?:section|sass):[^:@]*:([^@]*)@")
_SOURCE = re.compile(r"@source:[^@]*?:(?:\d+:)?([^@]*)@")
_URL = re.compile(r"@url:(?P<text>[^@]*?):(?P<url>https?://[^@]*)@")
_SPACES = re.compile(r"\s+")
_ESTIMATE = re.compile(r"Est(?:imated|\.) (?P<local>Local )?Speedup: (?P<pct>[\d.]+) ?%\s*")


@dataclass(frozen=True)
class RuleResult:
    """What one rule said about one result.

    `kind` is optimization (something to do), warning, information or error (the rule itself
    failed); ncu before 2023 knows no optimization and calls it a warning. `title` names the case
    and stands in reports only. `speedup_pct` is the part of the time that following it would save
    as NVIDIA estimates, in per cent: of the whole kernel where `speedup_of` is global, of one unit
    where it is local. `metrics` are those that the rule rests on, joined by ", ".
    """

    profile: int
    section: str
    rule: str
    kind: str
    title: str
    message: str
    speedup_pct: float = math.nan
    speedup_of: str = ""
    metrics: str = ""


def plain_message(text: str) -> str:
    """Return a message as ncu prints it in CSV: links undone, single spaces."""
    text = _URL.sub(lambda link: f"{link['text']} ({link['url']})", text)
    text = _SOURCE.sub(r"\1", _SECTION_OR_SASS.sub(r"\1", text))
    return _SPACES.sub(" ", text).strip()


def rules_of_action(action: Any, profile: int, library: Any) -> list[RuleResult]:
    """Return the rule results of an `ncu_report.IAction`; none where this ncu_report has no way."""
    if not hasattr(action, "rule_results"):
        return []
    found = []
    for result in action.rule_results():
        # Rules that found nothing to say leave a result without message.
        if result.has_rule_message():
            found.append(_of_report(result, profile, library))
    return found


def _of_report(result: Any, profile: int, library: Any) -> RuleResult:
    message = result.rule_message()
    pct, scope = math.nan, ""
    if result.has_speedup_estimation():
        estimate = result.speedup_estimation()
        pct, scope = float(estimate["speedup"]), _scope(estimate["type"], library)
    return RuleResult(
        profile=profile,
        section=result.section_identifier(),
        rule=result.rule_identifier(),
        kind=_kind(message["type"], library),
        title=message["title"],
        message=plain_message(message["message"]),
        speedup_pct=pct,
        speedup_of=scope,
        metrics=", ".join(dict.fromkeys(m["name"] for m in result.focus_metrics())),
    )


def _kind(number: int, library: Any) -> str:
    for kind, name in (
        ("optimization", "MsgType_OPTIMIZATION"),
        ("warning", "MsgType_WARNING"),
        ("error", "MsgType_ERR"),
    ):
        if number == getattr(library, name, None):
            return kind
    return "information"


def _scope(number: int, library: Any) -> str:
    for scope in SCOPES:
        if number == getattr(library, f"SpeedupType_{scope.upper()}", None):
            return scope
    return ""


def rule_of_record(
    record: Sequence[str], columns: dict[str, int], profile: int, speedup_pct: float
) -> RuleResult:
    """Return the rule of one record of a details page; `columns` tells the columns."""

    def cell(column: str) -> str:
        where = columns.get(column, len(record))
        return record[where].strip() if where < len(record) else ""

    scope = cell("Estimated Speedup Type").lower()
    kind = cell("Rule Type")
    return RuleResult(
        profile=profile,
        section=cell("Section Name"),
        rule=cell("Rule Name"),
        kind=KINDS.get(kind.upper(), kind.lower()) or KINDS["INF"],
        title="",
        message=plain_message(cell("Rule Description")),
        speedup_pct=speedup_pct if scope in SCOPES else math.nan,
        speedup_of=scope if scope in SCOPES else "",
    )


def rule_of_text(section: str, kind: str, lines: Sequence[str], profile: int) -> RuleResult:
    """Return what a rule printed as text under a section, `lines` without their margins."""
    message = plain_message(" ".join(lines))
    estimate = _ESTIMATE.match(message)
    message = message[estimate.end() :] if estimate else message
    rules = (
        rule for begin, words, rule in PRINTED if section.startswith(begin) and words in message
    )
    return RuleResult(
        profile=profile,
        section=section,
        rule=next(rules, ""),
        kind=KINDS[kind],
        title="",
        message=message,
        speedup_pct=float(estimate["pct"]) if estimate else math.nan,
        speedup_of=("local" if estimate["local"] else "global") if estimate else "",
    )


def rules_frame(rows: Iterable[RuleResult] = ()) -> pd.DataFrame:
    """Return the results as a frame with the columns of `RuleResult`."""
    results = list(rows)
    columns = {f.name: [getattr(row, f.name) for row in results] for f in fields(RuleResult)}
    return pd.DataFrame({n: pd.Series(v, dtype=RULE_DTYPES[n]) for n, v in columns.items()})
