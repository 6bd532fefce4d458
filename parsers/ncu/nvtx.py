"""Turns the NVTX state of a launch, as ncu saves it, into a path of range names.

The path is that of the push/pop ranges, outermost first; where there are none, the start/end ranges
in the order of the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

_COLUMN = re.compile(r"Domain:(Push/Pop|Start/Stop)_Range:")
_RANGE = re.compile(r'"([^"]*)"')
# domain:name:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg; only the name may hold colons.
_BEHIND_NAME = 6


def is_column(name: str) -> bool:
    """Return whether a CSV column holds NVTX ranges ("thread Domain:Push/Pop_Range:…")."""
    return bool(_COLUMN.search(name))


def parse_columns(cells: Mapping[str, str]) -> str | None:
    """Return the path that the NVTX columns of one CSV record hold, None where there are none."""
    found: dict[str, list[str]] = {}
    for name, text in cells.items():
        if kind := _COLUMN.search(name):
            found[kind[1]] = [_name(range_text) for range_text in _RANGE.findall(text)]
    return _path(found.get("Push/Pop", ()), found.get("Start/Stop", ()))


def path_of_state(state: Any) -> str | None:
    """Return the path of an `ncu_report.INvtxState`, None where there is none."""
    if state is None:
        return None
    domains = [state.domain_by_id(number) for number in state.domains()]
    pushed = [name for domain in domains for name in domain.push_pop_ranges()]
    started = [name for domain in domains for name in domain.start_end_ranges()]
    return _path(pushed, started)


def _path(pushed: Iterable[str], started: Iterable[str]) -> str | None:
    return "/".join(pushed) or "/".join(started) or None


def _name(text: str) -> str:
    fields = text.split(":")
    if len(fields) > _BEHIND_NAME + 1:
        return ":".join(fields[1:-_BEHIND_NAME])
    return fields[1] if len(fields) > 1 else text
