"""The two readers give the same numbers: an .ncu-rep through ncu_report, and ncu's CSV of it."""

import csv
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest

from nsight_prof.parsers.ncu import NcuCapture, read_csv, read_rep
from nsight_prof.parsers.run.directory import decompress
from nsight_prof.parsers.units import to_base

pytest.importorskip("ncu_report", reason="NVIDIA's ncu_report is not installed")

REPORTS = [
    "AveryClapp+ESMM-Research/profile",
    "MgMap+Hyper-Spec-M/profile",
    "NVIDIA+JAX-Toolbox/ncu_report_cuda_graph_pdl_stream_capture",
    "SebastianKuckuk+ihpcss-gpu-perf/stencil-2d-omp-target-v1",
    "SebastianKuckuk+ihpcss-gpu-perf/stream-cuda",
    "SebastianKuckuk+ihpcss-gpu-perf/stream-cuda_391f3e",
    "bobschreiner+NuKEXC/profile_fastc",
    "eschnett+IndexSpaces.jl/profile",
    "josiahls+cuda_learning_mojo/profile",
    "thedavidchu+speedy_scan/profile",
]
KEYS = ["grid", "block", "device", "pid", "stream", "context"]


@pytest.fixture(scope="session")
def ncu(nsight: Path) -> str:
    return str(nsight / "ncu")


def export(ncu: str, report: Path, units: str, folder: Path, *page: str) -> Path:
    target = folder / f"{units}.csv"
    argv = [ncu, "--config-file", "off", "--import", str(report), "--csv", "--page"]
    argv += page or ["raw"]
    env = os.environ | {
        "LC_ALL": "C",
        "HOME": str(folder),
        "NV_COMPUTE_PROFILER_DISABLE_STOCK_FILE_DEPLOYMENT": "1",
    }
    with target.open("wb") as stream:
        subprocess.run([*argv, "--print-units", units], env=env, stdout=stream, check=True)
    return target


def printed(path: Path) -> Iterator[tuple[int, str, str, str]]:
    """Profile, metric, text and unit of each cell, read without the code under test."""
    with path.open(encoding="utf-8", newline="") as stream:
        header, units, *records = csv.reader(stream)
    first = header.index("CC") + 1
    for profile, record in enumerate(records):
        for name, unit, text in list(zip(header, units, record, strict=True))[first:]:
            yield profile, name, text, unit


def rounding(text: str, unit: str) -> float:
    """Half of the last printed digit, in base units."""
    decimals = len(text.rpartition(".")[2]) if "." in text else 0
    return to_base(0.5 * 10.0**-decimals, unit)[0] * (1 + 1e-6)


def same_unit(metric: str, csv_unit: str, rep_unit: str) -> bool:
    """ncu 2024.1.1 and ncu_report 2026.3.1 agree on every unit that has a scale.

    They differ in words for counts (warp or nothing; nothing where a metric is newer) and
    in what ncu derives itself (byte for a number of sectors).
    """
    derived = metric.startswith(("derived__", "memory_l"))
    counts = not set(f"{csv_unit}/{rep_unit}".split("/")) & {"B", "ns", "Hz", "%", "s"}
    return csv_unit == rep_unit or "" in (csv_unit, rep_unit) or derived or counts


def assert_same(from_csv: NcuCapture, from_rep: NcuCapture, path: Path) -> int:
    left, right = (
        capture.metrics.set_index(["profile", "metric"])[["value", "text", "unit"]]
        for capture in (from_csv, from_rep)
    )
    assert not left.index.symmetric_difference(right.index).tolist()
    ours, theirs = left.to_dict("index"), right.to_dict("index")
    failed = from_rep.launches["grid"].isna()
    compared = 0
    for profile, name, text, unit in printed(path):
        if not text:
            continue
        got, want = ours[profile, name], theirs[profile, name]
        what = (path.name, profile, name, text, unit, got, want)
        if failed[profile] and set(text) <= set("0."):
            assert pd.isna(got["value"]), what
            continue
        assert pd.isna(got["value"]) == pd.isna(want["value"]), what
        assert pd.isna(got["text"]) == pd.isna(want["text"]), what
        if not pd.isna(want["value"]):
            tolerance = rounding(text, unit) + abs(want["value"]) * 1e-12
            assert abs(got["value"] - want["value"]) <= tolerance, what
            compared += 1
        elif not pd.isna(want["text"]):
            assert got["text"] == want["text"], what
        assert same_unit(name, got["unit"], want["unit"]), what
    assert from_csv.launches[~failed][KEYS].equals(from_rep.launches[~failed][KEYS])
    return compared


