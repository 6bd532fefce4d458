"""Copies of recorded runs, and validations of predictions by them, each of which is made once."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from unittest.mock import patch

import pandas as pd

from nsight_prof.orchestrator.predict.plan import Plan
from nsight_prof.orchestrator.predict.predicting import errors, held_out, validation
from nsight_prof.orchestrator.predict.run_folder import opened
from nsight_prof.orchestrator.predict.sources import Source
from nsight_prof.parsers.cells import Row, records
from nsight_prof.parsers.packaged import read_again
from nsight_prof.parsers.predict.validation import HELD_OUT

ROOT = Path(__file__).resolve().parents[3]
CASE = re.compile(r"\w+/cuda-graphs/b(?P<batch>\d+)/p(?P<prompt>\d+)/o\d+")
BATCH_CASE = re.compile(r"batch/b(?P<batch>\d+)/p(?P<prompt>\d+)/o\d+")


def copy_captures(work: Path, names: Sequence[str]) -> None:
    """Copy captures below `work` that are not there yet: tables are written into them."""
    for name in set(names):
        captured = ROOT / "captures" / name
        if captured.exists() and not (work / name).exists():
            shutil.copytree(captured, work / name)


@cache
def recorded(work: Path, name: str) -> Source:
    """Return a recorded run, copied below `work`; what is read of it stays in memory."""
    copy_captures(work, [name])
    with patch("nsight_prof.parsers.tables.write_csv"):  # nobody reads these
        return opened(work / name)


@cache
def validated(work: Path, truth: str, sources: tuple[str, ...]) -> pd.DataFrame:
    """Return table `prediction_errors` of one validation (`prof predict --validate`)."""
    others = tuple(recorded(work, name) for name in sources)
    return validation(recorded(work, truth), others)[1]


def held_out_rows(work: Path, truth: str, sources: tuple[str, ...]) -> list[Row]:
    """Return the rows of it that no source has seen."""
    found = validated(work, truth, sources)
    return records(found[found["sample"].eq(HELD_OUT)])


@cache
def uncorrected(work: Path, truth: str, sources: tuple[str, ...]) -> list[Row]:
    """Return the same, moved by nothing that other models took beyond such predictions."""
    return list(errors(uncorrected_plan(work, truth, sources), recorded(work, truth), HELD_OUT))


@cache
def uncorrected_plan(work: Path, truth: str, sources: tuple[str, ...]) -> Plan:
    """Return how the sources predict the run so."""
    others = tuple(recorded(work, name) for name in sources)
    return held_out(recorded(work, truth), others, corrected=False)


def forget() -> None:
    """Forget all predictions: what moves or bounds them was written anew."""
    validated.cache_clear()
    read_again()
