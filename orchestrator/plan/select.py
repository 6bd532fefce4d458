"""Chooses which kernels of a trace get hardware counters, and which launch of each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd

from nsight_prof.orchestrator.plan.representative import Window, choose_window
from nsight_prof.orchestrator.recipe.sections import Select
from nsight_prof.parsers.errors import NoKernels, UsageError
from nsight_prof.parsers.names.matching import matching
from nsight_prof.parsers.patterns import compile_pattern
from nsight_prof.parsers.run.selection import SelectedKernel, Selection
from nsight_prof.parsers.run.sentences import stored

NAMES = ("short_name", "name", "mangled_name")
ROWS_PER_REASON = 5
COLLECTIVE = stored("collective: ncu replays a kernel, and one that waits on other GPUs then hangs")
NOT_LISTED = stored("not in the list of kernels")
BEYOND_EVERY_TOP = stored("beyond the top of every stage and of the program")
NOT_SELECTED = (COLLECTIVE, NOT_LISTED, BEYOND_EVERY_TOP)
WHOLE = "(all)"  # the row of the whole capture in tables by stage


@dataclass(frozen=True)
class SelectOptions:
    """What to choose.

    Args:
        top_k: at most this many kernels; None: no limit.
        coverage: stop once the kernels hold this share of the GPU time of all kernels that may be
            chosen; None: no limit. Whichever of both limits comes first holds.
        by_stage: apply both limits to each stage and to the whole program; take the union.
        include, exclude: regexes, searched in the short, demangled and mangled names.
        collectives: choose kernels that wait on other GPUs, too.
        kernels: choose these only, without limits: kernel ids, names or regexes.
    """

    top_k: int | None = 20
    coverage: float | None = 0.95
    by_stage: bool = False
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    collectives: bool = False
    kernels: tuple[str, ...] | None = None


def options_of(select: Select) -> SelectOptions:
    """Return what a recipe asks for; a file of kernels is read by `given_selection`."""
    return SelectOptions(
        top_k=select.top_k,
        coverage=select.coverage,
        by_stage=select.by_stage,
        include=select.include,
        exclude=select.exclude,
        collectives=select.collectives,
        kernels=select.kernels if isinstance(select.kernels, tuple) else None,
    )


def choose_kernels(
    kernels: pd.DataFrame,
    launches: pd.DataFrame | None,
    stage_kernels: pd.DataFrame | None,
    options: SelectOptions,
) -> Selection:
    """Return the kernels to profile, the launch window for ncu, and what is left out, and why.

    Args:
        kernels: the table `kernels`.
        launches: the table `launches`; without it the first launch of each kernel is taken.
        stage_kernels: the table `stage_kernels`, needed for `by_stage` only.
        options: limits and filters.

    Raises:
        NoKernels: the trace has no kernel.
        UsageError: a regex is not valid, or the filters leave no kernel.
    """
    if kernels.empty:
        raise NoKernels(
            "there is no GPU kernel to choose from",
            "trace a part of the program that launches kernels",
        )
    frame = kernels.sort_values("total_ns", ascending=False, kind="stable", ignore_index=True)
    notes: list[str] = []
    reasons = _filter(frame, options, notes)
    eligible = frame[reasons == ""]
    if eligible.empty:
        raise _nothing_left(frame, reasons)
    chosen_ids, limit = _within_limits(eligible, stage_kernels, options, notes)
    chosen = frame[frame["kernel_id"].isin(chosen_ids) & (reasons == "")]
    reasons[(reasons == "") & ~frame.index.isin(chosen.index)] = limit
    window = _window(chosen, launches, notes)
    deciles = _deciles(launches, window)
    single = launches is not None and not launches.empty
    return Selection(
        kernels=[
            _selected(row, window, deciles, launches=single) for row in chosen.to_dict("records")
        ],
        skip=window.skip,
        count=window.count,
        share=_share(chosen),
        left_out=_left_out(frame, reasons),
        notes=notes,
    )


def _filter(frame: pd.DataFrame, options: SelectOptions, notes: list[str]) -> pd.Series[str]:
    """Return per kernel why it may not be chosen; empty where it may."""
    reasons = pd.Series("", index=frame.index, dtype=object)
    if not options.collectives:
        reasons[(frame["category"] == "collective").fillna(False).astype(bool)] = COLLECTIVE
    for pattern in options.exclude:
        reasons[(reasons == "") & _matches(frame, pattern)] = stored(
            "excluded by regex {pattern}", pattern=pattern
        )
    if options.include:
        wanted = pd.concat([_matches(frame, p) for p in options.include], axis=1).any(axis=1)
        reasons[(reasons == "") & ~wanted] = "not matched by include: " + ", ".join(options.include)
    if options.kernels is not None:
        wanted = _listed(frame, options.kernels, notes)
        reasons[(reasons == "") & ~wanted] = NOT_LISTED
    return reasons


def _matches(frame: pd.DataFrame, pattern: str) -> pd.Series[bool]:
    try:
        regex = compile_pattern(pattern)
    except ValueError as error:
        raise UsageError(
            f"{pattern!r} is {error}",
            "put a backslash before characters that stand for themselves: ( ) [ ] * + ? .",
        ) from error
    with matching(repr(pattern)):
        found = [any(regex.search(str(name)) for name in names) for names in _names(frame)]
    return pd.Series(found, index=frame.index, dtype=bool)


def _names(frame: pd.DataFrame) -> list[tuple[Any, ...]]:
    return list(frame[list(NAMES)].fillna("").itertuples(index=False, name=None))


def _listed(frame: pd.DataFrame, wanted: tuple[str, ...], notes: list[str]) -> pd.Series[bool]:
    """Return which kernels stand in a list of ids, names and regexes."""
    result = pd.Series(False, index=frame.index)
    for key in wanted:
        found = frame["kernel_id"] == key
        if not found.any():
            found = pd.Series([key in names for names in _names(frame)], index=frame.index)
        if not found.any():
            found = _matches(frame, key)
        if not found.any():
            notes.append(stored("{key} is in the list of kernels, and not in the trace", key=key))
        result |= found.astype(bool)
    return result


def _nothing_left(frame: pd.DataFrame, reasons: pd.Series[str]) -> UsageError:
    top = "; ".join(f"{n} ({r})" for n, r in zip(frame["short_name"][:3], reasons[:3], strict=True))
    return UsageError(
        f"none of the {len(frame)} kernels is left to profile: {top}",
        "loosen include and exclude, or list the kernels with: prof top-kernels TRACE",
    )


def _within_limits(
    eligible: pd.DataFrame,
    stage_kernels: pd.DataFrame | None,
    options: SelectOptions,
    notes: list[str],
) -> tuple[set[str], str]:
    """Return the ids of the kernels within top_k and coverage, and why the others are not."""
    if options.kernels is not None:
        return set(eligible["kernel_id"]), ""
    if not options.by_stage:
        return _top(eligible, options)
    stages = pd.DataFrame(columns=["stage", "kernel_id", "total_ns"])
    if stage_kernels is not None:
        in_stage = stage_kernels["stage"].fillna("").ne("") & stage_kernels["stage"].ne(WHOLE)
        known = stage_kernels["kernel_id"].isin(eligible["kernel_id"])
        stages = stage_kernels[in_stage.astype(bool) & known]
    if stages.empty:
        notes.append(
            stored("the trace has no stages, so the top kernels of the whole program are chosen")
        )
        return _top(eligible, options)
    # Kernels outside of every stage count too: the top of the whole program is taken with them.
    chosen = _top(eligible, options)[0]
    for _, group in stages.groupby("stage", sort=False, observed=True):
        chosen |= _top(group.sort_values("total_ns", ascending=False, kind="stable"), options)[0]
    return chosen, BEYOND_EVERY_TOP


def _top(frame: pd.DataFrame, options: SelectOptions) -> tuple[set[str], str]:
    """Return the ids of the first rows up to top_k or coverage, whichever comes first."""
    total = frame["total_ns"].astype(float)
    count, reason = len(frame), ""
    if options.top_k is not None and options.top_k < count:
        count, reason = options.top_k, stored("beyond the top {top_k}", top_k=options.top_k)
    if options.coverage is not None:
        before = total.cumsum().shift(fill_value=0.0)
        enough = max(1, int((before < options.coverage * total.sum()).sum()))
        if enough < count:
            count, reason = (
                enough,
                stored("beyond {coverage:.0%} of the GPU time", coverage=options.coverage),
            )
    return set(frame["kernel_id"][:count]), reason


def _window(chosen: pd.DataFrame, launches: pd.DataFrame | None, notes: list[str]) -> Window:
    """Return the launch window; without single launches it is the first, which is noted."""
    if launches is None or launches.empty:
        notes.append(
            stored("there are no single launches to choose from: the first of each is profiled")
        )
        return Window(0, 1, {}, {})
    weights = dict(zip(chosen["kernel_id"], chosen["total_ns"].astype(float), strict=True))
    return choose_window(launches, weights)


def _deciles(launches: pd.DataFrame | None, window: Window) -> dict[str, tuple[float, float]]:
    """Return first and ninth decile of the durations of kernels that do different work."""
    if launches is None or not window.mixed:
        return {}
    of_mixed = launches[launches["kernel_id"].isin(list(window.mixed))]
    durations = of_mixed["duration_ns"].astype(float).groupby(of_mixed["kernel_id"].astype(str))
    low, high = durations.quantile(0.1), durations.quantile(0.9)
    return {str(key): (float(low[key]), float(high[key])) for key in low.index}


def _selected(
    row: dict[Any, Any], window: Window, deciles: dict[str, tuple[float, float]], *, launches: bool
) -> SelectedKernel:
    texts = ("kernel_id", "short_name", "name", "mangled_name", "grid", "block", "dtype")
    text = {key: "" if pd.isna(row[key]) else str(row[key]) for key in texts}
    key = text["kernel_id"]
    share = float(row["share"]) if pd.notna(row["share"]) else float("nan")
    deviation = window.deviations.get(key)
    return SelectedKernel(
        **text,
        share=round(share, 6),
        launch=window.launches.get(key, 0),
        deviation=None if deviation is None else round(float(deviation), 6),
        deciles_ns=deciles.get(key),
        traced=not launches or key in window.launches,
    )


def _share(frame: pd.DataFrame) -> float | None:
    return round(float(frame["share"].sum()), 6) if frame["share"].notna().any() else None


def _left_out(frame: pd.DataFrame, reasons: pd.Series[str]) -> list[dict[str, Any]]:
    """Return {short_name, kernels, share, reason}: per reason the largest names, then the rest."""
    out = frame[reasons != ""].assign(reason=reasons[reasons != ""])
    rows: list[dict[str, Any]] = []
    for reason, group in out.groupby("reason", sort=False):
        names = group.groupby("short_name", sort=False).agg(
            kernels=("kernel_id", "size"), share=("share", "sum")
        )
        names = names.sort_values("share", ascending=False, kind="stable")
        for name, row in names[:ROWS_PER_REASON].iterrows():
            rows.append(_row(str(name), row["kernels"], row["share"], str(reason)))
        if len(rest := names[ROWS_PER_REASON:]):
            label = f"{len(rest)} other names"
            rows.append(_row(label, rest["kernels"].sum(), rest["share"].sum(), str(reason)))
    return rows


def _row(short_name: str, kernels: float, share: float, reason: str) -> dict[str, Any]:
    return {
        "short_name": short_name,
        "kernels": int(kernels),
        "share": round(float(share), 6),
        "reason": reason,
    }
