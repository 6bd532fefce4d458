"""Says which launch stands for a kernel, and which kernels have no counters and why."""

from __future__ import annotations

from collections import defaultdict

import pandas as pd

from nsight_prof.parsers.cells import known, records, text
from nsight_prof.parsers.run.run import Run
from nsight_prof.parsers.run.selection import Selection
from nsight_prof.reports.page import Text
from nsight_prof.reports.profile.caveats import ranges
from nsight_prof.reports.profile.view_models import KernelRow, LeftOut

NAMES = 5
"""Names that a reason lists one by one."""


def choice(run: Run, kernels: tuple[KernelRow, ...]) -> tuple[Text, ...]:
    """Return sentences: of which launch the counters of a kernel are, and why of that one."""
    profiled = [row for row in kernels if row.profiled]
    chosen = run.selection
    if not profiled:
        return ()
    if chosen is None or not chosen.kernels or run.kernels["total_ns"].isna().all():
        return (Text("The counters of a kernel are those of its first launch in the file."),)
    selected = {chosen_kernel.kernel_id for chosen_kernel in chosen.kernels}
    mixed = {kernel.kernel_id for kernel in chosen.kernels if kernel.is_mixed}
    uneven = [row.number for row in profiled if row.kernel_id in mixed]
    unselected = [row.number for row in profiled if row.kernel_id not in selected]
    found = [_window(chosen)]
    if uneven:
        found.append(
            Text(
                "For {who}, whose launches do different work, it is the launch nearest the length "
                "that most of the kernel's time goes to.",
                who=ranges(uneven),
            )
        )
    if unselected:
        found.append(
            Text(
                "The selection did not ask for {who}: ncu replayed all kernels with names like "
                "those of selected ones, and the first launch counts.",
                who=ranges(unselected),
            )
        )
    return tuple(found)


def _window(chosen: Selection) -> Text:
    last = chosen.skip + chosen.count - 1
    if last == chosen.skip:
        return Text(
            "ncu replayed launch {launch} of each kernel (counted from 0).", launch=chosen.skip
        )
    return Text(
        "ncu replayed launches {first} to {last} of each kernel (counted from 0); the counters are "
        "of the one nearest the kernel's median duration in the trace.",
        first=chosen.skip,
        last=last,
    )


def left_out(run: Run) -> tuple[LeftOut, ...]:
    """Return the kernels without counters by reason: the largest names, then the others in one.

    The selection may have left out kernels that ncu replayed all the same: those have counters and
    are not listed.
    """
    if run.selection is None or run.counters.empty:
        return ()
    without = run.kernels[~run.kernels["kernel_id"].isin(run.counters["kernel_id"])]
    reasons = _reasons(run, run.selection, without)
    found = []
    for reason, group in without.groupby(reasons, sort=False):
        sums: dict[str, list[float | None]] = defaultdict(list)
        for row in records(group):
            sums[text(row["short_name"])].append(known(row["share"]))
        ranked = sorted(sums.items(), key=lambda item: -(_sum(item[1]) or 0.0))
        found += [LeftOut(n, len(s), _sum(s), str(reason)) for n, s in ranked[:NAMES]]
        if rest := [share for _, shares in ranked[NAMES:] for share in shares]:
            names = len(ranked) - NAMES
            label = f"{names} other name{'s' if names > 1 else ''}"
            found.append(LeftOut(label, len(rest), _sum(rest), str(reason)))
    return tuple(found)


def _sum(shares: list[float | None]) -> float | None:
    values = [share for share in shares if share is not None]
    return sum(values) if values else None


def _reasons(run: Run, chosen: Selection, without: pd.DataFrame) -> pd.Series[str]:
    """Return why each kernel has no counters, as far as the selection and the join tell."""
    lost = run.joins[run.joins["method"].fillna("none") == "none"]
    failed = {text(row["kernel_id"]): text(row["reason"]) for row in records(lost)}
    by_name = {str(r.get("short_name")): str(r.get("reason")) for r in chosen.left_out}
    # A row of the selection that is no name of a kernel stands for several names.
    names = set(run.kernels["short_name"])
    of_several = {reason for name, reason in by_name.items() if name not in names}
    unnamed = of_several.pop() if len(of_several) == 1 else "not selected"
    selected = {kernel.kernel_id for kernel in chosen.kernels}
    found = []
    for row in records(without):
        key = text(row["kernel_id"])
        if key in selected:
            found.append(failed.get(key) or "selected, and ncu gave no result")
        else:
            found.append(by_name.get(text(row["short_name"]), unnamed))
    return pd.Series(found, index=without.index, dtype="object")
