"""The operations of a transformer, swept: linear layers, attention, norms, sampling and more.

    python run.py --families attention norm --models llama-3.1-8b --tokens 16 8192
    python run.py --device cpu

Shapes are those of public models (models.py), FLOPs and bytes are closed formulas (formulas.py).
Each operation is measured as the host launches it (eager), in a CUDA graph, and, where kernels can
be fused, as torch.compile makes it. One JSON line per case.
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
from nsight_prof.targets.llm_kernels.models import DEFAULT_MODELS, MODELS
from nsight_prof.targets.llm_kernels.plan import FAMILIES, TOKENS, VARIANTS, make_plan


def cases(args: argparse.Namespace) -> Iterator[Case]:
    """Yield the cases that the options ask for."""
    # Here, because these need torch, and --help must work without.
    from nsight_prof.targets.llm_kernels.attention import attention_cases
    from nsight_prof.targets.llm_kernels.cudnn_layers import convolution_cases, lstm_cases
    from nsight_prof.targets.llm_kernels.linear import batched_cases, linear_cases
    from nsight_prof.targets.llm_kernels.pointwise import pointwise_cases

    plan = make_plan(args)
    if "linear" in plan.families:
        yield from linear_cases(plan)
    if "bmm" in plan.families:
        yield from batched_cases(plan)
    if "attention" in plan.families:
        yield from attention_cases(plan)
    yield from pointwise_cases(plan)
    if "conv" in plan.families:
        yield from convolution_cases(plan)
    if "lstm" in plan.families:
        yield from lstm_cases(plan)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that choose cases; each takes one or more words."""
    add_words(parser, "models", MODELS, ", ".join(DEFAULT_MODELS))
    add_words(parser, "families", FAMILIES)
    add_words(parser, "variants", VARIANTS)
    parser.add_argument(
        "--tokens",
        nargs="+",
        type=positive,
        help=f"rows of the activations ({' '.join(map(str, TOKENS))})",
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Measure; return the exit code of the harness."""
    return run_target("llm_kernels", cases, argv, description=__doc__, add_arguments=add_arguments)


if __name__ == "__main__":
    sys.exit(main())
