"""Rules of --fail-on: which change of which quantity fails a CI job."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from nsight_prof.parsers.errors import UsageError
from nsight_prof.parsers.patterns import compile_pattern, matching
from nsight_prof.reports.compare.models import Change, CompareView, LimitResult
from nsight_prof.reports.formats import difference, quantity

_RULE = re.compile(
    r"^\s*(?P<name>.+?)\s*(?P<sign>[<>])\s*(?P<value>[+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)\s*"
    r"(?P<unit>%|[A-Za-z/]*)\s*$"
)
_UNITS = {"ns": 1.0, "us": 1e3, "µs": 1e3, "ms": 1e6, "s": 1e9, "": 1.0}
"""Units of a limit in ns; cases and points are in s."""
TIMES = frozenset(_UNITS) - {""}
SELECTORS = ("stage", "kernel", "case", "point")
MOST_NAMES = 12
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
    found = _RULE.match(rule)
    if found is None:
        raise UsageError(f"--fail-on {rule!r} is not a rule", HINT)
    signed, unit = found["value"][0] in "+-", found["unit"]
    if unit == "%" and not signed:
        raise UsageError(
            f"--fail-on {rule!r}: a percentage is a change and needs a sign",
            f"write {found['name']}{found['sign']}+{found['value']}%",
        )
    if unit not in ("%", *_UNITS):
        raise UsageError(f"--fail-on {rule!r}: {unit} is no unit", "use %, ns, us, ms or s")
    value = float(found["value"])
    relative = unit == "%"
    if relative:
        value /= 100
    return Limit(rule, found["name"], found["sign"] == ">", value, unit, relative, signed)


def check_limits(limits: Iterable[Limit], view: CompareView) -> tuple[LimitResult, ...]:
    """Hold the comparison to the rules.

    Raises:
        UsageError: a rule names nothing that these runs have.
    """
    return tuple(_check(limit, view) for limit in limits)


def _check(limit: Limit, view: CompareView) -> LimitResult:
    with matching(f"--fail-on {limit.rule!r}"):
        changes = _named(limit, view)
    judged = [(change, _judge(limit, change)) for change in changes]
    for state in ("broken", "noise"):
        for change, found in judged:
            if found == state:
                return LimitResult(limit.rule, state, _sentence(change, state))
    worst = max((change for change, _ in judged), key=lambda c: _amount(limit, c) or -math.inf)
    return LimitResult(limit.rule, "kept", _sentence(worst, "kept"))


def _judge(limit: Limit, change: Change) -> str:
    amount = _amount(limit, change)
    if amount is None:
        return "kept"
    if not (amount > limit.value if limit.above else amount < limit.value):
        return "kept"
    inside = change.verdict in ("same", "equal", "unknown")
    return "noise" if limit.change and inside else "broken"


def _amount(limit: Limit, change: Change) -> float | None:
    """Return what the rule speaks of: B, B - A, or (B - A) / A; None for what only A has."""
    a, b, ratio = change.a or 0.0, change.b or 0.0, change.ratio
    if not limit.change:
        return b / _scale(limit, change)
    if not limit.relative:
        return (b - a) / _scale(limit, change)
    if ratio is not None:
        return ratio - 1
    return math.inf if b > 0 and not a else -1.0 if a > 0 else None


def _scale(limit: Limit, change: Change) -> float:
    """Return the size of the limit's unit in the unit of the quantity."""
    if not limit.unit:
        return 1.0
    return _UNITS[limit.unit] / (1e9 if change.unit == "s" else 1.0)


def _named(limit: Limit, view: CompareView) -> Sequence[Change]:
    selector, _, rest = limit.name.partition(":")
    found: list[Change] = []
    if selector in SELECTORS and rest:
        found = _SELECT[selector](rest, view, limit)
    else:
        found = [change for change in view.totals if change.key == limit.name]
    found = [change for change in found if _is_known(limit, change)]
    if not found:
        names = _names(selector if rest else "", view)
        near = difflib.get_close_matches(limit.name, names, n=MOST_NAMES, cutoff=0)
        more = f", … ({len(names)} in all)" if len(names) > MOST_NAMES else ""
        raise UsageError(
            f"--fail-on {limit.rule!r} names nothing that both runs know",
            f"these are there: {', '.join(near) or 'none'}{more}; {HINT}",
        )
    if limit.unit in TIMES and any(change.unit not in ("ns", "s") for change in found):
        raise UsageError(
            f"--fail-on {limit.rule!r}: {limit.name} is no time", "leave the unit out, or use %"
        )
    return found


def _names(selector: str, view: CompareView) -> list[str]:
    """Return the names of a selector that rules can have here; without one, those of all."""
    found = {
        "stage": [f"stage:{s.stage}:{c.key}" for s in view.stages for c in s.changes],
        "kernel": [f"kernel:{m.short_name}" for row in view.kernels for m in (*row.a, *row.b)[:1]],
        "case": [f"case:{c.key}" for c in view.cases if c.ratio is not None],
        "point": [f"point:{p.case}:{c.key}" for p in view.points for c in p.changes],
    }
    if selector in found:
        return list(dict.fromkeys(found[selector]))
    return [*(change.key for change in view.totals), *found["stage"]]


def _is_known(limit: Limit, change: Change) -> bool:
    """Tell whether a quantity can be held to a rule: what was not measured keeps no limit."""
    if change.verdict in ("new", "gone") or (limit.relative and change.ratio is not None):
        return True
    return change.b is not None and (change.a is not None or not limit.change)


def _stages(rest: str, view: CompareView, limit: Limit) -> list[Change]:
    name, _, key = rest.rpartition(":")
    return [
        c for stage in view.stages if stage.stage == name for c in stage.changes if c.key == key
    ]


def _kernels(rest: str, view: CompareView, limit: Limit) -> list[Change]:
    pattern = _regex(rest, limit)
    return [
        row.total
        for row in view.kernels
        if any(pattern.search(m.short_name) or pattern.search(m.name) for m in (*row.a, *row.b))
    ]


def _cases(rest: str, view: CompareView, limit: Limit) -> list[Change]:
    pattern = _regex(rest, limit)
    return [c for c in view.cases if c.ratio is not None and pattern.search(c.key)]


def _points(rest: str, view: CompareView, limit: Limit) -> list[Change]:
    regex, _, key = rest.rpartition(":")
    pattern = _regex(regex, limit)
    return [
        c
        for point in view.points
        if pattern.search(point.case)
        for c in point.changes
        if c.key == key
    ]


_SELECT = {"stage": _stages, "kernel": _kernels, "case": _cases, "point": _points}


def _regex(text: str, limit: Limit) -> re.Pattern[str]:
    try:
        return compile_pattern(text)
    except ValueError as error:
        raise UsageError(
            f"--fail-on {limit.rule!r}: {text} is {error}",
            "quote special characters with a backslash",
        ) from error


def _sentence(change: Change, state: str) -> str:
    a, b = (
        quantity(v, change.unit) if change.unit != "s" else quantity((v or 0) * 1e9, "ns")
        for v in (change.a, change.b)
    )
    moved = f"{difference((change.ratio or math.nan) - 1)}, " if change.ratio else ""
    words = {
        "broken": "beyond the limit",
        "noise": "beyond the limit, but not beyond the noise: give repeats to tell",
        "kept": "within the limit",
    }
    return f"{change.label}: {moved}{a} → {b}; {words[state]}."
