"""What of a torch profiler's trace matters: host work by thread, and what the GPU did for it.

An item is an operator, a range (record_function, NVTX) or a CUDA call of the host. The items of a
thread nest by time: each gets the operator around it and the stage of the program. GPU work belongs
to the innermost operator that issued it, by Kineto's external id, else by the CUDA call.
"""

from __future__ import annotations

import re
import sys
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from nsight_prof.parsers.names.ranges import ENGINE_STEP, module_path
from nsight_prof.parsers.torch.events import Event
from nsight_prof.parsers.torch.gemm_shapes import Gemm, gemm_of

Thread = tuple[Any, Any]
StageOf = Callable[[str], str | None]


class Kind(Enum):
    """What an item of the host is."""

    OPERATOR = "cpu_op"
    RANGE = "user_annotation"
    CALL = "call"
    FRAME = "python_function"
    MEMORY = "memory"


@dataclass(slots=True)
class Instance:
    """One time that a stage ran: `number` counts all instances from 0; times in ns."""

    number: int
    stage: str
    start: int
    end: int


@dataclass(slots=True)
class Item:
    """Something that the host did; times in ns.

    `parent` is the operator around it, `inside` the time of operators right inside of it, `stage`
    the instance that it belongs to. `nested`: a matrix product inside of it has its work. `path` is
    the functions of the program around it, outermost first. Memory that was allocated, or freed
    where `bytes` is below 0, leaves `allocated` bytes on `device`.
    """

    kind: Kind
    name: str
    start: int
    end: int
    dims: Any = None
    types: Any = None
    parent: Item | None = None
    inside: int = 0
    stage: Instance | None = None
    gemm: Gemm | None = None
    nested: bool = False
    module: str = ""
    path: tuple[str, ...] = ()
    bytes: int = 0
    allocated: int = 0
    device: int = -1

    @property
    def operator(self) -> Item | None:
        """The item itself where it is an operator, else the operator around it."""
        return self if self.kind is Kind.OPERATOR else self.parent

    def product(self) -> Item | None:
        """Return the innermost matrix product that the item is, or is inside of."""
        item = self.operator
        while item is not None and item.gemm is None:
            item = item.parent
        return item


@dataclass(slots=True)
class GpuWork:
    """A kernel, copy or memset; `item` is the host's that issued it, None where that is not known.

    `grid` is XxYxZ; `graph`: a CUDA graph launched it.
    """

    name: str
    start: int
    duration: int
    is_kernel: bool
    grid: str
    device: int
    item: Item | None
    graph: bool


@dataclass
class Items:
    """All that was read. `instances` are those of stages, in the order of their start."""

    items: list[Item] = field(default_factory=list)
    work: list[GpuWork] = field(default_factory=list)
    instances: list[Instance] = field(default_factory=list)
    ranges: set[str] = field(default_factory=set)


_GPU = {"kernel": True, "gpu_memcpy": False, "gpu_memset": False}
_CALLS = ("cuda_runtime", "cuda_driver")
_HOST = {kind.value: kind for kind in (Kind.OPERATOR, Kind.RANGE, Kind.FRAME)}
_MEMORY, _CUDA = "[memory]", 1
# Kineto names a function by file, line of its definition and name; files below a folder of
# packages lose that folder. Those of torch, of the standard library and of prof's recorder explain
# nothing.
_FUNCTION = re.compile(r"(?P<file>.+\.py)\((?P<line>\d+)\): (?P<name>.+)")
LIBRARIES = re.compile(
    r"(?:.*/)?(?:(?:torch|site-packages|dist-packages|lib/python3[.\d]*)/|under_torch_profiler\.py)"
    r"|<frozen"
)
_GRAPH_LAUNCH = ("cudaGraphLaunch", "cuGraphLaunch")


def read_items(events: Iterable[Event], stage_of: StageOf) -> Items:
    """Read the events; `stage_of` gives the stage that a range's name begins, None for none."""
    threads: dict[Thread, list[Item]] = defaultdict(list)
    by_id: dict[int, Item] = {}
    calls: dict[int, Item] = {}
    gpu: list[Event] = []
    names: dict[str, str] = {}  # one object for each text
    for event in events:
        kind = str(event.get("cat"))
        if event.get("ph") != "X":
            if event.get("name") == _MEMORY:
                _memory(event, threads)
            continue
        if kind in _GPU:
            gpu.append(event)
        elif kind in _HOST or kind in _CALLS:
            _host(event, kind, threads, by_id, calls, names)
    found = Items()
    bare = []
    for items in threads.values():
        if not _nest(items, stage_of, found):
            bare.append(items)
        found.items += items
    _inherit(bare, found)
    found.instances.sort(key=lambda instance: instance.start)
    for number, instance in enumerate(found.instances):
        instance.number = number
    found.work = [_gpu(event, by_id, calls) for event in gpu]
    found.work.sort(key=lambda work: work.start)
    return found


def _ns(microseconds: Any) -> int:
    return round(float(microseconds) * 1000)


