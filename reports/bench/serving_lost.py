"""Finding about the points of a serving run that have no time: how many, why, and what went on."""

from __future__ import annotations

from collections import Counter

from nsight_prof.parsers.cells import records, text
from nsight_prof.reports.bench.models import BenchFinding
from nsight_prof.reports.formats import count, counted, listed
from nsight_prof.reports.load import Run

WORDS = {"out-of-memory": "out of memory", "failed": "failed", "unsupported": "not supported"}


def lost(run: Run, target: str) -> BenchFinding | None:
    """Say which points could not be measured; None where all were."""
    rows = [row for row in records(run.bench) if text(row["target"]) == target]
    bad = [row for row in rows if text(row["status"]) in WORDS]
    if not bad:
        return None
    kinds = Counter(text(row["status"]) for row in bad)
    said = listed([f"{count(n)} {WORDS[kind]}" for kind, n in kinds.most_common()])
    names = ", ".join(text(row["name"]) for row in bad[:3])
    more = f" and {count(len(bad) - 3)} more" if len(bad) > 3 else ""
    went_on = " The others were measured all the same." if len(bad) < len(rows) else ""
    return BenchFinding(
        f"{counted(len(bad), 'point')} of {count(len(rows))} could not be measured: {said}.",
        f"{names}{more}: {text(bad[0]['reason']).rstrip('.') or 'no reason was recorded'}."
        f"{went_on}",
    )
