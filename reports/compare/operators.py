"""Reads from the names of kernels which operators of the program they compute."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache

from nsight_prof.reports.compare.wording import section

_WORD = re.compile(r"[a-z]+(?:\d+[a-z]+)*")
_INDUCTOR = re.compile(r"\btriton_(?:poi|red|per|for|tem)_(?:fused_)?(?P<ops>\w*?)(?:_\d+)?$")


@cache
def operators(short_name: str, name: str) -> frozenset[str]:
    """Return the operators that a kernel's names tell; empty where they tell none.

    Inductor joins the operators that it fused by underscores (`triton_poi_fused_add_mul_silu_3`);
    for other kernels the readable name holds the operator ("PyTorch mul, bf16, strided").
    """
    fused = _INDUCTOR.search(name)
    text = fused["ops"].replace("_", " ") if fused else short_name
    words = _WORD.findall(text.lower())
    known: Mapping[str, str] = section("operators")
    found = {known[word] for word in words if word in known}
    if fused:
        found |= {part for name in found for part in section("taken_apart").get(name, ())}
    found |= {name for name, all_of in section("spelt_out").items() if found.issuperset(all_of)}
    return frozenset(name for name in found if section("hidden_by").get(name) not in found)


def is_helper(short_name: str) -> bool:
    """Tell whether a kernel finishes the work of the one before it (a split-K reduction, say)."""
    return _helpers().search(short_name) is not None


def place(short_name: str, category: str) -> str | None:
    """Return what a kernel stands for in the program whatever it is called, or None.

    One product, convolution, attention or collective of the program is one such kernel, so that
    they can be counted off against each other in both runs.
    """
    return category if category in _places() and not is_helper(short_name) else None


@cache
def _places() -> frozenset[str]:
    return frozenset(section("places"))


@cache
def _helpers() -> re.Pattern[str]:
    return re.compile(section("helpers"), re.IGNORECASE)
