"""DRAM as programs see it: mixes of reads and writes, strided sectors, random gathers.

    python targets/memory_patterns.py
    python targets/memory_patterns.py --only 'mix/1-1/' --size-mib 3072

Useful bytes are those that the program asked for: `work.bytes` of a case. What DRAM moved for them
is for counters to say. One JSON line per case; cases and their parameters are described in
targets/memory_patterns_mix.py and targets/memory_patterns_access.py.
"""

from __future__ import annotations

import runpy
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from pathlib import Path

if not __package__:  # run as a file
    runpy.run_path(str(Path(__file__).resolve().parent / "standalone.py"))

from nsight_prof.targets.harness import Case, run_target
from nsight_prof.targets.memory_patterns_access import gather_cases, stride_cases
from nsight_prof.targets.memory_patterns_kernels import POOL
from nsight_prof.targets.memory_patterns_mix import mix_cases


def add_arguments(parser: ArgumentParser) -> None:
    """Add the sizes; the defaults are for a GPU with 80 GB or more."""
    parser.add_argument(
        "--size-mib",
        type=int,
        default=6144,
        help="MiB read and written by one call of a mix, a multiple of 6144 for all mixes (6144)",
    )
    parser.add_argument(
        "--table-mib",
        type=int,
        default=8192,
        help="MiB that strides and gathers are spread over (8192)",
    )


def cases(args: Namespace) -> Iterator[Case]:
    """Yield the cases for `args.device`; a CPU gets a few small ones."""
    POOL.least = max(args.size_mib, args.table_mib) << 20
    yield from mix_cases(args.device, args.size_mib << 20)
    yield from stride_cases(args.device, args.table_mib << 20)
    yield from gather_cases(args.device, args.table_mib << 20)


def main(argv: list[str] | None = None) -> int:
    """Measure the patterns; return the exit code."""
    return run_target(
        "memory_patterns",
        cases,
        argv,
        description=__doc__,
        add_arguments=add_arguments,
    )


if __name__ == "__main__":
    sys.exit(main())
