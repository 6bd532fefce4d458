"""NVTX ranges and the kernels in them as one tree: GPU time, launches and idle time of each.

Idle time belongs to the range of the launch that ended it. What a node stands for is the time of
its kernels and copies plus the idle time before them; of several streams or GPUs it adds up.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from nsight_prof.parsers.cells import grouped
from nsight_prof.parsers.names.ranges import fold_repeats, shorten
from nsight_prof.reports.page.values import Text
from nsight_prof.reports.trace_view.models import IDLE_NODE, KERNEL, REST, Gaps, Kernels, Node, Work

SMALLEST = 0.001
"""Share of the whole below which children of a node are gathered."""


def tree_of(work: Work, gaps: Gaps, kernels: Kernels) -> Node:
    """Return the tree of a run; `kernels` are name, colour, number and facts by `work.kernel`."""
    width = len(kernels)
    codes, pairs = pd.factorize((work.path + 1) * width + work.kernel, sort=True)
    busy = np.bincount(codes, weights=work.duration)
    count = np.bincount(codes, weights=np.arange(len(codes)) < work.launches)
    idle = np.bincount(work.path[gaps.op] + 1, weights=gaps.duration, minlength=len(work.paths) + 1)
    names = [(), *_folded(work.paths)]
    root = Node(Text("whole run"))
    for pair, time, times in zip(pairs.tolist(), busy.tolist(), count.tolist(), strict=True):
        name, colour, number, _ = kernels[pair % width]
        leaf = Node(name, KERNEL, int(time), 0, int(times), colour, number)
        _add(root, names[pair // width], leaf)
    for path, time in enumerate(idle.tolist()):
        if time:
            _add(root, names[path], Node(Text("idle"), IDLE_NODE, 0, int(time)))
    return _gathered(root, max(root.total_ns, 1) * SMALLEST)


def _folded(paths: Sequence[str]) -> list[tuple[str, ...]]:
    """Return the names of each path; a number by which repeats differ becomes *."""
    split_paths = [path.split("/") if path else [] for path in paths]
    labels = list(dict.fromkeys(name for names in split_paths for name in names))
    folded = dict(zip(labels, fold_repeats([shorten(label) for label in labels]), strict=True))
    return [tuple(folded[name] for name in names) for names in split_paths]


def _add(root: Node, path: Sequence[str], leaf: Node) -> None:
    """Add a leaf under the ranges of `path`; one that is there gets its numbers."""
    node = root
    _count(node, leaf)
    for name in path:
        node = _child(node, Node(name))
        _count(node, leaf)
    _count(_child(node, Node(leaf.name, leaf.kind, colour=leaf.colour, kernel=leaf.kernel)), leaf)


def _child(node: Node, like: Node) -> Node:
    for child in node.children:
        if (child.name, child.kind, child.kernel) == (like.name, like.kind, like.kernel):
            return child
    node.children.append(like)
    return like


def _count(node: Node, leaf: Node) -> None:
    node.busy_ns += leaf.busy_ns
    node.idle_ns += leaf.idle_ns
    node.launches += leaf.launches


def _gathered(node: Node, minimum: float) -> Node:
    """Return the node with its children by size, small ones as one, idle time last."""
    groups = grouped(node.children, lambda c: c.total_ns >= minimum or c.kind == IDLE_NODE)
    small = groups.get(False, [])
    large = [_gathered(child, minimum) for child in groups.get(True, [])]
    if len(small) == 1:
        large.append(_gathered(small[0], minimum))
    elif small:
        rest = Node(Text("{n} smaller", n=len(small)), REST)
        for child in small:
            _count(rest, child)
        large.append(rest)
    large.sort(key=lambda child: (child.kind == IDLE_NODE, child.kind == REST, -child.total_ns))
    node.children = large
    return node
