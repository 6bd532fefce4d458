"""Measures the roofs of a GPU: its pipes, Tensor Cores, memory levels, latencies and host links.

    python run.py --families compute memory

stdout (or --out) gets one JSON line per case, stderr one line for people. Each family is a file
beside this one and runs by itself.
"""

from __future__ import annotations

import argparse
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path

if not __package__:  # run as a file
    runpy.run_path(str(Path(__file__).resolve().parents[1] / "standalone.py"))
from nsight_prof.targets.harness import Case, run_target
from nsight_prof.targets.roofline import compute, host, latency, memory, tensor

FAMILIES = {
    "compute": compute.cases,
    "memory": memory.cases,
    "latency": latency.cases,
    "host": host.cases,
    "tensor": tensor.cases,
}
"""In the order in which they run: the Tensor Cores last, because they heat the GPU."""


def cases(args: argparse.Namespace) -> Iterator[Case]:
    """Return the cases of the chosen families."""
    for name, family in FAMILIES.items():
        if name in args.families:
            yield from family(args)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of all families."""
    parser.add_argument(
        "--families",
        nargs="+",
        choices=list(FAMILIES),
        default=list(FAMILIES),
        help="what to measure (all)",
    )
    memory.add_arguments(parser)


def main(argv: list[str] | None = None) -> int:
    """Measure the roofs."""
    return run_target("roofline", cases, argv, description=__doc__, add_arguments=add_arguments)


if __name__ == "__main__":
    sys.exit(main())
