"""Assembles the comparison of two runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from nsight_prof.parsers.cells import text
from nsight_prof.parsers.errors import ArtifactUnreadable
from nsight_prof.reports.compare import cases as of_cases
from nsight_prof.reports.compare.answer import answer, method
from nsight_prof.reports.compare.checks import checks, refuse, refuse_repeats
from nsight_prof.reports.compare.kernels import clocked, kernel_changes
from nsight_prof.reports.compare.limits import Limit, check_limits
from nsight_prof.reports.compare.matching import match
from nsight_prof.reports.compare.models import Check, CompareView, Origin
from nsight_prof.reports.compare.oneoff import keep_apart
from nsight_prof.reports.compare.scaling import per_work
from nsight_prof.reports.compare.sides import (
    NO_UNITS,
    Side,
    counted_units,
    stage_names,
    unit_of,
    units,
)
from nsight_prof.reports.compare.totals import stage_changes, steady, totals, with_units
from nsight_prof.reports.compare.wording import threshold
from nsight_prof.reports.formats import listed


def compare(
    a: Side, b: Side, limits: Sequence[Limit] = (), force: bool = False, per: str = ""
) -> CompareView:
    """Return the comparison of two sides; `per` is an argument that counts their units of work.

    Without it, arguments that differ and that compare.yaml knows to count units are taken;
    NO_UNITS takes none.

    Raises:
        UsageError: the runs cannot be compared or a repeat is none (unless `force`), or a rule
            names nothing.
        ArtifactUnreadable: the runs have no times in common.
    """
    settings, differing, untold = checks(a, b)
    if not force:
        refuse(differing, a.label, b.label)
        for side in (a, b):
            refuse_repeats(side)
    view = (
        _bench(a, b, settings, differing)
        if all(side.run.is_bench or side.run.is_prediction for side in (a, b))
        else _profile(a, b, settings, differing)
    )
    if not _has_times(view):
        raise ArtifactUnreadable(
            f"{a.label} and {b.label} have no times in common",
            "a comparison needs traces, counters or benchmark cases on both sides; "
            "`prof report RUN` says what a run lacks",
        )
    per = per or (counted_units((a.run, b.run)) if settings else "")
    if per and per != NO_UNITS:
        view = _per_unit(view, per, units(a, per), units(b, per))
    notes = (*view.notes, untold) if untold else view.notes
    view = per_work(replace(view, notes=notes, limits=check_limits(limits, view)))
    return replace(view, answer=tuple(answer(view)), method=tuple(method(view)))


def _has_times(view: CompareView) -> bool:
    """Tell whether there is anything to hold against each other: both sides have kernels, say."""
    rows = view.kernels
    both = any(row.a for row in rows) and any(row.b for row in rows)
    return both or bool(view.cases or view.points)


def _profile(
    a: Side, b: Side, settings: tuple[Check, ...], differing: tuple[Check, ...]
) -> CompareView:
    rename, why = stage_names(a, b)
    floor = _floor(a, b, differing)
    apart = keep_apart(a, b, rename)
    a, b = apart.a, apart.b
    rows, times = match(a, b, rename), clocked(a, b, rename, floor)
    view = _empty("profile", a, b, settings, differing)
    return replace(
        view,
        notes=(why,) if why else (),
        totals=(*totals(rows, times, a, b), *steady(rows, times, apart)),
        stages=stage_changes(rows, times, apart, rename),
        kernels=kernel_changes(rows, times, a, b, apart.names),
        points=of_cases.point_changes(a, b),
        one_off=apart.one_off,
    )


def _per_unit(view: CompareView, per: str, a: float, b: float) -> CompareView:
    unit = unit_of(per)
    stages = [replace(s, changes=with_units(s.changes, unit, a, b)) for s in view.stages]
    whole = with_units(view.totals, unit, a, b)
    return replace(view, totals=whole, stages=tuple(stages), work=b / a, unit=unit)


def _bench(
    a: Side, b: Side, settings: tuple[Check, ...], differing: tuple[Check, ...]
) -> CompareView:
    found = of_cases.case_changes(a, b, _floor(a, b, differing))
    mean = of_cases.geometric_mean(found)
    return replace(
        _empty("bench", a, b, settings, differing),
        totals=(mean,) if mean else (),
        cases=found,
        points=of_cases.point_changes(a, b),
    )


def _floor(a: Side, b: Side, differing: Sequence[Check]) -> float:
    """Return the least relative difference of a kernel or case that may be called one.

    Repeats show the noise themselves; single runs are taken to differ more on another GPU.
    """
    if len(a.runs) + len(b.runs) > 2:
        return 0.0
    told = any(gpu.get("uuid") for gpu in a.run.manifest.gpus)
    same = told and not any(check.key == "uuid" for check in differing)
    return threshold("floor" if same else "specimen_floor")


def _empty(
    kind: str, a: Side, b: Side, settings: tuple[Check, ...], differing: tuple[Check, ...]
) -> CompareView:
    title = " against ".join(dict.fromkeys((_name(a), _name(b)))) or "comparison"
    nothing = ((), (), (), (), (), (), ())
    return CompareView(
        title,
        kind,
        _origin(a),
        _origin(b),
        (),
        settings,
        differing,
        *nothing,
        method=(),
        work=None,
        unit="",
        one_off=(),
    )


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
