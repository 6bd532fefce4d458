"""Turns what ncu's own rules said into table `ncu_rules`, joined to the kernels of the run."""

from __future__ import annotations

import pandas as pd

from nsight_prof.parsers import tables
from nsight_prof.parsers.build.gaps import Gaps
from nsight_prof.parsers.errors import ProfError
from nsight_prof.parsers.ncu import NcuCapture, read_csv
from nsight_prof.parsers.run.directory import RunDir, read_manifest
from nsight_prof.parsers.run.sentences import stored

DETAILS = "details.csv"
TABLE = "ncu_rules"
SAME_LAUNCH = ("grid", "block", "stream")


def ncu_rules_frame(
    run: RunDir, capture: NcuCapture, joins: pd.DataFrame, gaps: Gaps
) -> pd.DataFrame:
    """Return table `ncu_rules` of a run: rules of its report, or of the details page beside it.

    `joins` is the table of that name. Why there are none goes into `gaps` where they were asked
    for.
    """
    rules = capture.rules if len(capture.rules) else _of_page(run, capture, gaps)
    if rules.empty and _asked(run):
        gaps.add(TABLE, stored("ncu's rules were asked for and said nothing"))
    keys = joins.loc[joins["profile"].notna(), ["profile", "kernel_id", "launch"]]
    return tables.check(rules.merge(keys, on="profile", how="left"), TABLE)


def _of_page(run: RunDir, capture: NcuCapture, gaps: Gaps) -> pd.DataFrame:
    """Read the details page that the run printed beside a raw page, which holds no rules."""
    path = run.artifact("counters", DETAILS)
    if path is None:
        return capture.rules
    try:
        page = read_csv(path)
    except ProfError as error:
        gaps.unreadable(TABLE, path, error)
        return capture.rules
    captured, paged = capture.launches, page.launches
    # Both pages number the results in the order of the report.
    same = len(captured) == len(paged) and all(
        _agree(captured[column], paged[column]) for column in SAME_LAUNCH
    )
    if not same:
        gaps.add(TABLE, stored("{name} is of other launches than the counters", name=path.name))
        return capture.rules
    return page.rules


def _agree(captured: pd.Series, paged: pd.Series) -> bool:
    known = captured.notna() & paged.notna()
    return bool((captured[known] == paged[known]).all())


def _asked(run: RunDir) -> bool:
    counters = read_manifest(run).recipe.get("counters") or {}
    return bool(counters.get("rules"))
