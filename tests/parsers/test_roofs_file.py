import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from nsight_prof.parsers.errors import ArtifactUnreadable, SchemaTooNew
from nsight_prof.parsers.roofs.file import (
    Fit,
    RoofsFile,
    gpu_facts,
    matches,
    read_roofs,
    write_roofs,
)
from nsight_prof.parsers.tables import check, tables

GPU = {
    "name": "NVIDIA H200",
    "uuid": "GPU-1",
    "chip": "GH100",
    "sm_count": 132,
    "driver": "580.1",
    "max_sm_clock_hz": 1.98e9,
    "max_memory_clock_hz": 3.201e9,
    "power_limit_w": 700.0,
}


def roofs() -> pd.DataFrame:
    row = {"level_or_pipe": "dram", "dtype": "", "kind": "read", "value": 4.62e12, "unit": "B/s"}
    row |= {"repeatability": math.nan, "accepted": True, "reason": "", "is_ceiling": True}
    names = [column.name for column in tables()["measured_roofs"]]
    return check(pd.DataFrame([row, row | {"accepted": None}], columns=names), "measured_roofs")


def file(**gpu: Any) -> RoofsFile:
    return RoofsFile("2026-11-21T21:00:00Z", "roofline-1", GPU | gpu, roofs(), {"seed": 0})


def test_what_is_written_is_read(tmp_path: Path) -> None:
    write_roofs(tmp_path / "roofs.json", file())
    read = read_roofs(tmp_path / "roofs.json")
    pd.testing.assert_frame_equal(read.roofs, roofs(), check_dtype=True)
    assert (read.measured, read.run_id) == ("2026-11-21T21:00:00Z", "roofline-1")
    assert (dict(read.gpu), dict(read.conditions)) == (GPU, {"seed": 0})
    assert "NaN" not in (tmp_path / "roofs.json").read_text()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "not a file of measured roofs"),
        ("[]", "no format_version"),
        ('{"format_version": "1"}', "no format_version"),
        ('{"format_version": 1}', "measured is missing"),
        ('{"format_version": 1, "measured": "", "run_id": "", "gpu": {}, "roofs": {}}', "roofs"),
    ],
)
def test_a_file_of_something_else_is_refused(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "roofs.json").write_text(text)
    with pytest.raises(ArtifactUnreadable, match=words) as caught:
        read_roofs(tmp_path / "roofs.json")
    assert "prof run" in caught.value.hint


@pytest.mark.parametrize(("column", "wrong"), [("value", "fast"), ("samples", 10**30)])
def test_values_that_do_not_fit_are_refused(tmp_path: Path, column: str, wrong: object) -> None:
    path = tmp_path / "roofs.json"
    write_roofs(path, file())
    data = json.loads(path.read_text())
    data["roofs"][0][column] = wrong
    path.write_text(json.dumps(data))
    with pytest.raises(ArtifactUnreadable, match=column):
        read_roofs(path)


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    (tmp_path / "roofs.json").write_text('{"format_version": 2}')
    with pytest.raises(SchemaTooNew, match="format version 2"):
        read_roofs(tmp_path / "roofs.json")


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArtifactUnreadable):
        read_roofs(tmp_path / "roofs.json")


@pytest.mark.parametrize(
    ("change", "fit", "words"),
    [
        ({}, Fit.EXACT, ""),
        ({"max_sm_clock_hz": 1.98e9 + 1}, Fit.EXACT, ""),
        ({"chip": None, "sm_count": None}, Fit.EXACT, ""),
        ({"uuid": "GPU-2"}, Fit.SAME_KIND, "another NVIDIA H200"),
        ({"uuid": None}, Fit.SAME_KIND, "UUID cannot be compared"),
        ({"driver": None}, Fit.SAME_KIND, "driver cannot be compared"),
        ({"driver": "590.2"}, Fit.NO, "driver 580.1, not 590.2"),
        ({"max_sm_clock_hz": 1.5e9}, Fit.NO, "maximum SM clock"),
        ({"power_limit_w": 500.0}, Fit.NO, "power limit"),
        ({"name": "NVIDIA H100"}, Fit.NO, "name NVIDIA H200, not NVIDIA H100"),
        ({"name": None}, Fit.NO, "name of the GPU is not known"),
    ],
)
def test_roofs_hold_for_the_same_gpu_driver_and_clocks(
    change: dict[str, Any], fit: Fit, words: str
) -> None:
    match = matches(file(), GPU | change)
    assert match.fit is fit
    assert words in match.reason


def test_the_manifest_names_clocks_in_its_own_way() -> None:
    gpu = {"name": "NVIDIA H200", "sm_clock_max_hz": 1.98e9, "memory_clock_max_hz": 3.201e9}
    facts = gpu_facts(gpu | {"uuid": ""}, "580.1")
    assert facts["max_sm_clock_hz"] == 1.98e9
    assert facts["max_memory_clock_hz"] == 3.201e9
    assert facts["driver"] == "580.1"
    assert facts["uuid"] is None


def test_the_verdict_before_a_reason_of_an_older_file_is_left_out(tmp_path: Path) -> None:
    frame = roofs().assign(reason=["confirmed: as many bytes", "not confirmed: no launch"])
    write_roofs(tmp_path / "roofs.json", replace(file(), roofs=frame))
    assert read_roofs(tmp_path / "roofs.json").roofs["reason"].tolist() == [
        "as many bytes",
        "no launch",
    ]
