"""Sets the roofs of one matrix product beside each other: they differ by the clock alone."""

from __future__ import annotations

from nsight_prof.parsers.cells import known, number, records, text
from nsight_prof.reports.engine.operators.models import Product
from nsight_prof.reports.formats import clock, flop_rate, share
from nsight_prof.reports.load import Run

TENSOR = "tensor"
APART = 0.02
"""Clocks or roofs that differ by less are one."""


def roofs_beside(run: Run, product: Product) -> str:
    """Return a sentence about the burst roof, that at ncu's clock and the steady one.

    Empty for a product that memory limits, and where roofs or clocks are unknown or alike.
    """
    if product.roof != f"{TENSOR} {product.dtype}":
        return ""
    measured = {
        text(row["kind"]): row
        for row in records(run.measured_roofs)
        if (text(row["level_or_pipe"]), text(row["dtype"])) == (TENSOR, product.dtype)
    }
    counted = {text(row["kernel_id"]): row for row in records(run.counters)}
    burst, steady = measured.get("burst"), measured.get("steady")
    launch = counted.get(product.kernel_id)
    if burst is None or steady is None or launch is None:
        return ""
    peak, fast, slow = (number(burst["value"]), number(burst["clock_hz"]), number(steady["value"]))
    at, rate = known(launch["sm_clock_hz"]), known(launch["flop_throughput"])
    if at is None or rate is None or not fast > 0 or not slow < (1 - APART) * peak:
        return ""
    scaled = peak * at / fast
    lasting = number(steady["clock_hz"])
    cap = f" at {clock(lasting)}" if lasting > 0 else ""
    return (
        f"Three roofs stand for it: {flop_rate(peak)} in a burst at {clock(fast)}; "
        f"{flop_rate(scaled)} at the {clock(at)} of the counted launch, which reached "
        f"{share(rate / scaled)} of that; {flop_rate(slow)} under load that lasts{cap}. They "
        "differ by the clock, not by the kernel."
    )
