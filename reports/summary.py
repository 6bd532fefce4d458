"""Shortens a report to half a page for a reader who decides and does not tune kernels."""

from __future__ import annotations

from reports.method_view import glossary
from reports.view_models import FindingRow, KernelRow, ReportView, SummaryRow, SummaryView

ROWS, STEPS = 5, 3
LIMITS = {
    "DRAM bandwidth": "speed of the GPU's memory",
    "L2 bandwidth": "speed of the GPU's shared cache (L2)",
    "L1 bandwidth": "speed of the caches inside the GPU's processors (L1)",
    "Tensor Cores": "speed of the matrix units (Tensor Cores)",
    "FP32 arithmetic": "arithmetic speed",
    "FP64 arithmetic": "arithmetic speed (double precision)",
    "FP16 arithmetic": "arithmetic speed (half precision)",
    "latency": "waiting: no part of the GPU is busy",
}
"""What limits, in words without jargon."""


def summarise(view: ReportView) -> SummaryView:
    """Return the summary of a report; the numbers are those of the report."""
    acting = [row for row in view.findings if row.gain_program and row.action]
    steps = [f"{row.title}. {row.action}" for row in acting[:STEPS]]
    answer = view.answer[:3]
    rows = _rows(view)
    words = " ".join([*answer, *steps, *(row.what + row.limited_by for row in rows)])
    return SummaryView(
        title=view.title,
        question=view.question,
        machine=next((fact.value for fact in view.environment if fact.label == "GPU"), ""),
        answer=answer,
        rows=rows,
        next_steps=tuple(steps),
        reservations=_reservations(view),
        terms=glossary(words),
    )


def _rows(view: ReportView) -> tuple[SummaryRow, ...]:
    gains = {number: row for row in view.findings if row.gain_kernel for number in row.kernels}
    return tuple(
        SummaryRow(
            kernel.short_name,
            kernel.share,
            LIMITS.get(kernel.bound_label, "not measured"),
            kernel.roof_share if kernel.bound_by != "latency" else None,
            _gain(kernel, gains.get(kernel.number)),
        )
        for kernel in view.kernels[:ROWS]
    )


def _gain(kernel: KernelRow, finding: FindingRow | None) -> float | None:
    """Return the gain of the kernel's finding; one too small for a finding is its distance."""
    if kernel.share is None:
        return None
    if finding is not None and finding.gain_kernel is not None:
        return kernel.share * finding.gain_kernel
    if kernel.roof_share is None or kernel.bound_by == "latency":
        return None
    return kernel.share * max(0.0, 1 - kernel.roof_share)


def _reservations(view: ReportView) -> tuple[str, ...]:
    """Return what weakens the answer: what is open, failed steps, doubtful counters."""
    serious = [c.text for c in view.caveats if not c.text.startswith("Not available")]
    return (*view.abstained[:1], *serious[:2])
