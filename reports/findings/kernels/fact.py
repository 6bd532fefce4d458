"""Numbers of a kernel that rules look at, and conditions on them in three-valued logic.

A condition on a fact that is not known is unknown (None), and so may be an expression of several
(Kleene): a rule that hangs on the unknown abstains, one that fails anyway is silent.
"""

from __future__ import annotations

import math
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from nsight_prof.parsers.build.roofline import Ceilings
from nsight_prof.parsers.cells import Row, text
from nsight_prof.reports.analysis.declared import Need
from nsight_prof.reports.page.values import Number, Ref, Text, Verbatim

Facts = Mapping[str, float]
"""Values of one kernel by the name of the fact; NaN where unknown."""
ABOVE, AT_LEAST, AT_MOST, BELOW, UNKNOWN = "above", "at least", "at most", "below", "unknown"
TESTS: dict[str, Callable[[float, float], bool]] = {
    ABOVE: operator.gt,
    AT_LEAST: operator.ge,
    AT_MOST: operator.le,
    BELOW: operator.lt,
}


@dataclass(frozen=True)
class Context:
    """What facts need beside the counters of a kernel; `sms` is NaN where unknown."""

    sms: float = math.nan
    roofs: Ceilings = field(default_factory=lambda: Ceilings({}, {}))
    needs: dict[str, Need] = field(default_factory=dict)

    def need(self, row: Row) -> Need:
        """Return what the work of a kernel needs, as far as the program tells."""
        return self.needs.get(text(row.get("kernel_id")), Need())


@dataclass(frozen=True)
class Fact:
    """A number of a kernel that rules look at (reports.findings.kernels.measure computes it).

    Attributes:
        label: what it is; None for what a kernel is by itself, which the question of a rule tells.
        of: columns of `counters` that it is computed from; a missing one makes rules abstain.
        also: other columns, or "table.column".
        missing: why it may be unknown although its columns are there.
        is_column: it is the column itself.
        detail: the label for one kernel, where that says more.
    """

    name: str
    label: Text | None = None
    unit: str = ""
    of: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    missing: Text | None = None
    is_column: bool = False
    detail: Callable[[Row], Text] | None = None

    def __lt__(self, limit: float) -> Condition:
        """Return the condition that it is below a limit."""
        return Condition(self, BELOW, limit)

    def __le__(self, limit: float) -> Condition:
        """Return the condition that it is at most a limit."""
        return Condition(self, AT_MOST, limit)

    def __gt__(self, limit: float) -> Condition:
        """Return the condition that it is above a limit."""
        return Condition(self, ABOVE, limit)

    def __ge__(self, limit: float) -> Condition:
        """Return the condition that it is at least a limit."""
        return Condition(self, AT_LEAST, limit)

    @property
    def unknown(self) -> Condition:
        """The condition that it is not known."""
        return Condition(self, UNKNOWN, math.nan)

    def label_of(self, row: Row) -> Text:
        """Return the label for a kernel."""
        assert self.label is not None
        return self.detail(row) if self.detail else self.label

    def number(self, value: float, row: Row) -> Number:
        """Return its value for a kernel, with the cells that it is read or computed from."""
        refs = tuple(cell(name, text(row.get("kernel_id"))) for name in self.of + self.also)
        # A reader of a computed number is led to what it is made of, not to a row that shows it.
        computed = () if self.is_column else tuple(replace(ref, column="") for ref in refs[:1])
        return Number(value, self.unit, (*refs, *computed))


def cell(name: str, kernel_id: str) -> Ref:
    """Return the cell of a column of `counters`, or of "table.column", of a kernel."""
    if name == "top_stall":
        return Ref("stalls", kernel_id, "share")
    table, _, column = name.rpartition(".")
    of_kernel = table in ("", "counters", "kernels", "stalls")
    return Ref(table or "counters", kernel_id if of_kernel else "", column)


