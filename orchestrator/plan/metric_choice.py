"""Chooses the tool metrics of a counters run: the recipe's sets, for the chip and the kernels."""

from __future__ import annotations

from collections.abc import Iterable

from nsight_prof.orchestrator.recipe.read import Recipe
from nsight_prof.parsers.metrics.catalogue import catalogue
from nsight_prof.parsers.run.selection import Selection

TENSOR_DTYPES = ("bf16", "fp16", "tf32", "fp8", "fp4", "int8", "fp64")
# Compute capability -> chip, for runs without a trace: NVML does not name the chip.
CHIPS = {
    "7.0": "GV100",
    "7.5": "TU102",
    "8.0": "GA100",
    "8.6": "GA102",
    "8.9": "AD102",
    "9.0": "GH100",
    "10.0": "GB100",
    "10.3": "GB110",
    "12.0": "GB202",
}


def choose_metrics(recipe: Recipe, known_dtypes: Iterable[str], chip: str) -> tuple[str, ...]:
    """Return the names for `ncu --metrics`; `chip` is empty where it is unknown.

    `known_dtypes` are the input types that the names of the kernels, or the measured cases, tell.

    Raises:
        ProfError: the catalogue does not know the chip.
    """
    dtypes = tensor_dtypes(recipe, known_dtypes)
    return tuple(catalogue().tool_metrics(recipe.counters.sets, chip, dtypes))


def tensor_dtypes(recipe: Recipe, dtypes: Iterable[str]) -> list[str]:
    """Return the Tensor Core input types to count: the recipe's, or those that were told."""
    if recipe.counters.tensor_dtypes != "auto":
        return list(recipe.counters.tensor_dtypes)
    given = set(dtypes)
    return [dtype for dtype in TENSOR_DTYPES if dtype in given]


def dtypes_of(selection: Selection) -> set[str]:
    """Return the input types that the names of the selected kernels tell."""
    return {kernel.dtype for kernel in selection.kernels}


def chip_of(compute_capabilities: Iterable[str]) -> str:
    """Return the chip of the first GPU whose compute capability tells it, or ""."""
    return next((CHIPS[c] for c in compute_capabilities if c in CHIPS), "")