@pytest.mark.parametrize("units", ["base", "auto"])
@pytest.mark.parametrize("name", REPORTS)
def test_every_metric_of_a_real_report_is_what_the_csv_of_ncu_prints(
    name: str, units: str, real_exports: Path, ncu: str, tmp_path: Path
) -> None:
    report = next(real_exports.rglob(f"{name}.ncu-rep"))
    path = export(ncu, report, units, tmp_path)
    from_csv, from_rep = read_csv(path), read_rep(report)
    assert assert_same(from_csv, from_rep, path) > 500
    assert from_csv.launches["name"].equals(from_rep.launches["name"])
    assert from_csv.warnings == from_rep.warnings
    assert from_rep.version.count(".") == 3


@pytest.mark.parametrize(
    ("report", "page"),
    [
        ("llm_block", "llm_block.base"),
        ("llm_block", "llm_block.auto"),
        ("llm_block", "llm_block.demangled"),
        ("flops", "flops.base"),
    ],
)
def test_every_metric_of_our_own_report_is_what_the_csv_of_ncu_prints(
    report: str, page: str, root: Path, tmp_path: Path
) -> None:
    fixtures = root / "tests" / "fixtures" / "ncu_csv"
    path = tmp_path / f"{page}.csv"
    decompress(fixtures / f"{page}.csv.xz", path)
    from_csv, from_rep = read_csv(path), read_rep(fixtures / f"{report}.ncu-rep.xz")
    assert assert_same(from_csv, from_rep, path) > 4000
    if report == "llm_block" and not page.endswith("demangled"):
        assert from_csv.launches["name"].equals(from_rep.launches["mangled_name"])
    assert from_csv.launches["passes"].equals(from_rep.launches["passes"])
    assert from_rep.version == "2025.3.1.0"
    assert not from_rep.warnings


def test_the_csv_base_units_are_exact_for_integers(
    real_exports: Path, ncu: str, tmp_path: Path
) -> None:
    report = next(real_exports.rglob("stream-cuda_391f3e.ncu-rep"))
    capture = read_csv(export(ncu, report, "base", tmp_path))
    exact = read_rep(report).metrics.set_index("metric")["value"]
    ours = capture.metrics.set_index("metric")["value"]
    whole = exact[exact.notna() & (exact % 1 == 0)]
    assert len(whole) > 300
    assert (ours[whole.index] == whole).all()


# ncu 2024.1.1 cannot print all details of the report of 2025.3.1.
@pytest.mark.parametrize(
    ("name", "parts"),
    [(n, p) for n in REPORTS for p in ("header", "all") if (n, p) != (REPORTS[2], "all")],
)
def test_labels_of_the_details_page_stand_for_the_metrics_of_the_report(
    name: str, parts: str, real_exports: Path, ncu: str, tmp_path: Path
) -> None:
    report = next(real_exports.rglob(f"{name}.ncu-rep"))
    page = read_csv(export(ncu, report, "auto", tmp_path, "details", "--print-details", parts))
    rep = read_rep(report)
    exact = rep.metrics.set_index(["profile", "metric"])["value"].to_dict()
    failed = rep.launches["grid"].isna().tolist()
    shown = page.metrics[~page.metrics["metric"].str.contains("/")].dropna(subset="value")
    assert len(shown) > 20
    for profile, metric, got in shown[["profile", "metric", "value"]].to_numpy().tolist():
        # ncu 2024.1.1 shows a 0 for metrics that a newer report does not have.
        value = exact.get((profile, metric))
        if value is not None and not failed[profile]:
            # Two decimals of a scaled unit: at worst 0.005 of a thousand base units.
            assert abs(got - value) <= max(0.005, abs(value) * 0.0051), (metric, got, value)
