"""What ncu's rules said: the same from a report and from ncu's own CSV of it."""

import csv
import lzma
import math
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsight_prof.parsers.ncu import read_csv, read_rep
from nsight_prof.parsers.ncu.rules import KINDS, RULE_DTYPES, plain_message

REPORTS = ["stencil", "stream", "pdl"]
KEYS = ["profile", "section", "rule", "kind", "message"]


@pytest.fixture(scope="session")
def exports(root: Path) -> Path:
    return root / "tests/fixtures/ncu_rules"


def printed(text: str) -> list[dict[str, str]]:
    """The rule records of a details page, read without the code under test."""
    lines = text[text.index('"ID"') :].splitlines()
    header, *records = csv.reader(lines)
    found = [dict(zip(header, record, strict=False)) for record in records]
    return [record for record in found if record.get("Rule Name")]


@pytest.mark.parametrize("name", REPORTS)
def test_a_report_and_its_csv_say_the_same(exports: Path, name: str) -> None:
    pytest.importorskip("ncu_report", reason="NVIDIA's ncu_report is not installed")
    report = read_rep(exports / f"{name}.ncu-rep.xz").rules
    page = read_csv(exports / f"{name}.details.csv.xz").rules
    assert len(report) > 0
    assert sorted(report[KEYS].values.tolist()) == sorted(page[KEYS].values.tolist())
    estimates = [
        sorted(zip(f["rule"], f["message"], f["speedup_of"], f["speedup_pct"], strict=True))
        for f in (report, page)
    ]
    for (*ours, exact), (*theirs, rounded) in zip(*estimates, strict=True):
        assert ours == theirs
        # The CSV has four digits.
        assert math.isnan(exact) == math.isnan(rounded)
        assert math.isnan(exact) or exact == pytest.approx(rounded, rel=1e-3, abs=1e-4)


@pytest.mark.parametrize("name", ["copy_blocked.csv", "cublaslt.log", "stencil.details.csv"])
def test_every_rule_of_a_details_page_is_read(exports: Path, name: str) -> None:
    path = exports / f"{name}.xz"
    expected = printed(lzma.decompress(path.read_bytes()).decode())
    rules = read_csv(path).rules
    assert list(rules["rule"]) == [record["Rule Name"] for record in expected]
    assert list(rules["kind"]) == [KINDS[record["Rule Type"]] for record in expected]
    for said, record in zip(rules.to_dict("records"), expected, strict=True):
        assert said["message"] == re.sub(r"\s+", " ", record["Rule Description"]).strip()
        assert said["speedup_of"] == record["Estimated Speedup Type"]
        told = record["Estimated Speedup"]
        assert math.isnan(said["speedup_pct"]) if not told else said["speedup_pct"] == float(told)


def test_titles_and_metrics_come_from_the_report(exports: Path) -> None:
    pytest.importorskip("ncu_report", reason="NVIDIA's ncu_report is not installed")
    rules = read_rep(exports / "stencil.ncu-rep.xz").rules.set_index("rule")
    small = rules.loc["LaunchConfiguration"]
    assert (small["title"], small["kind"]) == ("Small Grid", "optimization")
    # 64 blocks on 108 SMs.
    assert small["speedup_pct"] == pytest.approx(100 * (108 - 64) / 108)
    assert (small["speedup_of"], small["metrics"]) == ("global", "launch__grid_size")


def test_a_report_without_rules_has_an_empty_frame(root: Path) -> None:
    rules = read_csv(root / "tests/fixtures/ncu_csv/llm_block.base.csv.xz").rules
    assert rules.empty
    assert list(rules.columns) == list(RULE_DTYPES)


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        (
            "See @section:LaunchStats:Launch Statistics@ for  more.",
            "See Launch Statistics for more.",
        ),
        ("at @sass:0x10:FADD R1@", "at FADD R1"),
        ("got 2 (1.09x) at PC @source:7f5e16:0x7f5e16@", "got 2 (1.09x) at PC 0x7f5e16"),
        ("at @source:a.cu:12:line 12@", "at line 12"),
        (
            "See the @url:Guide:https://docs.nvidia.com/x.html#y@ on it.",
            "See the Guide (https://docs.nvidia.com/x.html#y) on it.",
        ),
        ("mail me@example.org or you@example.org", "mail me@example.org or you@example.org"),
    ],
)
def test_links_become_text(text: str, plain: str) -> None:
    assert plain_message(text) == plain


@given(st.text())
def test_a_plain_message_stays_so(text: str) -> None:
    once = plain_message(re.sub("@", "", text))
    assert plain_message(once) == once


FOREIGN = [
    "AveryClapp+ESMM-Research/profile",
    "MgMap+Hyper-Spec-M/profile",
    "SebastianKuckuk+ihpcss-gpu-perf/stream-cuda",
    "bobschreiner+NuKEXC/profile_fastc",
    "eschnett+IndexSpaces.jl/profile",
    "josiahls+cuda_learning_mojo/profile",
    "thedavidchu+speedy_scan/profile",
]


@pytest.mark.parametrize("name", FOREIGN)
def test_real_reports_of_other_versions(
    real_exports: Path, nsight: Path, tmp_path: Path, name: str
) -> None:
    pytest.importorskip("ncu_report", reason="NVIDIA's ncu_report is not installed")
    report = real_exports / "ncu" / f"{name}.ncu-rep"
    page = tmp_path / "details.csv"
    argv: list[Any] = [nsight / "ncu", "--config-file", "off", "--import", report]
    with page.open("wb") as stream:
        subprocess.run(
            [*argv, "--csv", "--page", "details"],
            env=os.environ | {"LC_ALL": "C", "HOME": str(tmp_path)},
            stdout=stream,
            check=True,
        )
    ours, theirs = read_rep(report).rules, read_csv(page).rules
    assert sorted(ours[KEYS].values.tolist()) == sorted(theirs[KEYS].values.tolist())
