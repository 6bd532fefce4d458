"""Shares kernels without a match out among the fused kernels that ran at the same position.

Operators are read from the names of kernels, which are those of PyTorch, Inductor and libraries.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from nsight_prof.reports.compare import settings
from nsight_prof.reports.compare.sides import Kernel

VANISHING = frozenset({"copy", "fill", "cat", "index"})
"""Operators that a compiler turns into addressing: a fused kernel need not name them."""
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
    known: Mapping[str, str] = settings("operators")
    found = {known[word] for word in _WORD.findall(text.lower()) if word in known}
    if fused:
        found |= {inner for name in found for inner in settings("taken_apart").get(name, ())}
    found |= {name for name, words in settings("spelt_out").items() if found.issuperset(words)}
    return frozenset(name for name in found if settings("hidden_by").get(name) not in found)


def operators_of(kernel: Kernel) -> frozenset[str]:
    """Return the operators that the names of a kernel tell."""
    return operators(kernel.short_name, kernel.name)


def is_helper(kernel: Kernel) -> bool:
    """Return whether a kernel finishes the work of the one before it (a split-K reduction, say)."""
    return _helpers().search(kernel.short_name) is not None


def role(kernel: Kernel) -> str | None:
    """Return the kind of a kernel of which the program has one per operator, whatever its name.

    Products, convolutions, attention and collectives are counted off against each other in order.
    """
    has_role = kernel.category in settings("places") and not is_helper(kernel)
    return kernel.category if has_role else None


@cache
def _helpers() -> re.Pattern[str]:
    return re.compile(settings("helpers"), re.IGNORECASE)


@dataclass(frozen=True)
class Item:
    """Launches of a kernel in a stretch: one, or all of them. `at`: 0 first to 1 last."""

    kernel: Kernel
    positions: tuple[int, ...]
    at: float

    @property
    def operators(self) -> frozenset[str]:
        """The operators that its names tell."""
        return operators_of(self.kernel)


@dataclass(frozen=True)
class Group:
    """Items of A that became the items of B; the hub is the single item of the side `hub_side`."""

    hub_side: str
    hub_id: str
    a: tuple[Item, ...]
    b: tuple[Item, ...]
    by_place: bool


@dataclass(frozen=True)
class Shared:
    """Groups of a stretch, and what has nothing on the other side."""

    groups: tuple[Group, ...]
    alone_a: tuple[Item, ...]
    alone_b: tuple[Item, ...]


def shared_out(a: Sequence[Item], b: Sequence[Item], near: bool) -> Shared:
    """Give each item of the side that has more to an item of the other, its hub.

    It goes to the hub whose operators include most of its operators, the nearest of these. Where
    names do not tell, it goes to the nearest, if the items are launches of one short stretch
    (`near`). An item whose operators are known and that no hub has stays alone, unless compilers
    let such operators vanish.
    """
    if not a or not b:
        return Shared((), tuple(a), tuple(b))
    hubs_are_a = _hubs_are_a(a, b)
    hubs, many = (a, b) if hubs_are_a else (b, a)
    given: dict[int, list[Item]] = defaultdict(list)
    guessed: set[int] = set()
    alone = []
    for item in many:
        hub, certain = _hub_of(item, hubs, near)
        if hub is None:
            alone.append(item)
            continue
        given[hub].append(item)
        if not certain:
            guessed.add(hub)
    groups = []
    for index, hub_item in enumerate(hubs):
        if items := tuple(given[index]):
            a, b = ((hub_item,), items) if hubs_are_a else (items, (hub_item,))
            side = "a" if hubs_are_a else "b"
            groups.append(Group(side, hub_item.kernel.kernel_id, a, b, index in guessed))
    idle, rest = tuple(hub for i, hub in enumerate(hubs) if not given[i]), tuple(alone)
    return Shared(tuple(groups), *((idle, rest) if hubs_are_a else (rest, idle)))


def _hubs_are_a(a: Sequence[Item], b: Sequence[Item]) -> bool:
    """Return whether the fused kernels are those of A: fewer, or of more operators each."""
    if len(a) != len(b):
        return len(a) < len(b)
    return sum(len(i.operators) for i in a) > sum(len(i.operators) for i in b)


def _hub_of(item: Item, hubs: Sequence[Item], near: bool) -> tuple[int | None, bool]:
    """Return the index of the hub in `hubs`, and whether an operator's name ties them."""
    known = item.operators
    candidates = [i for i, hub in enumerate(hubs) if _may_include(role(item.kernel), hub)]
    if not candidates:
        return None, False

    def nearness(index: int) -> float:
        return -abs(hubs[index].at - item.at)

    best = max(candidates, key=lambda i: (len(known & hubs[i].operators), nearness(i)))
    if known & hubs[best].operators:
        return best, True
    if not near:
        return None, False
    # A kernel that fused several operators may include one whose name it does not show.
    vanishing = known and known <= VANISHING
    silent = [i for i in candidates if vanishing or _is_silent(hubs[i], known)]
    return (max(silent, key=nearness), False) if silent else (None, False)


def _is_silent(hub: Item, known: frozenset[str]) -> bool:
    """Return whether the names say nothing against an item in a hub."""
    return not hub.operators or (not known and len(hub.operators) > 1)


def _may_include(item_role: str | None, hub: Item) -> bool:
    """Return whether a kernel of that role may be in a hub: products stay products."""
    of_hub = role(hub.kernel)
    return item_role == of_hub or (item_role is None and of_hub is not None and bool(hub.operators))