def _host(
    event: Event,
    kind: str,
    threads: dict[Thread, list[Item]],
    by_id: dict[int, Item],
    calls: dict[int, Item],
    names: dict[str, str],
) -> None:
    args = event.get("args") or {}
    text = str(event.get("name", ""))
    start = _ns(event["ts"])
    item = Item(
        _HOST.get(kind, Kind.CALL), names.setdefault(text, text), start, start + _ns(event["dur"])
    )
    if item.kind is Kind.CALL:
        if isinstance(number := args.get("correlation"), int):
            calls[number] = item
    else:
        item.dims, item.types = args.get("Input Dims"), args.get("Input type")
        if item.kind is Kind.OPERATOR:
            item.gemm = gemm_of(item.name, item.dims, item.types)
        if isinstance(number := args.get("External id"), int):
            by_id[number] = item
    threads[event.get("pid"), event.get("tid")].append(item)


def _memory(event: Event, threads: dict[Thread, list[Item]]) -> None:
    """Keep what was allocated or freed on a GPU; `Total Allocated` is what is held afterwards."""
    args = event["args"]
    if args.get("Device Type") != _CUDA:
        return
    at = _ns(event["ts"])
    item = Item(Kind.MEMORY, _MEMORY, at, at, bytes=int(args["Bytes"]),
                allocated=int(args.get("Total Allocated") or 0),
                device=int(args.get("Device Id") or 0))  # fmt: skip
    threads[event.get("pid"), event.get("tid")].append(item)


def function_of(name: str) -> str | None:
    """Return `file:line name` of a function of the program; None for one of torch or Python."""
    found = _FUNCTION.fullmatch(name)
    if (
        found is None
        or LIBRARIES.match(found["file"])
        or "/" not in found["file"]
        and (found["file"].removesuffix(".py") in sys.stdlib_module_names)
    ):
        return None
    return f"{found['file']}:{found['line']} {found['name']}"


def _nest(items: list[Item], stage_of: StageOf, found: Items) -> bool:
    """Give the items of a thread their operators and stages; tell whether it has any range."""
    items.sort(key=lambda item: (item.start, -item.end))
    stack: list[Item] = []  # operators and functions
    ranges: list[Item] = []  # may end inside of a function that began within them
    followed: Instance | None = None  # engine step whose work goes on behind its range
    has_range = False
    for item in items:
        around, outer = _innermost(stack, item.start), _innermost(ranges, item.start)
        if around is not None:
            item.parent, item.path = around.operator, around.path
        if outer is not None:
            item.stage, item.module = outer.stage, outer.module
        if item.kind is Kind.OPERATOR:
            _count(item)
        elif item.kind is Kind.FRAME:
            _enter(item)
        elif item.kind is Kind.RANGE:
            has_range = True
            found.ranges.add(item.name)
            _begin(item, stage_of, found)
            if ENGINE_STEP.fullmatch(item.name):
                followed = item.stage if outer is None or outer.stage is None else None
            ranges.append(item)
        if item.stage is None and item.kind is not Kind.RANGE:  # a range may hold the next step
            item.stage = followed
        if item.kind in (Kind.OPERATOR, Kind.FRAME):
            stack.append(item)
    return has_range


def _innermost(opened: list[Item], start: int) -> Item | None:
    """Take off what has ended; return what is open at a time."""
    while opened and opened[-1].end <= start:
        opened.pop()
    return opened[-1] if opened else None


def _enter(item: Item) -> None:
    """Add a function of the program to the path; each once, where it calls itself."""
    function = function_of(item.name)
    if function is not None and function not in item.path:
        item.path = (*item.path, function)


def _count(item: Item) -> None:
    """Take an operator's time from the one around it, and its product from all around it."""
    if item.parent is not None:
        item.parent.inside += item.end - item.start
    parent = item.parent if item.gemm is not None else None
    while parent is not None:
        parent.nested = True
        parent = parent.parent


def _begin(item: Item, stage_of: StageOf, found: Items) -> None:
    """Let a range begin a stage, where none is open, and a module."""
    item.module = module_path(item.name) or item.module
    name = stage_of(item.name) if item.stage is None else None
    if name is not None:
        item.stage = Instance(0, name, item.start, item.end)
        found.instances.append(item.stage)


def _inherit(bare: list[list[Item]], found: Items) -> None:
    """Give items of threads without ranges the stage that is open at the time.

    torch runs the backward pass on such a thread. Overlapping stages give none.
    """
    instances = sorted(found.instances, key=lambda instance: instance.start)
    starts = [instance.start for instance in instances]
    if any(a.end > b.start for a, b in zip(instances, instances[1:], strict=False)):
        return
    for item in (item for items in bare for item in items):
        index = bisect_right(starts, item.start) - 1
        if index >= 0 and item.start < instances[index].end:
            item.stage = instances[index]


def _gpu(event: Event, by_id: dict[int, Item], calls: dict[int, Item]) -> GpuWork:
    args = event.get("args") or {}
    call = calls.get(args.get("correlation", -1))
    graph = call is not None and call.name.startswith(_GRAPH_LAUNCH)
    item = by_id.get(args.get("External id", -1))
    if item is None or item.kind is Kind.RANGE:
        item = call or item
    grid = args.get("grid")
    return GpuWork(
        name=str(event.get("name", "")),
        start=_ns(event["ts"]),
        duration=_ns(event["dur"]),
        is_kernel=_GPU[str(event["cat"])],
        grid="x".join(str(size) for size in grid) if isinstance(grid, list) else "",
        device=args["device"] if isinstance(args.get("device"), int) else 0,
        item=call if graph else item,
        graph=graph,
    )
