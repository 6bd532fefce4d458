"""A recorded run becomes small and tells nothing of the machine, with the same result."""

import gzip
import json
import lzma
import runpy
from pathlib import Path
from types import ModuleType

import pytest

from nsight_prof.parsers.errors import ArtifactUnreadable
from nsight_prof.parsers.ncu import read_ncu
from nsight_prof.parsers.nsys.trace import open_trace
from nsight_prof.parsers.run.artifacts import check_artifacts, describe
from nsight_prof.parsers.run.directory import (
    Manifest,
    RunDir,
    StepRecord,
    StepState,
    write_manifest,
)

pytest.importorskip("ncu_report", reason="NVIDIA's ncu_report is not installed")
SECRET = "token-4711"


def message(number: int, content: bytes) -> bytes:
    """One protobuf field of bytes."""
    size, value = bytearray(), len(content)
    while value > 0x7F:
        size.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([number << 3 | 2, *size, value]) + content


def fat_report(report: bytes) -> bytes:
    """Add a module and the session of a machine to a report, as ncu 2025.3.1 lays them out."""
    settings = message(1, b"/home/me/bin/python3") + message(2, b"/home/me")
    settings += message(4, f"API={SECRET}".encode())
    system = message(1, b"Linux") + message(5, b"my-host")
    session = message(3, system) + message(9, settings) + message(11, b"ncu /home/me/a.py")
    header = message(3, session)
    source = b"\x08\x01" + message(4, b"\x7fELF" + bytes(range(256)) * 400)
    payload = len(source).to_bytes(4, "little") + source
    size = len(payload)
    block = b"\x08\x01" + bytes([5 << 3, size & 0x7F | 0x80, size >> 7 & 0x7F | 0x80, size >> 14])
    start = 8 + int.from_bytes(report[4:8], "little")
    added = len(header).to_bytes(4, "little") + header
    added += len(block).to_bytes(4, "little") + block + payload
    return report[:start] + added + report[start:]


@pytest.fixture
def run(root: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    trace, counters = folder / "steps/1-trace", folder / "steps/3-counters"
    trace.mkdir(parents=True)
    counters.mkdir(parents=True)
    (folder / "tables").mkdir()
    (folder / "tables/kernels.csv").write_text("x")
    (folder / "manifest.json").write_text(json.dumps({"format_version": 1}))
    fake = runpy.run_path(str(root / "tests/fakes/fake_trace.py"))
    fake["make_trace"](trace / "trace.sqlite", "", {"API": SECRET})
    (trace / "trace.nsys-rep").write_text(SECRET)
    (trace / "stdout.log").write_text("loaded /home/me/model\n")
    packed = (root / "tests/fixtures/ncu_csv/flops.ncu-rep.xz").read_bytes()
    (counters / "counters.ncu-rep").write_bytes(fat_report(lzma.decompress(packed)))
    return folder


ARGUMENTS = ["--drop", "trace.nsys-rep", "--replace", "/home/me/=", "--forbid", SECRET]
ARGUMENTS += ["--forbid", "/home/me", "--forbid", "my-host"]


def test_a_run_is_small_and_tells_nothing_of_the_machine(
    run: Path, slim: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "captures/small"
    assert slim.main([str(run), str(target), *ARGUMENTS]) == 0
    files = {str(p.relative_to(target)) for p in target.rglob("*") if p.is_file()}
    assert files == {
        "manifest.json",
        "steps/1-trace/stdout.log",
        "steps/1-trace/trace.sqlite",
        "steps/3-counters/counters.ncu-rep.xz",
    }
    assert (target / "steps/1-trace/stdout.log").read_text() == "loaded model\n"
    small = read_ncu(target / "steps/3-counters/counters.ncu-rep.xz")
    whole = read_ncu(run / "steps/3-counters/counters.ncu-rep")
    assert small.metrics.equals(whole.metrics)
    assert small.launches.equals(whole.launches)
    assert "in all" in capsys.readouterr().out


def test_the_manifest_describes_the_slim_files(run: Path, slim: ModuleType, tmp_path: Path) -> None:
    steps = [
        StepRecord(name, state=StepState.DONE, directory=f"steps/{name}")
        for name in ("1-trace", "3-counters")
    ]
    for step in steps:
        step.files = describe(run / step.directory)
    write_manifest(RunDir(run), Manifest("run", "", {}, steps=steps))
    target = tmp_path / "small"
    assert slim.main([str(run), str(target), *ARGUMENTS]) == 0
    check_artifacts(RunDir(target))
    (target / "steps/1-trace/trace.sqlite").write_bytes(b"")
    with pytest.raises(ArtifactUnreadable):
        check_artifacts(RunDir(target))


def test_a_slim_trace_gives_the_reader_the_same_tables(
    run: Path, slim: ModuleType, tmp_path: Path
) -> None:
    target = tmp_path / "small"
    assert slim.main([str(run), str(target), *ARGUMENTS]) == 0
    paths = [folder / "steps/1-trace/trace.sqlite" for folder in (run, target)]
    with open_trace(paths[0]) as before, open_trace(paths[1]) as after:
        assert before.kernels().equals(after.kernels())
        assert before.launches().equals(after.launches())
        assert before.product_version == after.product_version


def test_a_trace_of_operators_is_looked_through_and_packed_again(
    run: Path, slim: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = run / "steps/4-operators"
    folder.mkdir()
    events = '{"traceEvents": [' + ", ".join(f'"/home/me/{n}.py"' for n in range(9000)) + "]}"
    (folder / "operators.json.gz").write_bytes(gzip.compress(events.encode()))
    target = tmp_path / "small"
    assert slim.main([str(run), str(target), *ARGUMENTS]) == 0
    (packed,) = (target / "steps/4-operators").iterdir()
    assert packed.name == "operators.json.xz"
    assert lzma.decompress(packed.read_bytes()).decode() == events.replace("/home/me/", "")
    (folder / "operators.json.gz").write_bytes(gzip.compress(SECRET.encode()))
    assert slim.main([str(run), str(tmp_path / "other"), *ARGUMENTS]) == 1
    assert "operators.json still holds" in capsys.readouterr().err


def test_a_forbidden_text_leaves_nothing_behind(
    run: Path, slim: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "small"
    assert slim.main([str(run), str(target), "--forbid", SECRET]) == 1
    assert "trace.nsys-rep still holds" in capsys.readouterr().err
    assert not target.exists()


def test_an_existing_target_is_refused(
    run: Path, slim: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert slim.main([str(run), str(tmp_path)]) == 1
    assert "exists" in capsys.readouterr().err


def test_a_report_that_would_change_is_refused(
    run: Path, slim: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Field 13 of a result holds its metrics."""
    monkeypatch.setattr(slim, "KERNEL", {13: None})
    assert slim.main([str(run), str(tmp_path / "small"), *ARGUMENTS]) == 1
    assert not (tmp_path / "small").exists()
