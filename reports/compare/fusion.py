"""Shares kernels without a partner out among the fused kernels that stand in the same place."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from nsight_prof.reports.compare.operators import operators, place
from nsight_prof.reports.compare.sides import Kernel

VANISHING = frozenset({"copy", "fill", "cat", "index"})
"""Operators that a compiler turns into addressing: their names need not stand in a fused kernel."""


@dataclass(frozen=True)
class Item:
    """Launches of a kernel in a stretch: one, or all of them. `at`: 0 first to 1 last."""

    kernel: Kernel
    positions: tuple[int, ...]
    at: float

    @property
    def operators(self) -> frozenset[str]:
        """What the kernel's names tell of its operators."""
        return operators(self.kernel.short_name, self.kernel.name)


@dataclass(frozen=True)
class Group:
    """Items of A that became the items of B; the hub is the one item of the side `hub_side`."""

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

    It goes to the hub whose operators hold most of its own, the nearest of these. Where names do
    not tell, it goes to the nearest, if the items are launches of one short stretch (`near`). An
    item whose operators are known and that no hub has stays alone, unless compilers let such
    operators vanish.
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
    groups = tuple(
        Group(
            "a" if hubs_are_a else "b",
            hub.kernel.kernel_id,
            (hub,) if hubs_are_a else tuple(given[index]),
            tuple(given[index]) if hubs_are_a else (hub,),
            index in guessed,
        )
        for index, hub in enumerate(hubs)
        if given[index]
    )
    idle = tuple(hub for index, hub in enumerate(hubs) if not given[index])
    rest = tuple(alone)
    return Shared(groups, *((idle, rest) if hubs_are_a else (rest, idle)))


def _hubs_are_a(a: Sequence[Item], b: Sequence[Item]) -> bool:
    """Tell on which side the fused kernels are: fewer, or of more operators each."""
    if len(a) != len(b):
        return len(a) < len(b)
    return sum(len(i.operators) for i in a) > sum(len(i.operators) for i in b)


def _hub_of(item: Item, hubs: Sequence[Item], near: bool) -> tuple[int | None, bool]:
    """Return the place of the hub in `hubs`, and whether an operator's name ties them."""
    known, role = item.operators, place(item.kernel.short_name, item.kernel.category)
    open_to = [i for i, hub in enumerate(hubs) if _may_hold(role, hub)]
    if not open_to:
        return None, False

    def nearness(index: int) -> float:
        return -abs(hubs[index].at - item.at)

    best = max(open_to, key=lambda i: (len(known & hubs[i].operators), nearness(i)))
    if known & hubs[best].operators:
        return best, True
    if not near:
        return None, False
    # A kernel that fused several operators may hold one whose name it does not show.
    vanishing = known and known <= VANISHING
    silent = [i for i in open_to if vanishing or _keeps_silent(hubs[i], known)]
    return (max(silent, key=nearness), False) if silent else (None, False)


def _keeps_silent(hub: Item, known: frozenset[str]) -> bool:
    """Tell whether the names say nothing against an item in a hub."""
    return not hub.operators or (not known and len(hub.operators) > 1)


def _may_hold(role: str | None, hub: Item) -> bool:
    """Tell whether a hub may be what became of a kernel with that place: products stay products."""
    of_hub = place(hub.kernel.short_name, hub.kernel.category)
    return role == of_hub or (role is None and of_hub is not None and bool(hub.operators))
