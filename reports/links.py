"""Links from the words of a report to their places on the page: kernels by name, numbers by id.

The text itself stays plain: metrics.json and the summary have it without links.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from nsight_prof.reports.findings.model import Finding
from nsight_prof.reports.formats import Markdown, code, escape, quantity
from nsight_prof.reports.page import Evidence, Number, Text
from nsight_prof.reports.page.writer import Writer
from nsight_prof.reports.places import Place, Places, idle_anchor, roof_anchor, stage_anchor
from nsight_prof.reports.view_models import KernelRow, ReportView

MOST = 4
"""Kernels of one name that are linked one by one."""
_WORD = re.compile(r"[a-z]+")
"""A kernel name that is a plain word: elsewhere than at the start it is likely just that word."""


def linked(text: Text | str, kernels: Iterable[KernelRow], numbers: Sequence[int] = ()) -> Markdown:
    """Return `text` for markdown, with the names of kernels as links to their sections.

    Where kernels of `numbers` have the name, it means these; several of one name are told apart by
    their numbers behind it.
    """
    text = Writer().text(text) if isinstance(text, Text) else text
    named = _named(kernels, numbers)
    if not named:
        return escape(text)
    longest_first = sorted(named, key=len, reverse=True)
    # A name that goes on (", strided") is the name of another kernel, which the page has not.
    pattern = re.compile(rf"(?<!\w)({'|'.join(map(re.escape, longest_first))})(?!\w)(?!, [a-z0-9])")
    parts, at = [], 0
    for found in pattern.finditer(text):
        if found.start() and _WORD.fullmatch(found[0]):
            continue
        numbers = named[found[0]]
        parts += [_escaped(text[at : found.start()]), _link(found[0], numbers)]
        at = found.end()
        if len(numbers) > 1:
            # One pair of brackets, also where the text has one there.
            inside = text.startswith(" (", at)
            parts.append("; " if inside else ")")
            at += 2 * inside
    return Markdown("".join([*parts, _escaped(text[at:])]))


def _escaped(text: str) -> str:
    """Escape a part of a sentence, the spaces at its ends kept."""
    words = escape(text)
    before = " " if text[:1].isspace() and words else ""
    after = " " if text[-1:].isspace() else ""
    return f"{before}{words}{after}"


def _named(kernels: Iterable[KernelRow], numbers: Sequence[int]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = defaultdict(list)
    meant: dict[str, list[int]] = defaultdict(list)
    for kernel in kernels:
        found[kernel.short_name].append(kernel.number)
        if kernel.number in numbers:
            meant[kernel.short_name].append(kernel.number)
    return {name: meant.get(name, places) for name, places in found.items() if name}


def _link(name: str, numbers: Sequence[int]) -> str:
    """Return the name as a link, or with the numbers behind it in a bracket that stays open."""
    if len(numbers) == 1:
        return f"[{escape(name)}](#kernel-{numbers[0]})"
    links = [f"[{number}](#kernel-{number})" for number in numbers[:MOST]]
    more = ", …" if len(numbers) > MOST else ""
    return f"{escape(name)} ({', '.join(links)}{more}"


def evidence_value(row: Evidence, finding: Finding, places: Places) -> Markdown:
    """Return the value of a row of evidence, as a link to the row that holds it."""
    if isinstance(row.value, Number):
        shown = escape(quantity(row.value.value, row.value.unit))
    else:
        shown = escape(Writer().value(row.value))
    anchor = places.of_value(row, finding)
    return Markdown(f"[{shown}](#{anchor})") if anchor else shown


def places(given: Iterable[Place]) -> Markdown:
    """Return names of numbers as code, each a link where the page shows it; "–" for none."""
    return Markdown(", ".join(_place(place) for place in given) or "–")


def _place(place: Place) -> str:
    whose = f" of {place.kernel}" if place.kernel is not None else ""
    return f"[{code(place.name)}{whose}](#{place.anchor})" if place.anchor else code(place.name)


@dataclass(frozen=True)
class Anchors:
    """Ids of rows that the evidence of a report leads to: only these rows get one.

    Thousands of rows that nothing leads to would make a page too large to be shown.
    """

    wanted: frozenset[str]

    def mark(self, anchor: str) -> str:
        """Return the HTML of an id that is led to, else nothing."""
        return f'<a id="{anchor}"></a>' if anchor in self.wanted else ""


def anchors_of(view: ReportView) -> Anchors:
    """Return the ids that the evidence of a report leads to."""
    found = (
        place.anchor
        for finding in view.findings
        for row in finding.evidence
        for place in view.places.of_evidence(row, finding)
    )
    return Anchors(frozenset(found))


FILTERS: dict[str, Callable[..., str]] = {
    "stage_anchor": stage_anchor,
    "idle_anchor": idle_anchor,
    "roof_anchor": roof_anchor,
    "linked": linked,
    "evidence_value": evidence_value,
    "places": places,
}
