"""Matches the kernels of two runs stage by stage; every launch stands in exactly one row."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from nsight_prof.reports.compare import sides
from nsight_prof.reports.compare.align import Pair, Stretch, align
from nsight_prof.reports.compare.fusion import Item, shared_out
from nsight_prof.reports.compare.operators import is_helper, place
from nsight_prof.reports.compare.rows import Row, match_of, parts
from nsight_prof.reports.compare.sides import Kernel, Side

LONG = 240
"""Launches of a stretch from which on it is taken kernel by kernel: the runs loop differently."""
STRAY = 0.1
"""Of the launches of a kernel: as many without a partner go with the others."""
Identity = Callable[[Kernel], str | None]
IDENTITIES: tuple[Identity, ...] = (
    lambda kernel: kernel.kernel_id,
    lambda kernel: kernel.name,
    lambda kernel: kernel.short_name,
)


@dataclass
class _Bag:
    """Positions of launches of A and B that make a row."""

    a: list[int] = field(default_factory=list)
    b: list[int] = field(default_factory=list)
    by_place: bool = False
    looped: bool = False


def match(a: Side, b: Side, rename: Mapping[str, str]) -> list[Row]:
    """Return the rows of all stages, the first run of each side; stages called as in `rename`."""
    ours, theirs = (sides.sequences(side.run, rename) for side in (a, b))
    empty = sides.Sequence((), np.array([]))
    found = []
    for stage in dict.fromkeys([*ours, *theirs]):
        sequences = ours.get(stage, empty), theirs.get(stage, empty)
        found += _Stage(sequences, (a.kernels, b.kernels)).rows(stage)
    return found


class _Stage:
    """Shares the launches of one stage out among rows."""

    def __init__(
        self,
        sequences: tuple[sides.Sequence, sides.Sequence],
        kernels: tuple[Mapping[str, Kernel], Mapping[str, Kernel]],
    ) -> None:
        self._sequences = sequences
        self._a, self._b = (
            [known[key] for key in sequence.ids]
            for sequence, known in zip(sequences, kernels, strict=True)
        )
        self._bags: dict[tuple[str, str, str], _Bag] = defaultdict(_Bag)
        self._alone: tuple[list[int], list[int]] = ([], [])

    def rows(self, stage: str) -> list[Row]:
        """Return the rows; every launch is in one of them."""
        pairs, stretches = self._align()
        for x, y in pairs:
            self._pair((x,), (y,))
        partners = dict(pairs), {y: x for x, y in pairs}
        for stretch in stretches:
            self._share_out(self._without_helpers(stretch, partners))
        # What is alone on both sides and is the same kernel all the same, at another place.
        rest = Stretch(tuple(self._alone[0]), tuple(self._alone[1]))
        for identity in IDENTITIES:
            rest = self._common(rest, identity)
        rest = self._adopted(rest)
        for x in rest.a:
            self._bags["gone", self._a[x].kernel_id, ""].a.append(x)
        for y in rest.b:
            self._bags["new", "", self._b[y].kernel_id].b.append(y)
        return [self._row(stage, bag) for bag in self._bags.values()]

    def _adopted(self, rest: Stretch) -> Stretch:
        """Give a launch that stayed alone to the row of almost all launches of its kernel.

        Where operators in names say what became of its kernel elsewhere in the stage, to that row
        however many they are: the other side may do all of it in one place.
        """
        left: tuple[list[int], list[int]] = [], []
        for side, alone, kernels in ((0, rest.a, self._a), (1, rest.b, self._b)):
            # A kernel may be in several rows: what is missing is missing where it has fewest.
            homes = dict(
                sorted(
                    (
                        (kernels[where[0]].kernel_id, (bag, len(where), _is_named(key, bag)))
                        for key, bag in self._bags.items()
                        for where in _by(IDENTITIES[0], (bag.a, bag.b)[side], kernels).values()
                    ),
                    key=lambda home: -home[1][1],
                )
            )
            count = Counter(kernels[x].kernel_id for x in alone)
            for x in alone:
                bag, others, named = homes.get(kernels[x].kernel_id, (None, 0, False))
                if bag and (named or count[kernels[x].kernel_id] <= STRAY * others):
                    (bag.a, bag.b)[side].append(x)
                else:
                    left[side].append(x)
        return Stretch(tuple(left[0]), tuple(left[1]))

    def _row(self, stage: str, bag: _Bag) -> Row:
        a = parts(bag.a, self._sequences[0], self._a)
        b = parts(bag.b, self._sequences[1], self._b)
        return Row(stage, match_of(a, b, bag.looped), a, b, bag.by_place)

    def _align(self) -> tuple[Sequence[Pair], Sequence[Stretch]]:
        ids = [kernel.kernel_id for kernel in self._a], [kernel.kernel_id for kernel in self._b]
        if sorted(ids[0]) == sorted(ids[1]):
            # The same launches: only those of several streams may have changed their order.
            return _by_rank(*ids), ()
        levels = [*IDENTITIES[1:], _place]
        found = align([(list(map(k, self._a)), list(map(k, self._b))) for k in levels])
        return found.pairs, found.stretches

    def _pair(self, a: Sequence[int], b: Sequence[int]) -> _Bag:
        bag = self._bag_of(a[0], b[0])
        bag.a += a
        bag.b += b
        return bag

    def _without_helpers(
        self, stretch: Stretch, partners: tuple[Mapping[int, int], Mapping[int, int]]
    ) -> Stretch:
        """Give kernels that finish another's work to the row of that one; return the others."""
        rest: tuple[list[int], list[int]] = [], []
        for x in stretch.a:
            owner = _owner(x, self._a, partners[0])
            if owner is None:
                rest[0].append(x)
            else:
                self._bag_of(owner, partners[0][owner]).a.append(x)
        for y in stretch.b:
            owner = _owner(y, self._b, partners[1])
            if owner is None:
                rest[1].append(y)
            else:
                self._bag_of(partners[1][owner], owner).b.append(y)
        return Stretch(tuple(rest[0]), tuple(rest[1]))

    def _bag_of(self, x: int, y: int) -> _Bag:
        return self._bags["pair", self._a[x].kernel_id, self._b[y].kernel_id]

    def _share_out(self, stretch: Stretch) -> None:
        """Find what was fused or split in a stretch without partners."""
        long = len(stretch.a) + len(stretch.b) >= LONG
        if long:
            for identity in (*IDENTITIES, _place):
                stretch = self._common(stretch, identity)
        items = _by_kernel if long else _singly
        found = shared_out(items(stretch.a, self._a), items(stretch.b, self._b), not long)
        for group in found.groups:
            bag = self._bags[f"hub in {group.hub_side}", group.hub_id, ""]
            bag.a += [p for item in group.a for p in item.positions]
            bag.b += [p for item in group.b for p in item.positions]
            bag.by_place |= group.by_place
            bag.looped |= long
        for alone, items_alone in zip(self._alone, (found.alone_a, found.alone_b), strict=True):
            alone += [p for item in items_alone for p in item.positions]

    def _common(self, stretch: Stretch, identity: Identity) -> Stretch:
        """Make rows of kernels that are on both sides, and return the others."""
        of_a, of_b = _by(identity, stretch.a, self._a), _by(identity, stretch.b, self._b)
        for key in [key for key in of_a if key is not None and key in of_b]:
            for x, y in _shapes(of_a.pop(key), of_b.pop(key), self._a, self._b):
                self._pair(x, y).looped = True
        rest = [sorted(p for where in of.values() for p in where) for of in (of_a, of_b)]
        return Stretch(tuple(rest[0]), tuple(rest[1]))


