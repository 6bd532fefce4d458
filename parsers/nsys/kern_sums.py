"""Makes one kernel summary of the several that one text may hold: of ranks, runs or forms."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from nsight_prof.parsers.errors import ArtifactUnreadable
from nsight_prof.parsers.run.sentences import stored

_KEY = ["name", "grid", "block", "nth"]
# Of times in ns without decimals; of the others the last printed digit counts.
_SAME = 1e-3


def added(frames: Mapping[int, pd.DataFrame]) -> tuple[pd.DataFrame, list[str]]:
    """Return the sum of all summaries, by the line each begins at, and what is to be said of it.

    A summary that is printed twice counts once, and so does one of the same launches by kernel and
    by grid and block. Median and deviation of a kernel in several summaries are not known.

    Raises:
        ArtifactUnreadable: some are by grid and block, others not, and they are not the same.
    """
    different = _different(frames)
    summaries = _of_other_launches(different)
    notes = []
    if again := [line for line in frames if line not in different]:
        notes.append(
            stored(
                "Tables that stand in the file before count once (lines {again}).",
                again=_listed(again),
            )
        )
    shaped = [line for line, frame in summaries.items() if frame["grid"].ne("").any()]
    if shaped and len(shaped) < len(summaries):
        raise ArtifactUnreadable(
            f"holds {len(summaries)} kernel summaries (lines {_listed(summaries)}), of which some "
            f"are by grid and block (lines {_listed(shaped)}) and others of other launches are not",
            "keep those of one kind in a file of its own",
        )
    if len(summaries) == 1:
        return next(iter(summaries.values())), notes
    numbered = [
        frame.assign(nth=frame.groupby(_KEY[:3]).cumcount()) for frame in summaries.values()
    ]
    together = pd.concat(numbered, ignore_index=True)
    notes.append(
        stored(
            "{summaries} kernel summaries stand in the file (lines {lines}), of ranks of "
            "one job or of separate runs, which it does not tell: their calls and times are "
            "added. For one alone, keep it in a file of its own.",
            summaries=len(summaries),
            lines=_listed(summaries),
        )
    )
    return _sum(
        together, whole_ns=sum(float(f["whole_ns"].iloc[0]) for f in summaries.values())
    ), notes


def _sum(together: pd.DataFrame, whole_ns: float) -> pd.DataFrame:
    groups = together.groupby(_KEY, sort=False)
    frame = groups.agg(
        calls=("calls", "sum"),
        total_ns=("total_ns", "sum"),
        min_ns=("min_ns", lambda times: times.min(skipna=False)),
        max_ns=("max_ns", lambda times: times.max(skipna=False)),
        mean_ns=("mean_ns", "first"),
        median_ns=("median_ns", "first"),
        std_ns=("std_ns", "first"),
        parts=("name", "size"),
    )
    several = frame["parts"] > 1
    frame["mean_ns"] = frame["mean_ns"].mask(several, frame["total_ns"] / frame["calls"])
    frame[["median_ns", "std_ns"]] = frame[["median_ns", "std_ns"]].mask(several)
    return frame.drop(columns="parts").reset_index().drop(columns="nth").assign(whole_ns=whole_ns)


def _different(frames: Mapping[int, pd.DataFrame]) -> dict[int, pd.DataFrame]:
    """Return the summaries without those that are the same to the digit."""
    distinct: dict[int, pd.DataFrame] = {}
    for line, frame in frames.items():
        if not any(_equal(frame, earlier) for earlier in distinct.values()):
            distinct[line] = frame
    return distinct


def _of_other_launches(frames: Mapping[int, pd.DataFrame]) -> dict[int, pd.DataFrame]:
    """Return the summaries without those of launches that one by grid and block tells apart."""
    finer = [frame for frame in frames.values() if frame["grid"].ne("").any()]
    return {
        line: frame
        for line, frame in frames.items()
        if frame["grid"].ne("").any()
        or not any(_same_launches(frame, summary) for summary in finer)
    }


def _equal(a: pd.DataFrame, b: pd.DataFrame) -> bool:
    columns = ["name", "grid", "block", "calls", "total_ns", "min_ns", "max_ns"]
    return a[columns].reset_index(drop=True).equals(b[columns].reset_index(drop=True))


def _same_launches(a: pd.DataFrame, b: pd.DataFrame) -> bool:
    calls = float(a["calls"].sum()), float(b["calls"].sum())
    times = float(a["total_ns"].sum()), float(b["total_ns"].sum())
    return calls[0] == calls[1] and abs(times[0] - times[1]) <= _SAME * max(times)


def _listed(lines: Mapping[int, pd.DataFrame] | list[int]) -> str:
    first = [str(line) for line in list(lines)[:8]]
    return ", ".join(first) + (", …" if len(lines) > len(first) else "")
