"""Roofs of the memory levels: DRAM, L2, L1 and shared memory, by own kernels.

    python targets/roofline/memory.py --only dram

Each level has candidates of several launch shapes; the fastest that counters confirm is the roof.
"""

from __future__ import annotations

import runpy
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

if not __package__:  # run as a file
    runpy.run_path(str(Path(__file__).resolve().parents[1] / "standalone.py"))

from nsight_prof.targets.harness import Case, run_target
from nsight_prof.targets.roofline import memory_dram, memory_l2, memory_sm


def add_arguments(parser: ArgumentParser) -> None:
    """Add the options of the memory roofs."""
    parser.add_argument(
        "--dram-gib",
        type=float,
        default=None,
        metavar="GIB",
        help="GiB that a DRAM stream moves in a call (default: 16, or an eighth of the memory)",
    )


def cases(args: Namespace) -> Iterator[Case]:
    """Yield the cases of all levels, the largest buffers first."""
    return chain(memory_dram.cases(args), memory_l2.cases(args), memory_sm.cases(args))


if __name__ == "__main__":
    sys.exit(
        run_target(
            "roofline",
            cases,
            sys.argv[1:],
            description="Measure the bandwidth of DRAM, L2, L1 and shared memory.",
            add_arguments=add_arguments,
        )
    )
