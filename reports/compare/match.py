"""Matches the kernels of two runs stage by stage; every launch is in exactly one row.

Launches are paired in order (device by device, by start): the k-th of A with the k-th of B. What
stays without a partner comes out as stretches between pairs: there kernels were fused, split, added
or removed.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

import numpy as np

from nsight_prof.parsers.cells import grouped
from nsight_prof.reports.compare import settings, sides
from nsight_prof.reports.compare.sides import Durations, Kernel, Side

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


def shared_out(
    a: Sequence[Item], b: Sequence[Item], near: bool
) -> tuple[list[Group], tuple[Sequence[Item], Sequence[Item]]]:
    """Give each item of the side that has more to an item of the other, its hub.

    Returns the groups, and what of A and of B has nothing on the other side. An item goes to the
    hub whose operators include most of its operators, the nearest of these. Where names do not
    tell, it goes to the nearest, if the items are launches of one short stretch (`near`). An item
    whose operators are known and that no hub has stays alone, unless compilers let such operators
    vanish.
    """
    if not a or not b:
        return [], (a, b)
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
    idle = [hub for i, hub in enumerate(hubs) if not given[i]]
    return groups, (idle, alone) if hubs_are_a else (alone, idle)


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


Pair = tuple[int, int]
"""Position in A and position in B."""
ROUNDS = 3
"""A stretch between pairs may have equally often what all have not: it is looked at again."""
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


@dataclass(frozen=True)
class Launches:
    """Launches of one kernel in a row: how many, and their time in ns.

    `spread`: sample standard deviation of a launch in ns, NaN for one. `durations` are in launch
    order, None for a kernel summary. `portion`: of all launches of the kernel in the stage, 0 to 1.
    """

    kernel: Kernel
    calls: int
    total: float
    spread: float
    durations: Durations | None
    portion: float


@dataclass(frozen=True)
class Row:
    """Kernels of A and their counterpart in B, in one stage; those with most time first.

    `match` is identical, shape, replaced, fused, split, regrouped, new or gone. `by_place`: no
    operator's name ties some of them, only that they ran at the same position of the program.
    """

    stage: str
    match: str
    a: tuple[Launches, ...]
    b: tuple[Launches, ...]
    by_place: bool

    @property
    def total_a(self) -> float:
        """Time of A in ns."""
        return sum(launches.total for launches in self.a)

    @property
    def total_b(self) -> float:
        """Time of B in ns."""
        return sum(launches.total for launches in self.b)

    @property
    def calls(self) -> tuple[int, int]:
        """Launches of A and of B."""
        return sum(x.calls for x in self.a), sum(x.calls for x in self.b)

    @property
    def is_pair(self) -> bool:
        """Whether a single launch of A compares with one of B."""
        return self.match in ("identical", "shape", "replaced")


Stretch = tuple[Sequence[int], Sequence[int]]
"""Launches of A and of B that have no partner, in order, between two neighbouring pairs."""
Keys = tuple[Sequence[Hashable], Sequence[Hashable]]


def align(levels: Sequence[Keys]) -> tuple[list[Pair], list[Stretch]]:
    """Pair two sequences by keys, the most exact level first; return also what is between pairs.

    Each level gives the keys of A and of B; None pairs with nothing. A key pairs the k-th with the
    k-th occurrence within a stretch where both sides have it equally often; of pairs that
    contradict the order, the longest ascending chain stays.
    """
    stretches: list[Stretch] = [(range(len(levels[0][0])), range(len(levels[0][1])))]
    pairs: list[Pair] = []
    for keys in levels:
        for _ in range(ROUNDS):
            found = [_pairs_of(stretch, keys) for stretch in stretches]
            pieces = map(_between, stretches, found)
            stretches = [piece for of_stretch in pieces for piece in of_stretch]
            pairs += [pair for here in found for pair in here]
            if not any(found):
                break
    return sorted(pairs), [stretch for stretch in stretches if any(stretch)]


def _pairs_of(stretch: Stretch, keys: Keys) -> list[Pair]:
    of_a, of_b = (grouped(x, key.__getitem__) for x, key in zip(stretch, keys, strict=True))
    pairs = [
        pair
        for key, positions in of_a.items()
        if key is not None and len(positions) == len(of_b.get(key, ()))
        for pair in zip(positions, of_b[key], strict=True)
    ]
    return ascending(sorted(pairs))


def ascending(pairs: Sequence[Pair]) -> list[Pair]:
    """Return the longest chain of pairs, sorted by A, whose positions in B ascend (patience)."""
    ends: list[int] = []
    last: list[int] = []
    before: list[int] = []
    for index, (_, b) in enumerate(pairs):
        length = bisect_left(ends, b)
        before.append(last[length - 1] if length else -1)
        ends[length : length + 1] = [b]
        last[length : length + 1] = [index]
    chain: list[Pair] = []
    index = last[-1] if last else -1
    while index >= 0:
        chain.append(pairs[index])
        index = before[index]
    return chain[::-1]


def _between(stretch: Stretch, pairs: Sequence[Pair]) -> list[Stretch]:
    """Cut a stretch at its pairs."""
    found = []
    from_a = from_b = 0
    for a, b in [*pairs, (math.inf, math.inf)]:
        to_a, to_b = bisect_left(stretch[0], a), bisect_left(stretch[1], b)
        found.append((stretch[0][from_a:to_a], stretch[1][from_b:to_b]))
        from_a, from_b = to_a + 1, to_b + 1
    return [piece for piece in found if any(piece)]


@dataclass
class _Bag:
    """Positions of launches of A and of B that make a row."""

    sides: tuple[list[int], list[int]] = field(default_factory=lambda: ([], []))
    by_place: bool = False
    looped: bool = False


def match(a: Side, b: Side, rename: Mapping[str, str]) -> list[Row]:
    """Return the rows of all stages, the first run of each side; stages called as in `rename`."""
    of_a, of_b = (sides.sequences(side.run, rename) for side in (a, b))
    empty = sides.Sequence((), np.array([]))
    return [
        row
        for stage in dict.fromkeys([*of_a, *of_b])
        for row in _Stage(
            (of_a.get(stage, empty), of_b.get(stage, empty)), (a.kernels, b.kernels)
        ).rows(stage)
    ]


class _Stage:
    """Shares the launches of one stage out among rows."""

    def __init__(
        self,
        sequences: tuple[sides.Sequence, sides.Sequence],
        kernels: tuple[Mapping[str, Kernel], Mapping[str, Kernel]],
    ) -> None:
        self._sequences = sequences
        self._kernels = tuple(
            [known[key] for key in sequence.ids]
            for sequence, known in zip(sequences, kernels, strict=True)
        )
        self._bags: dict[tuple[str, str, str], _Bag] = defaultdict(_Bag)
        self._alone: tuple[list[int], list[int]] = ([], [])

    def rows(self, stage: str) -> list[Row]:
        """Return the rows; every launch is in one of them."""
        pairs, stretches = self._align()
        for pair in pairs:
            self._add(pair, ([pair[0]], [pair[1]]))
        partners = dict(pairs), {y: x for x, y in pairs}
        for stretch in stretches:
            self._share_out(self._without_helpers(stretch, partners))
        # What is alone on both sides and is the same kernel all the same, at another position.
        rest: Stretch = self._alone
        for identity in IDENTITIES:
            rest = self._common(rest, identity)
        for side, positions in enumerate(self._adopted(rest)):
            for x in positions:
                key = (("gone", "new")[side], self._kernels[side][x].kernel_id, "")
                self._bags[key].sides[side].append(x)
        return [self._row(stage, bag) for bag in self._bags.values()]

    def _adopted(self, rest: Stretch) -> Stretch:
        """Give a launch that stayed alone to the row of almost all launches of its kernel.

        Where operators in names say what became of its kernel elsewhere in the stage, to that row
        however many they are: the other side may do all of it in one kernel.
        """
        alone: tuple[list[int], list[int]] = [], []
        for side, (positions, kernels) in enumerate(zip(rest, self._kernels, strict=True)):
            # A kernel may be in several rows: what is missing is missing where it has fewest.
            homes = dict(
                sorted(
                    (
                        (key, (bag, len(found), _is_named(bag_key, bag)))
                        for bag_key, bag in self._bags.items()
                        for key, found in _by_kernel(bag.sides[side], kernels).items()
                    ),
                    key=lambda home: -home[1][1],
                )
            )
            count = Counter(kernels[x].kernel_id for x in positions)
            for x in positions:
                bag, others, is_named = homes.get(kernels[x].kernel_id, (None, 0, False))
                if bag and (is_named or count[kernels[x].kernel_id] <= STRAY * others):
                    bag.sides[side].append(x)
                else:
                    alone[side].append(x)
        return alone

    def _row(self, stage: str, bag: _Bag) -> Row:
        a, b = map(_launches, bag.sides, self._sequences, self._kernels)
        return Row(stage, _match_of(a, b, bag.looped), a, b, bag.by_place)

    def _align(self) -> tuple[Sequence[Pair], Sequence[Stretch]]:
        ids = [[kernel.kernel_id for kernel in kernels] for kernels in self._kernels]
        if sorted(ids[0]) == sorted(ids[1]):
            # The same launches: only those of several streams may have changed their order.
            return _by_rank(*ids), ()
        levels = [*IDENTITIES[1:], role]
        a, b = self._kernels
        return align([(list(map(identity, a)), list(map(identity, b))) for identity in levels])

    def _add(self, pair: Pair, positions: Stretch) -> _Bag:
        """Put launches of A and of B into the row of the kernels of a pair."""
        a, b = self._kernels
        bag = self._bags["pair", a[pair[0]].kernel_id, b[pair[1]].kernel_id]
        for of_bag, more in zip(bag.sides, positions, strict=True):
            of_bag += more
        return bag

    def _without_helpers(
        self, stretch: Stretch, partners: tuple[Mapping[int, int], Mapping[int, int]]
    ) -> Stretch:
        """Give kernels that finish another's work to the row of that kernel; return the others."""
        rest: tuple[list[int], list[int]] = [], []
        for x in stretch[0]:
            if (owner := _owner(x, self._kernels[0], partners[0])) is None:
                rest[0].append(x)
            else:
                self._add((owner, partners[0][owner]), ([x], []))
        for y in stretch[1]:
            if (owner := _owner(y, self._kernels[1], partners[1])) is None:
                rest[1].append(y)
            else:
                self._add((partners[1][owner], owner), ([], [y]))
        return rest

    def _share_out(self, stretch: Stretch) -> None:
        """Find what was fused or split in a stretch without partners."""
        long = len(stretch[0]) + len(stretch[1]) >= LONG
        if long:
            for identity in (*IDENTITIES, role):
                stretch = self._common(stretch, identity)
        a, b = (_items(x, of, long) for x, of in zip(stretch, self._kernels, strict=True))
        groups, nowhere = shared_out(a, b, not long)
        for group in groups:
            bag = self._bags[f"hub in {group.hub_side}", group.hub_id, ""]
            for of_bag, items in zip(bag.sides, (group.a, group.b), strict=True):
                of_bag += [p for item in items for p in item.positions]
            bag.by_place |= group.by_place
            bag.looped |= long
        for alone, rest in zip(self._alone, nowhere, strict=True):
            alone += [p for item in rest for p in item.positions]

    def _common(self, stretch: Stretch, identity: Identity) -> Stretch:
        """Make rows of kernels that are on both sides, and return the others."""
        a, b = self._kernels
        of_a = grouped(stretch[0], lambda x: identity(a[x]))
        of_b = grouped(stretch[1], lambda y: identity(b[y]))
        for key in [key for key in of_a if key is not None and key in of_b]:
            for x, y in self._shapes(of_a.pop(key), of_b.pop(key)):
                self._add((x[0], y[0]), (x, y)).looped = True
        rest_a, rest_b = (sorted(p for group in of.values() for p in group) for of in (of_a, of_b))
        return rest_a, rest_b

    def _shapes(self, a: list[int], b: list[int]) -> list[tuple[list[int], list[int]]]:
        """Pair launch shapes of a kernel by their first launch, where both have as many."""
        of_a, of_b = map(_by_kernel, (a, b), self._kernels)
        if len(of_a) != len(of_b):
            return [(a, b)]
        return list(zip(of_a.values(), of_b.values(), strict=True))


