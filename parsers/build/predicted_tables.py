"""The tables of a prediction, or of imported operators, as their step left them."""

from __future__ import annotations

import pandas as pd

from nsight_prof.parsers import tables
from nsight_prof.parsers.run.directory import RunDir, read_manifest

STEPS = ("predict", "imported-operators")


def predicted_frames(run: RunDir) -> dict[str, pd.DataFrame]:
    """Return the tables that such a step left; none for any other run."""
    manifest = read_manifest(run)
    for step in STEPS:
        record = manifest.step(step)
        if record is not None:
            found = [n for n in tables.tables() if run.artifact(step, f"{n}.parquet") is not None]
            return {name: tables.read(run.step(record), name) for name in found}
    return {}
