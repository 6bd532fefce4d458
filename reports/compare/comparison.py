"""Compares two runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from nsight_prof.parsers.cells import text
from nsight_prof.parsers.errors import ArtifactUnreadable
from nsight_prof.reports.compare import threshold
from nsight_prof.reports.compare.cases import case_changes, geometric_mean, point_changes
from nsight_prof.reports.compare.changes import Check, Comparison, Origin
from nsight_prof.reports.compare.checks import checks, refuse, refuse_repeats
from nsight_prof.reports.compare.kernels import clocked, kernel_changes, per_work
from nsight_prof.reports.compare.limits import Limit, check_limits
from nsight_prof.reports.compare.match import match
from nsight_prof.reports.compare.oneoff import keep_apart
from nsight_prof.reports.compare.sides import (
    NO_UNITS,
    Side,
    counted_units,
    stage_names,
    unit_of,
    units,
)
from nsight_prof.reports.compare.totals import stage_changes, steady, totals, with_units
from nsight_prof.reports.page.formats import listed


def compare(
    a: Side, b: Side, limits: Sequence[Limit] = (), force: bool = False, per: str = ""
) -> Comparison:
    """Return the comparison of two sides; `per` is an argument that counts their units of work.

    Without it, arguments that differ and that compare.yaml knows to count units are taken;
    NO_UNITS takes none.

    Raises:
        UsageError: the runs cannot be compared or a repeat is none (unless `force`), or a rule
            names nothing.
        ArtifactUnreadable: the runs have no times in common.
    """
    settings, differing, notes = checks(a, b)
    if not force:
        refuse(differing, a.label, b.label)
        for side in (a, b):
            refuse_repeats(side)
    names = dict.fromkeys(filter(None, (_name(a), _name(b))))
    is_bench = all(side.run.is_bench or side.run.is_prediction for side in (a, b))
    found = Comparison(
        title=" against ".join(names) or "comparison",
        kind="bench" if is_bench else "profile",
        a=_origin(a),
        b=_origin(b),
        settings=settings,
        checks=differing,
        points=point_changes(a, b),
    )
    floor = _floor(a, b, differing)
    found = _bench(found, a, b, floor) if is_bench else _profile(found, a, b, floor)
    _check_times(found)
    per = per or (counted_units((a.run, b.run)) if settings else "")
    if per and per != NO_UNITS:
        found = _per_unit(found, per, units(a, per), units(b, per))
    found = replace(found, notes=(*found.notes, *notes))
    return per_work(replace(found, limits=check_limits(limits, found)))


def _check_times(found: Comparison) -> None:
    """Refuse a comparison of nothing: both sides must have kernels, cases or points."""
    rows = found.kernels
    both = any(row.a for row in rows) and any(row.b for row in rows)
    if not (both or found.cases or found.points):
        raise ArtifactUnreadable(
            f"{found.a.label} and {found.b.label} have no times in common",
            "a comparison needs traces, counters or benchmark cases on both sides; "
            "`prof report RUN` says what a run lacks",
        )


def _profile(found: Comparison, a: Side, b: Side, floor: float) -> Comparison:
    rename, note = stage_names(a, b)
    split = keep_apart(a, b, rename)
    a, b = split.a, split.b
    rows, times = match(a, b, rename), clocked(a, b, rename, floor)
    return replace(
        found,
        notes=(note,) if note else (),
        totals=(*totals(rows, times, a, b), *steady(rows, times, split)),
        stages=stage_changes(rows, times, split, rename),
        kernels=kernel_changes(rows, times, a, b, split.names),
        one_off=split.one_off,
    )


def _bench(found: Comparison, a: Side, b: Side, floor: float) -> Comparison:
    cases = case_changes(a, b, floor)
    mean = geometric_mean(cases)
    return replace(found, totals=(mean,) if mean else (), cases=cases)


def _per_unit(found: Comparison, per: str, a: float, b: float) -> Comparison:
    unit = unit_of(per)
    stages = tuple(replace(s, changes=with_units(s.changes, unit, a, b)) for s in found.stages)
    totals_per_unit = with_units(found.totals, unit, a, b)
    return replace(found, totals=totals_per_unit, stages=stages, work=b / a, unit=unit)


def _floor(a: Side, b: Side, differing: Sequence[Check]) -> float:
    """Return the smallest relative difference of a kernel or case that counts.

    Repeats show the noise themselves; single runs are taken to differ more on another GPU.
    """
    if len(a.runs) + len(b.runs) > 2:
        return 0.0
    is_known = any(gpu.get("uuid") for gpu in a.run.manifest.gpus)
    same = is_known and not any(check.key == "uuid" for check in differing)
    return threshold("floor" if same else "specimen_floor")


def _name(side: Side) -> str:
    return str(side.run.manifest.recipe.get("name", "")) or side.run.manifest.run_id


def _origin(side: Side) -> Origin:
    manifest = side.run.manifest
    target = manifest.recipe.get("target") or {}
    gpus = sorted({text(gpu.get("name")) for gpu in manifest.gpus if gpu.get("name")})
    return Origin(
        side.label,
        manifest.run_id,
        manifest.created,
        listed(gpus),
        text(target.get("file")) or " ".join(map(str, target.get("command") or ())),
        len(side.runs),
    )