def _is_named(key: tuple[str, str, str], bag: _Bag) -> bool:
    """Return whether a row is of kernels fused or split whose names say so."""
    return key[0].startswith("hub") and not bag.by_place


def _by_kernel(positions: Iterable[int], kernels: Sequence[Kernel]) -> dict[Hashable, list[int]]:
    return grouped(positions, lambda x: kernels[x].kernel_id)


def _by_rank(a: Sequence[str], b: Sequence[str]) -> list[Pair]:
    """Pair the k-th launch of each kernel on both sides, which have it equally often."""
    rest = grouped(reversed(range(len(b))), b.__getitem__)
    return [(position, rest[key].pop()) for position, key in enumerate(a)]


def _owner(position: int, kernels: Sequence[Kernel], partner: Mapping[int, int]) -> int | None:
    """Return the launch whose work this kernel finishes: the last before it that has a role."""
    if not is_helper(kernels[position]):
        return None
    for before in range(position - 1, max(-1, position - 4), -1):
        if role(kernels[before]):
            return before if before in partner else None
    return None


def _items(positions: Sequence[int], kernels: Sequence[Kernel], by_kernel: bool) -> list[Item]:
    """Return the launches as items, each by itself or all of a kernel in one."""
    last = max(1, len(positions) - 1)
    ranks = grouped(
        range(len(positions)),
        lambda rank: kernels[positions[rank]].kernel_id if by_kernel else rank,
    )
    return [
        Item(kernels[positions[r[0]]], tuple(positions[x] for x in r), sum(r) / len(r) / last)
        for r in ranks.values()
    ]


