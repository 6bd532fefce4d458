"""The tables of a prediction, as its step left them."""

from __future__ import annotations

import pandas as pd

from nsight_prof.parsers import tables
from nsight_prof.parsers.run.directory import RunDir, read_manifest

STEP = "predict"


def predicted_frames(run: RunDir) -> dict[str, pd.DataFrame]:
    """Return the tables that a prediction left; none for any other run."""
    record = read_manifest(run).step(STEP)
    if record is None:
        return {}
    found = [name for name in tables.tables() if run.artifact(STEP, f"{name}.parquet") is not None]
    return {name: tables.read(run.step(record), name) for name in found}
