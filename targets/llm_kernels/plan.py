"""Which cases to make: the choice of models, families, variants and tokens on the command line."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import dataclass

from nsight_prof.targets.llm_kernels.models import DEFAULT_MODELS, MODELS, REFERENCE, Model

FAMILIES = ("linear", "bmm", "attention", "norm", "elementwise", "sampling", "conv", "lstm")
VARIANTS = ("eager", "graph", "compiled", "compiled-graph")
"""eager: launched by the host as a user's program would; graph: the same calls in a CUDA graph;
compiled: one function made by torch.compile, launched by the host; or that in a graph."""

TOKENS = (1, 16, 128, 1024, 8192)
TINY_TOKENS = (1, 16)


@dataclass(frozen=True)
class Plan:
    """Which cases to make.

    Attributes:
        models: whose shapes to take.
        families: of FAMILIES.
        variants: of VARIANTS.
        tokens: rows of the activations, ascending.
        tiny: sizes for a CPU.
        device: "cuda" or "cpu".
    """

    models: tuple[Model, ...]
    families: tuple[str, ...]
    variants: tuple[str, ...]
    tokens: tuple[int, ...]
    tiny: bool
    device: str

    @property
    def reference(self) -> Model:
        """The model of the operations that are not swept over models."""
        return next((m for m in self.models if m.key == REFERENCE), self.models[0])

    @property
    def swept_by_counters(self) -> tuple[int, ...]:
        """Token counts whose kernels are counted: the ends and the middle of the sweep."""
        return tuple({self.tokens[0], self.tokens[len(self.tokens) // 2], self.tokens[-1]})

    def among(self, *variants: str) -> list[str]:
        """Return which of these variants were asked for, in the order of VARIANTS."""
        return [variant for variant in VARIANTS if variant in variants and variant in self.variants]


def make_plan(args: Namespace) -> Plan:
    """Turn the parsed options into a plan; a CPU gets tiny sizes unless told otherwise."""
    tiny = str(args.device).startswith("cpu")
    keys = args.models or (("tiny",) if tiny else DEFAULT_MODELS)
    return Plan(
        models=tuple(MODELS[key] for key in keys),
        families=tuple(args.families or FAMILIES),
        variants=tuple(args.variants or VARIANTS),
        tokens=tuple(sorted(args.tokens or (TINY_TOKENS if tiny else TOKENS))),
        tiny=tiny,
        device=str(args.device),
    )


def launch_of(variant: str) -> str:
    """Return how the harness launches a variant: "graph" or "eager"."""
    return "graph" if variant.endswith("graph") else "eager"


def is_compiled(variant: str) -> bool:
    """Tell whether torch.compile makes the function of a variant."""
    return variant.startswith("compiled")
