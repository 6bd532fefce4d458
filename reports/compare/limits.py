"""Rules of --fail-on: which change of which quantity fails a CI job."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from nsight_prof.parsers.errors import UsageError
from nsight_prof.parsers.names.matching import matching
from nsight_prof.parsers.patterns import compile_pattern
from nsight_prof.reports.compare.changes import Change, Comparison, LimitResult
from nsight_prof.reports.page import Text

_RULE = re.compile(
    r"^\s*(?P<name>.+?)\s*(?P<sign>[<>])\s*(?P<value>[+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)\s*"
    r"(?P<unit>%|[A-Za-z/]*)\s*$"
)
_UNITS = {"ns": 1.0, "us": 1e3, "µs": 1e3, "ms": 1e6, "s": 1e9, "": 1.0}
"""Units of a limit in ns; cases and points are in s."""
TIMES = frozenset(_UNITS) - {""}
MAX_NAMES = 12
"""Names that a refused rule is shown, the most alike first."""
HINT = (
    "write NAME>+5% (B over A by more than 5 %), NAME<-5%, NAME>+100us, or NAME>20ms (B itself); "
    "names: total_gpu_time, wall_time, idle_time, copy_time, copied_bytes, launches, cases, "
    "stage:NAME:gpu_time, kernel:REGEX, case:REGEX, point:REGEX:ttft_p50_s"
)


@dataclass(frozen=True)
class Limit:
    """One rule: `name` of the quantity, `above` or below `value`.

    `relative`: a fraction of A; `change`: of the difference B - A, else of B itself. An absolute
    `value` is in ns for times, as it stands for other quantities.
    """

    rule: str
    name: str
    above: bool
    value: float
    unit: str
    relative: bool
    change: bool


def parse_limit(rule: str) -> Limit:
    """Read a rule of --fail-on.

    Raises:
        UsageError: it is no rule; the hint shows the forms.
    """
    rule_match = _RULE.match(rule)
    if rule_match is None:
        raise UsageError(f"--fail-on {rule!r} is not a rule", HINT)
    signed, unit = rule_match["value"][0] in "+-", rule_match["unit"]
    if unit == "%" and not signed:
        raise UsageError(
            f"--fail-on {rule!r}: a percentage is a change and needs a sign",
            f"write {rule_match['name']}{rule_match['sign']}+{rule_match['value']}%",
        )
    if unit not in ("%", *_UNITS):
        raise UsageError(f"--fail-on {rule!r}: {unit} is no unit", "use %, ns, us, ms or s")
    value = float(rule_match["value"])
    relative = unit == "%"
    if relative:
        value /= 100
    return Limit(rule, rule_match["name"], rule_match["sign"] == ">", value, unit, relative, signed)


def check_limits(limits: Iterable[Limit], found: Comparison) -> tuple[LimitResult, ...]:
    """Hold the comparison to the rules.

    Raises:
        UsageError: a rule names nothing that these runs have.
    """
    return tuple(_check(limit, found) for limit in limits)


def _check(limit: Limit, found: Comparison) -> LimitResult:
    with matching(f"--fail-on {limit.rule!r}"):
        changes = _selected(limit, found)
    states = [(change, _state(limit, change)) for change in changes]
    for state in ("broken", "noise"):
        if change := next((change for change, of in states if of == state), None):
            return LimitResult(limit.rule, state, _sentence(change, state))
    largest = max(changes, key=lambda change: _amount(limit, change) or -math.inf)
    return LimitResult(limit.rule, "kept", _sentence(largest, "kept"))


def _state(limit: Limit, change: Change) -> str:
    amount = _amount(limit, change)
    if amount is None or not (amount > limit.value if limit.above else amount < limit.value):
        return "kept"
    return "noise" if limit.change and change.verdict in ("same", "equal", "unknown") else "broken"


def _amount(limit: Limit, change: Change) -> float | None:
    """Return B, B - A, or (B - A) / A as the rule names it; None for what only A has."""
    a, b, ratio = change.a or 0.0, change.b or 0.0, change.ratio
    if limit.change and limit.relative:
        if ratio is not None:
            return ratio - 1
        return math.inf if b > 0 and not a else -1.0 if a > 0 else None
    # The size of the limit's unit in the unit of the quantity.
    unit = _UNITS[limit.unit] / (1e9 if change.unit == "s" else 1.0) if limit.unit else 1.0
    return (b - a if limit.change else b) / unit


def _selected(limit: Limit, found: Comparison) -> Sequence[Change]:
    every, names = _candidates(limit, found)
    changes = [change for change in every if _is_known(limit, change)]
    if not changes:
        near = difflib.get_close_matches(limit.name, names, n=MAX_NAMES, cutoff=0)
        more = f", … ({len(names)} in all)" if len(names) > MAX_NAMES else ""
        raise UsageError(
            f"--fail-on {limit.rule!r} names nothing that both runs know",
            f"these are there: {', '.join(near) or 'none'}{more}; {HINT}",
        )
    if limit.unit in TIMES and any(change.unit not in ("ns", "s") for change in changes):
        raise UsageError(
            f"--fail-on {limit.rule!r}: {limit.name} is no time", "leave the unit out, or use %"
        )
    return changes


def _is_known(limit: Limit, change: Change) -> bool:
    """Return whether a rule can judge a quantity: what was not measured keeps no limit."""
    if change.verdict in ("new", "gone") or (limit.relative and change.ratio is not None):
        return True
    return change.b is not None and (change.a is not None or not limit.change)


def _candidates(limit: Limit, found: Comparison) -> tuple[list[Change], list[str]]:
    """Return the quantities that the rule selects, and the names that it could have."""
    kind, _, rest = limit.name.partition(":")
    if kind == "kernel" and rest:
        search = _regex(rest, limit).search
        names = [f"kernel:{x.kernel.short_name}" for row in found.kernels
                 for x in (*row.a, *row.b)[:1]]  # fmt: skip
        return [
            row.total
            for row in found.kernels
            if any(search(x.kernel.short_name) or search(x.kernel.name) for x in (*row.a, *row.b))
        ], list(dict.fromkeys(names))
    if kind == "case" and rest:
        search, timed = _regex(rest, limit).search, [c for c in found.cases if c.ratio is not None]
        return [c for c in timed if search(c.key)], [f"case:{c.key}" for c in timed]
    regex, _, key = rest.rpartition(":")
    if kind == "point" and rest:
        search = _regex(regex, limit).search
        points = [(p.case, c) for p in found.points for c in p.changes]
        names = [f"point:{case}:{c.key}" for case, c in points]
        chosen = [c for case, c in points if search(case) and c.key == key]
        return chosen, list(dict.fromkeys(names))
    stages = [(s.stage, c) for s in found.stages for c in s.changes]
    names = [f"stage:{stage}:{c.key}" for stage, c in stages]
    if kind == "stage" and rest:
        return [c for stage, c in stages if stage == regex and c.key == key], names
    totals = [c for c in found.totals if c.key == limit.name]
    return totals, [*(c.key for c in found.totals), *names]


def _regex(text: str, limit: Limit) -> re.Pattern[str]:
    try:
        return compile_pattern(text)
    except ValueError as error:
        raise UsageError(
            f"--fail-on {limit.rule!r}: {text} is {error}",
            "quote special characters with a backslash",
        ) from error


STATES = {
    "broken": Text("beyond the limit"),
    "noise": Text("beyond the limit, but not beyond the noise; repeats would tell"),
    "kept": Text("within the limit"),
}


def _sentence(change: Change, state: str) -> Text:
    values = {"quantity": change.label, "a": change.before or "–", "b": change.after or "–"}
    if change.relative is None:
        return Text("{quantity}: {a} → {b}; {state}.", state=STATES[state], **values)
    return Text(
        "{quantity}: {a} → {b} ({change}); {state}.",
        state=STATES[state],
        change=change.relative,
        **values,
    )
