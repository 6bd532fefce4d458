"""The operations of convolutional networks, ViTs and LSTMs over their sizes, and whole networks.

    python run.py --families conv norm --batches 1 32
    python run.py --families network --variants graph
    python run.py --device cpu

FLOPs and bytes are closed formulas (operations.py). Each operation is measured in a CUDA graph,
on buffers that the L2 cache has not seen lately (cold) and on the same ones again (hot), which is
what an operation finds behind the one that made its input; the smallest size also as the host
launches it. The three networks are those of networks.py. One JSON line per case.
"""

from __future__ import annotations

import argparse
import runpy
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

if not __package__:  # run as a file
    runpy.run_path(str(Path(__file__).resolve().parents[1] / "standalone.py"))

from nsight_prof.targets.harness import Case, add_words, positive, run_target
from nsight_prof.targets.network_kernels.plan import BATCHES, FAMILIES, VARIANTS, make_plan


def cases(args: argparse.Namespace) -> Iterator[Case]:
    """Yield the cases that the options ask for."""
    # Here, because it needs torch, and --help must work without.
    from nsight_prof.targets.network_kernels.cases import network_cases, operation_cases
    from nsight_prof.targets.network_kernels.side_by_side import side_by_side_cases

    plan = make_plan(args)
    if "side-by-side" in plan.families:
        yield from side_by_side_cases(plan)
    yield from operation_cases(plan)
    if "network" in plan.families:
        yield from network_cases(plan)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that choose cases; each takes one or more words."""
    add_words(parser, "families", FAMILIES)
    add_words(parser, "variants", VARIANTS)
    parser.add_argument(
        "--batches",
        nargs="+",
        type=positive,
        help=f"images or sequences of the operations ({' '.join(map(str, BATCHES))})",
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Measure; return the exit code of the harness."""
    return run_target(
        "network_kernels", cases, argv, description=__doc__, add_arguments=add_arguments
    )


if __name__ == "__main__":
    sys.exit(main())
