"""Which findings tell of a choice that belongs to the owner of a program, and of no defect."""

from __future__ import annotations

from dataclasses import replace

from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.findings.model import Finding
from nsight_prof.reports.page import Text

PRECISION = ("tensor_idle", "simt_gemm", "transformed_conv", "single_attention")
"""Keys and rules of findings whose repair takes digits where the numbers have more than 16 bits."""
DOUBLE = "double_precision"
FUNCTIONS = "slow_functions"
"""Rule whose repair takes digits, or memory for a table, where functions are what is asked for."""
MATRIX = ("gemm", "gemv", "conv", "attention")
WIDE, NARROW = ("fp32", "fp64", ""), ("bf16", "fp16", "tf32", "fp8", "int8")
"""Types of products that TF32 or 16 bits take digits from, and those that were given up before."""
SINGLE = ("fp32", *NARROW)
MIXED = r"\bgpu_kernel_impl<|LoadWithCast"
"""Elementwise kernels of PyTorch (2.11) whose inputs have several types."""
SLIP = 0.01
"""Part of the time of all products from which on narrower ones show what the program is for."""


def marked(run: Run, finding: Finding) -> Finding:
    """Return the finding, marked and with a sentence where it is a choice."""
    if not _is_choice(run, finding):
        return finding
    verdict = Text(
        "{verdict} It is no defect but a choice of the program's owner, which has a price.",
        verdict=finding.verdict,
    )
    return replace(finding, choice=True, verdict=verdict)


def _is_choice(run: Run, finding: Finding) -> bool:
    """Return whether its rule says so, or it is about the precision of products.

    Where other products of the program are narrower, a tensor was left wide by mistake.
    """
    is_double = finding.rule == DOUBLE
    if not is_double and not {finding.key, finding.rule} & set(PRECISION):
        return finding.choice or finding.rule == FUNCTIONS
    kernels = run.kernels
    about = kernels[kernels["kernel_id"].isin(finding.kernel_ids)]
    if is_double:
        # Single numbers beside, in the kernel or in others, show that double ones were not meant.
        counted = run.counters[run.counters["kernel_id"].isin(finding.kernel_ids)]
        single = counted["flops_fp32"].sum() > 0 or kernels["dtype"].isin(SINGLE).any()
        single |= about["name"].fillna("").str.contains(MIXED).any()
        return not bool(single)
    products = kernels[kernels["category"].isin(MATRIX)]
    narrow = products.loc[products["dtype"].isin(NARROW), "total_ns"].sum()
    is_slip = narrow > SLIP * products["total_ns"].sum()
    return bool(about["dtype"].fillna("").isin(WIDE).any()) and not is_slip