def _is_named(key: tuple[str, str, str], bag: _Bag) -> bool:
    """Tell whether a row is of kernels fused or split whose names say so."""
    return key[0].startswith("hub") and not bag.by_place


def _place(kernel: Kernel) -> str | None:
    return place(kernel.short_name, kernel.category)


def _by(
    identity: Identity, positions: Iterable[int], kernels: Sequence[Kernel]
) -> dict[str | None, list[int]]:
    found: dict[str | None, list[int]] = defaultdict(list)
    for position in positions:
        found[identity(kernels[position])].append(position)
    return found


def _shapes(
    a: list[int], b: list[int], of_a: Sequence[Kernel], of_b: Sequence[Kernel]
) -> list[tuple[list[int], list[int]]]:
    """Pair launch shapes of a kernel in order of their first launch, where both have as many."""
    ours, theirs = _by(IDENTITIES[0], a, of_a), _by(IDENTITIES[0], b, of_b)
    if len(ours) != len(theirs):
        return [(a, b)]
    return list(zip(ours.values(), theirs.values(), strict=True))


def _by_rank(a: Sequence[str], b: Sequence[str]) -> list[Pair]:
    """Pair the k-th launch of each kernel on both sides, which have it equally often."""
    where: dict[str, list[int]] = defaultdict(list)
    for position in reversed(range(len(b))):
        where[b[position]].append(position)
    return [(position, where[key].pop()) for position, key in enumerate(a)]


def _owner(position: int, kernels: Sequence[Kernel], partner: Mapping[int, int]) -> int | None:
    """Return the launch whose work this one finishes: the last before it that has a place."""
    if not is_helper(kernels[position].short_name):
        return None
    for before in range(position - 1, max(-1, position - 4), -1):
        if place(kernels[before].short_name, kernels[before].category):
            return before if before in partner else None
    return None


def _singly(positions: Sequence[int], kernels: Sequence[Kernel]) -> list[Item]:
    last = max(1, len(positions) - 1)
    return [Item(kernels[p], (p,), rank / last) for rank, p in enumerate(positions)]


def _by_kernel(positions: Sequence[int], kernels: Sequence[Kernel]) -> list[Item]:
    last = max(1, len(positions) - 1)
    ranks: dict[str, list[int]] = defaultdict(list)
    for rank, p in enumerate(positions):
        ranks[kernels[p].kernel_id].append(rank)
    return [
        Item(
            kernels[positions[where[0]]],
            tuple(positions[rank] for rank in where),
            sum(where) / len(where) / last,
        )
        for where in ranks.values()
    ]
