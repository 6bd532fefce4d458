"""What a benchmark target says about its cases: the words that the harness measures by."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Scalar = str | int | float | bool

MODES = ("cold", "hot")
DATA = ("normal", "zeros")
LAUNCHES = ("graph", "eager")
DURATIONS = ("", "burst", "steady")
_NAME = re.compile(r"[a-z0-9.+x/_-]+")


class Unsupported(Exception):
    """A case cannot run here: no such kernel, dtype, shape or package. Its text is the reason."""


@dataclass(frozen=True)
class Work:
    """What one call does, by formula; None where it has no such number.

    Attributes:
        flops: floating-point operations; a multiply-add counts as two.
        bytes: bytes that the operation must move to and from the level that it loads.
        accesses: dependent accesses one after another, for a latency.
        launches: kernel launches, where the cost of a launch is what is measured.
    """

    flops: float | None = None
    bytes: float | None = None
    accesses: int | None = None
    launches: int | None = None


@dataclass(frozen=True)
class Roof:
    """The roof that a case is a candidate for.

    Attributes:
        level_or_pipe: a level (dram l2 l1 shared host) or a pipe (fp64 fp32 fp16 tensor).
        kind: read write copy memcpy scale triad latency | fma | burst steady | h2d-pinned
            h2d-pageable d2h-pinned d2h-pageable d2d-copy | launch launch-graph.
        dtype: of a tensor roof: bf16, fp8, ...
    """

    level_or_pipe: str
    kind: str
    dtype: str = ""


@dataclass(frozen=True)
class Setup:
    """What `Case.prepare` gets.

    Attributes:
        device: the torch.device to put buffers on.
        copies: how many calls on buffers of their own to return; 1 when hot.
        data: "normal" (N(0, 1)) or "zeros".
        seed: of the random data.
        l2_bytes: size of the last-level cache in bytes.
    """

    device: Any
    copies: int
    data: str
    seed: int
    l2_bytes: int


Call = Callable[[], object]


@dataclass(frozen=True)
class Case:
    """One thing to measure, in each of its modes and kinds of data.

    Attributes:
        name: path-like and unique in the target: "dram/read/one-shot-b256-u4".
        operation: what a reader calls it: "DRAM read", "linear qkv".
        prepare: returns `setup.copies` calls on buffers of their own, each of which does the
            work once. May raise Unsupported.
        work: what one call does.
        footprint_bytes: bytes that one call touches. When cold, there are so many copies that the
            other buffers used between two uses of one hold at least three times the L2.
        params: shape, launch shape, variant, model, back end ...
        dtype: of the data, "" where it does not matter.
        level: the level or pipe that the case is meant to load.
        modes: of "cold" (rotating over the copies) and "hot" (the same buffers again).
        data: of "normal" and "zeros".
        roof: the roof that it is a candidate for, or None.
        launch: "graph": short calls are batched in a CUDA graph; "eager": launched by the host
            one after another, as a user would.
        duration: "", "burst" (the first 20 ms after a pause) or "steady" (after 2 s of load).
        samples: measures by itself and returns seconds a call; then `prepare` is used only for
            counting.
        counted: False leaves it out when counters are collected.
        extra: more top-level fields of its record.
    """

    name: str
    operation: str
    prepare: Callable[[Setup], Sequence[Call]]
    work: Work
    footprint_bytes: float = 0
    params: Mapping[str, Scalar] = field(default_factory=dict)
    dtype: str = ""
    level: str = ""
    modes: tuple[str, ...] = ("cold",)
    data: tuple[str, ...] = ("normal",)
    roof: Roof | None = None
    launch: str = "graph"
    duration: str = ""
    samples: Callable[[Setup], Sequence[float]] | None = None
    counted: bool = True
    extra: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse what no record could hold.

        Raises:
            ValueError: a name with other characters, or an unknown mode, data, launch, duration.
        """
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"the case name {self.name!r} has characters other than a-z0-9.+x/_-")
        for what, values, known in (
            ("mode", self.modes, MODES),
            ("data", self.data, DATA),
            ("launch", (self.launch,), LAUNCHES),
            ("duration", (self.duration,), DURATIONS),
        ):
            unknown = [value for value in values if value not in known]
            if unknown or not values:
                raise ValueError(f"{self.name}: {what} {unknown} is none of {known}")


def case_id(case: Case, mode: str, data: str) -> str:
    """Return the name of a case in one mode on one kind of data: "dram/copy|cold|normal"."""
    return f"{case.name}|{mode}|{data}"