class Expression(ABC):
    """Conditions of a rule, joined by & and |."""

    @abstractmethod
    def evaluate(self, facts: Facts) -> bool | None:
        """Return whether it holds; None where that hangs on what is not known."""

    @abstractmethod
    def conditions(self) -> tuple[Condition, ...]:
        """Return all conditions in it."""

    @abstractmethod
    def decisive(self, facts: Facts) -> tuple[Condition, ...]:
        """Return its conditions; of alternatives those of the one that is nearest to holding."""

    @abstractmethod
    def undecided(self, facts: Facts) -> tuple[Condition, ...]:
        """Return the unknown conditions that it hangs on."""

    def __and__(self, second: Expression) -> Expression:
        """Return that both hold."""
        return All((*_members(All, self), *_members(All, second)))

    def __or__(self, second: Expression) -> Expression:
        """Return that one of both holds."""
        return AnyOf((*_members(AnyOf, self), *_members(AnyOf, second)))


def _members(kind: type[All | AnyOf], expression: Expression) -> tuple[Expression, ...]:
    return expression.members if isinstance(expression, kind) else (expression,)


@dataclass(frozen=True)
class Condition(Expression):
    """One test of a fact; with `if_known` it holds where the fact is not known, too."""

    fact: Fact
    test: str
    limit: float
    if_known: bool = False

    def or_unknown(self) -> Condition:
        """Return the same, but true where the fact is not known."""
        return replace(self, if_known=True)

    def evaluate(self, facts: Facts) -> bool | None:
        """Return whether it holds; None where the fact is not known."""
        value = facts[self.fact.name]
        if self.test == UNKNOWN:
            return math.isnan(value)
        if math.isnan(value):
            return True if self.if_known else None
        return TESTS[self.test](value, self.limit)

    def conditions(self) -> tuple[Condition, ...]:
        """Return itself."""
        return (self,)

    def decisive(self, _facts: Facts) -> tuple[Condition, ...]:
        """Return itself."""
        return (self,)

    def undecided(self, facts: Facts) -> tuple[Condition, ...]:
        """Return itself where it is unknown."""
        return (self,) if self.evaluate(facts) is None else ()

    @property
    def threshold(self) -> Text:
        """The limit for readers, such as "under 80 %"."""
        limit = Verbatim(f"{self.limit:g} {self.fact.unit}".rstrip())
        texts = {
            ABOVE: Text("over {limit}", limit=limit),
            AT_LEAST: Text("{limit} or more", limit=limit),
            AT_MOST: Text("{limit} or less", limit=limit),
            BELOW: Text("under {limit}", limit=limit),
        }
        return texts.get(self.test, Text("not known"))


@dataclass(frozen=True)
class _Several(Expression):
    members: tuple[Expression, ...]

    def conditions(self) -> tuple[Condition, ...]:
        """Return the conditions of all members."""
        return tuple(c for p in self.members for c in p.conditions())


class All(_Several):
    """All parts hold."""

    def evaluate(self, facts: Facts) -> bool | None:
        """Return whether all hold."""
        values = [p.evaluate(facts) for p in self.members]
        return False if False in values else (None if None in values else True)

    def decisive(self, facts: Facts) -> tuple[Condition, ...]:
        """Return the decisive conditions of all parts."""
        return tuple(c for p in self.members for c in p.decisive(facts))

    def undecided(self, facts: Facts) -> tuple[Condition, ...]:
        """Return the unknown conditions of parts that are unknown."""
        return tuple(c for p in self.members for c in p.undecided(facts))


class AnyOf(_Several):
    """One of the parts holds."""

    def evaluate(self, facts: Facts) -> bool | None:
        """Return whether one holds."""
        values = [p.evaluate(facts) for p in self.members]
        return True if True in values else (None if None in values else False)

    def decisive(self, facts: Facts) -> tuple[Condition, ...]:
        """Return the conditions of the alternative of which the fewest fail."""

        def failing(expression: Expression) -> int:
            return sum(c.evaluate(facts) is not True for c in expression.conditions())

        return min(self.members, key=failing).decisive(facts)

    def undecided(self, facts: Facts) -> tuple[Condition, ...]:
        """Return the unknown conditions of all alternatives where none is known to hold."""
        if self.evaluate(facts) is not None:
            return ()
        return tuple(c for c in self.conditions() if c.evaluate(facts) is None)
