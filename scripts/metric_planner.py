"""Asks NVIDIA's CUPTI host library, with no GPU, what metrics a chip has and how many passes cost.

    pip install nvidia-cuda-cupti==13.0.85
    python scripts/metric_planner.py chips
    python scripts/metric_planner.py list GH100 [substring]
    python scripts/metric_planner.py passes GH100 METRIC [METRIC ...]
    python scripts/metric_planner.py catalogue      # the `passes` section of parsers/metrics.yaml

`launch__*`, `device__*` and a few more come from ncu itself and are unknown here. ncu 2025.3.1 on
an H200 needs the planner's number where that is 1, and one more otherwise. Set CUPTI_LIB to name
the library.
"""

from __future__ import annotations

import ctypes as c
import importlib.util
import os
import pathlib
import sys
from collections.abc import Iterable, Sequence
from typing import Any

Pointer, Size, Text = c.c_void_p, c.c_size_t, c.c_char_p

# Made by ncu, not by the hardware: no CUPTI name, no pass.
NCU_ONLY = ("launch__", "device__", "profiler__", "sm__maximum_warps_per_active_cycle_pct")


class LibraryMissing(Exception):
    """There is no CUPTI host library on this machine."""


def library() -> c.CDLL:
    """Load the CUPTI host library: $CUPTI_LIB, or that of the installed nvidia-cuda-cupti wheel.

    Raises:
        LibraryMissing: neither is there.
    """
    if named := os.environ.get("CUPTI_LIB"):
        return c.CDLL(named)
    spec = importlib.util.find_spec("nvidia")
    for root in (spec.submodule_search_locations or []) if spec else []:
        for path in sorted(pathlib.Path(root).glob("**/libcupti.so.1*"), reverse=True):
            return c.CDLL(str(path))
    raise LibraryMissing("libcupti not found: pip install nvidia-cuda-cupti==13.0.85")


def _struct(name: str, *fields: tuple[str, Any]) -> type[c.Structure]:
    # Each parameter struct of the API begins with its own size and a reserved pointer.
    return type(
        name, (c.Structure,), {"_fields_": [("structSize", Size), ("pPriv", Pointer), *fields]}
    )


_Initialize = _struct(
    "_Initialize",
    ("profilerType", c.c_int),
    ("chip", Text),
    ("availability", Pointer),
    ("host", Pointer),
)
_Deinitialize = _struct("_Deinitialize", ("host", Pointer))
_Chips = _struct("_Chips", ("count", Size), ("names", c.POINTER(Text)))
_Metrics = _struct(
    "_Metrics",
    ("host", Pointer),
    ("kind", c.c_int),
    ("names", c.POINTER(Text)),
    ("count", Size),
)
_Add = _struct("_Add", ("host", Pointer), ("names", Pointer), ("count", Size))
_ImageSize = _struct("_ImageSize", ("host", Pointer), ("size", Size))
_Image = _struct("_Image", ("host", Pointer), ("size", Size), ("buffer", Pointer))
_Passes = _struct("_Passes", ("size", Size), ("buffer", Pointer), ("count", Size))


def _call(lib: c.CDLL, name: str, params: Any) -> Any:
    last = getattr(type(params), params._fields_[-1][0])
    params.structSize = last.offset + last.size
    code = getattr(lib, f"cuptiProfilerHost{name}")(c.byref(params))
    if code:
        raise ValueError(f"cuptiProfilerHost{name} failed with {code}")
    return params


class Planner:
    """Answers for all chips, each question with a fresh profiler host object."""

    def __init__(self) -> None:
        self.lib = library()

    def chips(self) -> list[str]:
        """Return the chips that the library knows."""
        answer = _call(self.lib, "GetSupportedChips", _Chips())
        return [answer.names[i].decode() for i in range(answer.count)]

    def metrics(self, chip: str) -> set[str]:
        """Return the base metrics (name before the first dot) of a chip."""
        host = self._host(chip)
        found = set()
        for kind in range(3):
            answer = _call(self.lib, "GetBaseMetrics", _Metrics(host=host, kind=kind))
            found |= {answer.names[i].decode() for i in range(answer.count)}
        self._drop(host)
        return found

    def passes(self, chip: str, names: Iterable[str]) -> int:
        """Return the hardware passes of a list; names that are ncu's own are left out.

        Raises:
            ValueError: the chip lacks one of the metrics.
        """
        asked = [n.encode() for n in names if not n.startswith(NCU_ONLY)]
        host = self._host(chip)
        try:
            array = (Text * len(asked))(*asked)
            _call(
                self.lib,
                "ConfigAddMetrics",
                _Add(host=host, names=c.cast(array, Pointer), count=len(asked)),
            )
            size = _call(self.lib, "GetConfigImageSize", _ImageSize(host=host)).size
            image = c.create_string_buffer(size)
            where = c.cast(image, Pointer)
            _call(self.lib, "GetConfigImage", _Image(host=host, size=size, buffer=where))
            count = _call(self.lib, "GetNumOfPasses", _Passes(size=size, buffer=where)).count
        finally:
            self._drop(host)
        return int(count)

    def _host(self, chip: str) -> Any:
        params = _Initialize(profilerType=0, chip=chip.encode())
        return _call(self.lib, "Initialize", params).host

    def _drop(self, host: Any) -> None:
        _call(self.lib, "Deinitialize", _Deinitialize(host=host))


def recorded_sets(names: Sequence[str]) -> list[list[str]]:
    """Return the combinations of sets whose passes the catalogue records."""
    alone = [[name] for name in names]
    lean = [name for name in names if name != "stalls"]
    return [*alone, lean, list(names)]


def print_catalogue_passes(planner: Planner) -> None:
    """Print the `passes` section of metrics.yaml."""
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
    from nsight_prof.parsers.metrics.catalogue import catalogue

    known = catalogue()
    print("passes:")
    for chip in known.chips:
        print(f"  {chip}:")
        for sets in recorded_sets(list(known.sets)):
            counts = {
                " ".join(dtypes) or "none": planner.passes(
                    chip, known.tool_metrics(sets, chip, dtypes)
                )
                for dtypes in ([], *([dtype] for dtype in known.tensor[chip]))
            }
            inner = ", ".join(f"{dtype}: {count}" for dtype, count in counts.items())
            print(f"    {' '.join(sets)}: {{{inner}}}")


def main(arguments: Sequence[str]) -> int:
    """Run one of the verbs of the module's docstring; exit code 3 without the library."""
    try:
        planner = Planner()
    except (LibraryMissing, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 3
    match list(arguments):
        case ["chips"]:
            print(*planner.chips())
        case ["list", chip, *rest]:
            part = rest[0] if rest else ""
            print(*sorted(m for m in planner.metrics(chip) if part in m), sep="\n")
        case ["passes", chip, *names]:
            print(planner.passes(chip, names))
        case ["catalogue"]:
            print_catalogue_passes(planner)
        case _:
            print(__doc__)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
