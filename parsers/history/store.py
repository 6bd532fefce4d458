"""The store of results: a folder with one Parquet file for each run that was added.

A file is written whole and never changed, so that a folder that several machines share, or a
repository, keeps all of them; adding a run again replaces its file.
"""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd

from nsight_prof.parsers.bench.records import MEASURED
from nsight_prof.parsers.cells import known, records, text
from nsight_prof.parsers.errors import UsageError
from nsight_prof.parsers.nsys.stages.work import ALL
from nsight_prof.parsers.reading import reading
from nsight_prof.parsers.run.run import Run
from nsight_prof.parsers.whole_file import written_whole

COLUMNS = ("commit", "run", "created", "recipe", "gpu", "series", "seconds")
"""What was measured, by which run, when (UTC), of which recipe, on which kinds of GPUs; and what of
it, as prof compare calls it: total_gpu_time, stage:NAME:gpu_time, case:ID:time."""
SAFE = re.compile(r"[^A-Za-z0-9._-]+")
OF_WHOLE = {"kernel_ns": "total_gpu_time", "wall_ns": "wall_time", "idle_ns": "idle_time"}
"""Column of table `stages` -> what `prof compare` calls it."""


def results(run: Run, commit: str) -> pd.DataFrame:
    """Return COLUMNS of one run: times of the program and its stages, or of its cases.

    Raises:
        UsageError: the run has no times.
    """
    found = [*_of_trace(run), *_of_cases(run)]
    if not found:
        raise UsageError(
            f"{run.path} has no times: neither a trace nor measured cases",
            "add a run of a recipe; of a job add its ranks: RUN/ranks/0000",
        )
    about = {
        "commit": commit,
        "run": run.manifest.run_id,
        "created": run.manifest.created,
        "recipe": str(run.manifest.recipe.get("name", "")),
        "gpu": ", ".join(sorted({str(gpu.get("name") or "") for gpu in run.manifest.gpus})),
    }
    rows = [{**about, "series": name, "seconds": value} for name, value in found]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _of_trace(run: Run) -> list[tuple[str, float]]:
    found = []
    for row in records(run.stages):
        stage = text(row["stage"])
        names = OF_WHOLE if stage == ALL else {"kernel_ns": f"stage:{stage}:gpu_time"}
        values = ((name, known(row[column])) for column, name in names.items())
        found += [(name, value / 1e9) for name, value in values if value]
    return found


def _of_cases(run: Run) -> list[tuple[str, float]]:
    measured = [row for row in records(run.bench) if row["status"] == MEASURED]
    pairs = ((f"case:{row['case_id']}:time", known(row["median_s"])) for row in measured)
    return [(name, value) for name, value in pairs if value]


def add(folder: Path, frame: pd.DataFrame) -> Path:
    """Keep the results of a run; return the file."""
    first = frame.iloc[0]
    words = (str(first[name])[:80] for name in ("created", "commit", "run"))
    path = folder / f"{'-'.join(SAFE.sub('_', word) for word in words)}.parquet"
    folder.mkdir(parents=True, exist_ok=True)
    with written_whole(path) as partial:
        frame.to_parquet(partial, index=False)
    return path


def read_all(folder: Path) -> pd.DataFrame:
    """Return the results of all runs in the order in which they were measured.

    Raises:
        UsageError: there are none.
        ArtifactUnreadable: a file is damaged.
    """
    files = sorted(folder.glob("*.parquet"))
    if not files:
        raise UsageError(
            f"{folder} has no results", f"add a run: prof history add RUN --store {folder}"
        )
    every = pd.concat(map(_read, files), ignore_index=True)
    return every.sort_values(["created", "run"], kind="stable", ignore_index=True)


def _read(path: Path) -> pd.DataFrame:
    with reading(path, "results of prof history", "delete the file, and add its run again"):
        frame = pd.read_parquet(path)[list(COLUMNS)]
        return frame.astype({"seconds": float})
