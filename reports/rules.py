"""Reads the rules of kernels (kernel_rules.yaml) and tells which fire for given facts.

Facts stand in kernel_facts.yaml, what is told beside the rules in kernel_words.yaml. A condition on
a fact that is not known is unknown, and so may be the rule (Kleene's three-valued logic): a rule
that hangs on the unknown abstains, one that fails anyway is silent.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from nsight_prof.parsers.packaged import packaged_yaml

Facts = Mapping[str, float]
"""Numbers of one kernel by the name of the fact; NaN where unknown."""

TESTS: dict[str, tuple[str, Callable[[float, float], bool]]] = {
    "above": ("over", operator.gt),
    "at_least": ("", operator.ge),
    "at_most": ("", operator.le),
    "below": ("under", operator.lt),
}
SUFFIXES = {"at_least": " or more", "at_most": " or less"}
DEFECT, FEW_WARPS, WAIT, OTHER = 1, 2, 3, 4
"""Ranks: what is wrong comes before its symptoms."""


@dataclass(frozen=True)
class Fact:
    """A number that rules look at: label and unit for readers, `of` the columns it is made of.

    `why` says why it may be unknown although these columns are there; `also` names what else it is
    made of: further columns of `counters`, or "table.column".
    """

    name: str
    label: str
    unit: str
    of: tuple[str, ...]
    why: str = ""
    also: tuple[str, ...] = ()

    @property
    def where(self) -> tuple[str, ...]:
        """Where a reader finds it: keys of metrics.yaml or "table.column" (see Evidence)."""
        return tuple(
            "stalls.share" if name == "top_stall" else name for name in self.of + self.also
        )


@dataclass(frozen=True)
class Condition:
    """One test of a fact; `unknown` holds where the fact is not known, `if_known` there too."""

    fact: str
    test: str
    limit: float
    if_known: bool = False

    def holds(self, facts: Facts) -> bool | None:
        """Return whether it holds; None where the fact is not known."""
        value = facts[self.fact]
        if self.test == "unknown":
            return math.isnan(value)
        if math.isnan(value):
            return True if self.if_known else None
        return TESTS[self.test][1](value, self.limit)

    def words(self, unit: str) -> str:
        """Return the threshold for readers, such as "under 80 %"."""
        if self.test == "unknown":
            return "not known"
        text = f"{TESTS[self.test][0]} {self.limit:g}".strip() + SUFFIXES.get(self.test, "")
        number, _, rest = text.partition(f"{self.limit:g}")
        return f"{number}{self.limit:g}{f' {unit}' if unit else ''}{rest}"


@dataclass(frozen=True)
class Rule:
    """One rule; see kernel_rules.yaml for what the fields mean.

    `reach` is the part of each roof, 0 to 1, up to which it takes a kernel (kernel_words.yaml).
    """

    key: str
    asks: str
    rank: int
    when: tuple[Condition, ...]
    any: tuple[tuple[Condition, ...], ...]
    promote: tuple[Condition, ...]
    unless: tuple[str, ...]
    against: tuple[Condition, ...]
    bounds: tuple[str, ...]
    shows: tuple[str, ...]
    spent: str
    left: str
    relieves: Mapping[str, str]
    reach: float
    limiter: str
    source: str
    confidence: str
    text: str
    wait: str
    repair: str
    action: str
    advice: str
    estimate: str
    disprove: str

    @property
    def about(self) -> bool:
        """Whether its gain is an estimate, which the truth may exceed, and no bound."""
        return bool(self.relieves) or self.reach < 1

    def fires(self, facts: Facts) -> bool | None:
        """Return whether the rule fires; None where it hangs on facts that are not known."""
        groups = [_all(group, facts) for group in self.any] or [True]
        return _and([_all(self.when, facts), _or(groups)])

    def missing(self, facts: Facts) -> tuple[str, ...]:
        """Return the facts that are not known and that decide."""
        asked = list(self.when)
        if _or(_all(group, facts) for group in self.any) is None:
            asked += [condition for group in self.any for condition in group]
        names = dict.fromkeys(c.fact for c in asked if c.holds(facts) is None)
        return tuple(names)

    def rank_for(self, facts: Facts) -> int:
        """Return the rank, raised where the conditions of `promote` hold."""
        return FEW_WARPS if self.promote and _all(self.promote, facts) else self.rank

    def conditions(self) -> tuple[Condition, ...]:
        """Return all conditions that must hold, and those of the groups of which one must."""
        return (*self.when, *(condition for group in self.any for condition in group))


def _and(values: Iterable[bool | None]) -> bool | None:
    found = list(values)
    return False if False in found else (None if None in found else True)


def _or(values: Iterable[bool | None]) -> bool | None:
    found = list(values)
    return True if True in found else (None if None in found else False)


def _all(conditions: Iterable[Condition], facts: Facts) -> bool | None:
    return _and(condition.holds(facts) for condition in conditions)


@cache
def _data() -> dict[str, Any]:
    loaded: dict[str, Any] = {}
    for name in ("kernel_rules", "kernel_facts", "kernel_words"):
        loaded |= packaged_yaml("nsight_prof.reports", f"{name}.yaml")
    return loaded


@cache
def kernel_rules() -> dict[str, Rule]:
    """Return the rules by key, in the order in which equal ones are told."""
    return {key: _rule(key, fields) for key, fields in _data()["rules"].items()}


@cache
def known_facts() -> dict[str, Fact]:
    """Return the facts that rules may show, by name."""
    return {
        name: Fact(
            name,
            fields["label"],
            fields.get("unit", ""),
            tuple(fields["of"]),
            fields.get("why", ""),
            tuple(fields.get("also", ())),
        )
        for name, fields in _data()["facts"].items()
    }


@cache
def saturated() -> dict[str, dict[str, Any]]:
    """Return for each bound the key and the disproof of a kernel that no rule explains."""
    found: dict[str, dict[str, Any]] = _data()["saturated"]
    return found


def against_bound(bound: str) -> tuple[Condition, ...]:
    """Return what speaks against a roof as the limit of a kernel that no rule explains."""
    fields: Mapping[str, Any] = saturated()[bound]
    return _conditions(fields.get("against", ()))


def full_roof() -> tuple[float, str]:
    """Return the per cent of a roof from which on nothing speaks against it, and its source."""
    full = _data()["doubts"]["full"]
    return float(full["value"]), str(full["source"])


def reach_source(rule: Rule) -> str:
    """Return whose limit the reach of a rule is."""
    return str(_data()["reach"][rule.spent]["source"])


def doubt_source() -> str:
    """Return from where on a fact speaks against a bound or a rule, and whose threshold it is."""
    return str(_data()["doubts"]["source"])


def doubt_text(fact: str, value: str = "") -> str:
    """Return what a contradicting or missing fact says, as a clause; `value` with its unit."""
    return str(_data()["doubts"]["texts"][fact]).format(value=value)


def wait_words(reason: str) -> tuple[str, str] | None:
    """Return action and advice for a stall reason; None where those of the rule hold."""
    found = _data()["waits"].get(reason)
    return (str(found["action"]), str(found["advice"])) if found else None


def parallel_words(category: str) -> str:
    """Return what to try for too few blocks of a category; empty where the rule's words hold."""
    return str(_data()["parallel"].get(category, ""))


