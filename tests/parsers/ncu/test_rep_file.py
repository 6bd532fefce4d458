"""An .ncu-rep is read in full precision, or refused with what to do."""

import lzma
import sys
from pathlib import Path

import pytest

from nsight_prof.parsers.errors import ArtifactUnreadable, NoKernels, ToolMissing
from nsight_prof.parsers.ncu import read_ncu, read_rep
from nsight_prof.parsers.ncu.blocks import read_frame

FLOPS = "tests/fixtures/ncu_csv/flops.ncu-rep.xz"


@pytest.fixture
def report(root: Path) -> bytes:
    return lzma.decompress((root / FLOPS).read_bytes())


@pytest.fixture
def _library() -> None:
    pytest.importorskip("ncu_report", reason="NVIDIA's ncu_report is not installed")


def written(tmp_path: Path, data: bytes) -> Path:
    path = tmp_path / "x.ncu-rep"
    path.write_bytes(data)
    return path


@pytest.mark.usefixtures("_library")
def test_launches_tell_name_shape_process_and_passes(root: Path) -> None:
    capture = read_ncu(root / FLOPS)
    first = capture.launches.iloc[0]
    assert first["mangled_name"].startswith("_Z10fma_scalarIf")
    assert first["function_name"] == "fma_scalar"
    assert (first["grid"], first["block"]) == ("1056x1x1", "256x1x1")
    assert (first["device"], first["workload"]) == (0, "kernel")
    assert first["pid"] > 0
    assert first["passes"] == 5
    assert capture.version == "2025.3.1.0"


@pytest.mark.usefixtures("_library")
def test_values_are_in_base_units_and_text_is_text(root: Path) -> None:
    metrics = read_rep(root / FLOPS).metrics
    rows = metrics[metrics["profile"] == 0].set_index("metric")
    assert rows.loc["gpu__time_duration.sum", "unit"] == "ns"
    assert rows.loc["dram__bytes_read.sum", "unit"] == "B"
    assert rows.loc["launch__func_cache_config", "text"] == "CachePreferNone"
    assert rows["value"].isna()["launch__func_cache_config"]
    assert set(metrics["source"]) == {"ncu_report"}
    assert not metrics.duplicated(["profile", "metric"]).any()
    assert not metrics["metric"].str.startswith("breakdown:").any()


@pytest.mark.usefixtures("_library")
@pytest.mark.parametrize("share", [0.0001, 0.001, 0.01, 0.1, 0.5, 0.9, 0.999])
def test_a_cut_report_is_refused(share: float, report: bytes, tmp_path: Path) -> None:
    path = written(tmp_path, report[: int(len(report) * share)])
    with pytest.raises(ArtifactUnreadable):
        read_rep(path)


@pytest.mark.usefixtures("_library")
@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not an .ncu-rep"),
        (b"\x7fELF garbage", "not an .ncu-rep"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "LFS pointer"),
        (b"NVR\0" + b"\xff" * 200, "cannot be read"),
        (b"NVR\0", "cannot be read"),
    ],
)
def test_what_is_no_report_is_refused(data: bytes, message: str, tmp_path: Path) -> None:
    with pytest.raises(ArtifactUnreadable, match=message):
        read_rep(written(tmp_path, data))


@pytest.mark.usefixtures("_library")
def test_a_report_without_results_is_told_apart_from_a_damaged_one(
    report: bytes, tmp_path: Path
) -> None:
    head = report[: 8 + int.from_bytes(report[4:8], "little")]
    with pytest.raises(NoKernels):
        read_rep(written(tmp_path, head))


@pytest.mark.usefixtures("_library")
def test_a_missing_file_and_a_broken_xz_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ArtifactUnreadable, match="No such file"):
        read_rep(tmp_path / "none.ncu-rep")
    broken = tmp_path / "x.ncu-rep.xz"
    broken.write_bytes(lzma.compress(b"NVR\0")[:-8])
    with pytest.raises(ArtifactUnreadable, match="unpacked"):
        read_rep(broken)


def test_without_the_library_the_remedy_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ncu_report", None)
    with pytest.raises(ToolMissing) as raised:
        read_rep(tmp_path / "x.ncu-rep")
    assert "pip install 'nsight-prof[ncu]'" in raised.value.hint
    assert "--csv --page raw" in raised.value.hint


def test_the_frame_of_a_report_tells_version_and_processes(report: bytes, tmp_path: Path) -> None:
    frame = read_frame(written(tmp_path, report))
    assert frame.version == "2025.3.1.0"
    assert len(frame.pids) == 8
    assert len(set(frame.pids)) == 1