def _launches(
    positions: Sequence[int], sequence: sides.Sequence, kernels: Sequence[Kernel]
) -> tuple[Launches, ...]:
    """Return the launches at `positions` kernel by kernel."""
    groups = grouped(sorted(positions), sequence.ids.__getitem__)
    count = Counter(key for key in sequence.ids if key in groups)
    found = []
    for key, group in groups.items():
        kernel, portion = kernels[group[0]], len(group) / count[str(key)]
        if sequence.summed:
            found.append(Launches(kernel, *sequence.summed[group[0]], None, portion))
            continue
        durations = sequence.durations[group]
        spread = float(durations.std(ddof=1)) if len(durations) > 1 else math.nan
        total = float(np.sum(durations))
        found.append(Launches(kernel, len(group), total, spread, durations, portion))
    return tuple(sorted(found, key=lambda launches: -launches.total))


def _match_of(a: tuple[Launches, ...], b: tuple[Launches, ...], looped: bool) -> str:
    """Return what became of the kernels of a row.

    `looped`: the runs loop differently often, so numbers of launches tell nothing.
    """
    if not a or not b:
        return "gone" if a else "new"
    if len(a) == len(b) == 1 and a[0].kernel.kernel_id == b[0].kernel.kernel_id:
        return "identical"
    if {x.kernel.short_name for x in a} == {x.kernel.short_name for x in b}:
        return "shape"
    counts = [len(side) if looped else sum(x.calls for x in side) for side in (a, b)]
    if counts[0] == counts[1]:
        return "replaced" if len(a) == len(b) == 1 else "regrouped"
    if min(len(a), len(b)) > 1:
        return "regrouped"
    return "fused" if counts[0] > counts[1] else "split"