def tensor_reason(key: str, **values: str) -> str:
    """Return why a matrix product misses the Tensor Cores, as the end of a clause."""
    return str(_data()["tensor_reasons"][key]).format(**values)


def _rule(key: str, fields: dict[str, Any]) -> Rule:
    plain = {
        name: str(fields.get(name, ""))
        for name in (
            *("asks", "spent", "left", "limiter", "source", "confidence"),
            *("text", "wait", "repair", "action", "advice", "estimate", "disprove"),
        )
    }
    return Rule(
        key=key,
        rank=int(fields["rank"]),
        when=_conditions(fields.get("when", ())),
        any=tuple(_conditions(group) for group in fields.get("any", ())),
        promote=_conditions(fields.get("promote", ())),
        unless=tuple(fields.get("unless", ())),
        against=_conditions(fields.get("against", ())),
        bounds=tuple(fields.get("bounds", ())),
        shows=tuple(fields.get("shows", ())),
        relieves=dict(fields.get("relieves", {})),
        reach=float(_data()["reach"].get(plain["spent"], {}).get("value", 100)) / 100,
        **plain,
    )


def _conditions(items: Iterable[dict[str, Any]]) -> tuple[Condition, ...]:
    return tuple(_condition(item) for item in items)


def _condition(item: dict[str, Any]) -> Condition:
    test = next(name for name in (*TESTS, "unknown") if name in item)
    limit = math.nan if test == "unknown" else float(item[test])
    return Condition(str(item["fact"]), test, limit, bool(item.get("if_known", False)))
