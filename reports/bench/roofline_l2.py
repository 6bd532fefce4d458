"""What the L2 holds, by the sweep over footprints."""

from __future__ import annotations

from collections.abc import Iterator

from nsight_prof.parsers.cells import Row, number, text
from nsight_prof.reports.bench.models import BenchFinding
from nsight_prof.reports.bench.roofline_sweeps import best_by_size, dram_part
from nsight_prof.reports.formats import byte_rate, count, share, significant

LEAKS = 0.05
"""Part of the L2's bytes that come from DRAM from which the L2 no longer holds the footprint."""
HOLDS = 0.9
"""A footprint is served by the L2 while its bandwidth is this part of the best."""


def l2_edge(rows: list[Row], l2_bytes: float) -> Iterator[BenchFinding]:
    """Say how many bytes the L2 holds, by pattern where counters tell, and what is left beyond."""
    reads = [r for r in rows if text(r["level"]) == "l2" and text(r["operation"]).endswith("read")]
    lines = {name: line for name, line in best_by_size(reads).items() if len(line) > 3}
    if not lines:
        return
    line = max(lines.values(), key=len)
    rates = [(size, number(row["bytes_per_s"])) for size, row in line]
    best, (size, rate) = max(rate for _, rate in rates), rates[-1]
    held = [size for size, rate in rates if rate >= HOLDS * best]
    if size in held:
        return
    fits = {name: fit for name, points in lines.items() if (fit := _held(points)) is not None}
    of = f"of its {_mib(l2_bytes)}" if l2_bytes > 0 else "of an unknown size"
    if fits:
        parts = " and ".join(f"{_mib(most)} ({name})" for name, most in sorted(fits.items()))
        sentence = f"The L2 holds, {of}, footprints of up to {parts}"
        why = f"by counters: DRAM serves at most {share(LEAKS)} of the bytes up to there"
        if len(fits) > 1:
            why += "; data that all SMs read take more room, because each part of the L2 keeps them"
    else:
        sentence = f"The L2 serves reads at {share(HOLDS)} of its speed or more up to"
        sentence += f" {_mib(max(held))} {of}"
        why = "by bandwidth alone, without counters"
    fit = min(fits.values(), default=max(held))
    yield BenchFinding(
        f"{sentence}; at {_mib(size)} {byte_rate(rate)} are left of {byte_rate(best)}.",
        f"{count(len(rates))} footprints from {_mib(rates[0][0])} to {_mib(size)}; {why}.",
        "Would be disproved by DRAM bytes, by counters, that do not rise beyond these footprints.",
        f"Data that are used again come faster from its cache while they are at most "
        f"{_mib(fit)}; at {_mib(size)} {share(1 - rate / best)} of that speed is lost.",
    )


def _held(points: list[tuple[float, Row]]) -> float | None:
    """Return the largest footprint before the first that DRAM serves too; None without counters."""
    held = None
    for size, row in points:
        if not dram_part(row) <= LEAKS:
            return held if dram_part(row) > LEAKS else None
        held = size
    return None


def _mib(size: float) -> str:
    return f"{significant(size / 2**20)} MiB"
