"""The tables of a prediction, or of imported operators, as their step left them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pandas as pd

from nsight_prof.parsers import tables
from nsight_prof.parsers.errors import StepFailed
from nsight_prof.parsers.run.directory import RunDir, read_manifest
from nsight_prof.parsers.run.sentences import keep, sentences_made
from nsight_prof.parsers.run.sentences_file import read_sentences, write_sentences
from nsight_prof.parsers.whole_folder import put_in_place

ROWS_AS_CSV = 200_000
"""Rows of a table up to which a CSV is written beside the Parquet file."""
STEPS = ("predict", "imported-operators")


def predicted_frames(run: RunDir) -> dict[str, pd.DataFrame]:
    """Return the tables that such a step left; none for any other run."""
    manifest = read_manifest(run)
    for step in STEPS:
        record = manifest.step(step)
        if record is not None and record.directory:
            folder = run.step(record)
            found = {run.inside(path).stem for path in folder.glob("*.parquet")}
            keep(read_sentences(folder))
            return {name: tables.read(folder, name) for name in tables.tables() if name in found}
    return {}


def build_predicted(run: RunDir) -> bool:
    """Write these tables; False where the run has none. Raises as `new_tables`.

    What reads captures is not imported for them.
    """
    found = predicted_frames(run)
    if found:
        with new_tables(run) as folder:
            for table, frame in found.items():
                tables.write(frame, table, folder, csv=len(frame) <= ROWS_AS_CSV)
    return bool(found)


@contextmanager
def new_tables(run: RunDir) -> Iterator[Path]:
    """Give an empty folder, which takes the place of tables/ at the end.

    Raises:
        StepFailed: the tables cannot be written.
    """
    partial = run.tables.with_name(f"{run.tables.name}.partial")
    try:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        with sentences_made() as sentences:
            yield partial
        write_sentences(partial, sentences)
        put_in_place(partial, run.tables)
    except OSError as error:
        shutil.rmtree(partial, ignore_errors=True)
        raise StepFailed(
            f"the tables of {run.path} cannot be written: {error}",
            "free some space or correct the permissions, then: prof report RUN",
        ) from error
