"""Run directories that somebody sent: what is wrong in them is said with file and field, exit 4."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nsight_prof.orchestrator.cli import main
from nsight_prof.parsers import tables
from nsight_prof.parsers.build.load import load_run
from nsight_prof.parsers.errors import ArtifactUnreadable
from nsight_prof.parsers.run.directory import RunDir, read_manifest

Data = dict[str, Any]


@pytest.fixture
def run(recorded_folder: Callable[[str], Path], tmp_path: Path) -> Path:
    shutil.copytree(recorded_folder("h200-known-gemm"), tmp_path / "run")
    return tmp_path / "run"


def put(*keys: Any) -> Callable[[Data], None]:
    """Set the last of `keys` but one to the last."""
    *path, last, value = keys

    def change(data: Data) -> None:
        here: Any = data
        for key in path:
            here = here[key]
        here[last] = value

    return change


MANIFESTS: dict[str, tuple[Callable[[Data], object], str]] = {
    "a version in words": (put("format_version", "2"), "format_version"),
    "no version": (lambda data: data.pop("format_version"), "format_version"),
    "a version of null": (put("format_version", None), "format_version"),
    "no steps": (put("steps", None), "steps"),
    "a step of null": (put("steps", 0, None), "steps.0"),
    "an unknown state": (put("steps", 0, "state", "happy"), "steps.0.state"),
    "a step without a name": (lambda data: data["steps"][1].pop("name"), "steps.1.name"),
    "seconds in words": (put("steps", 0, "seconds", "long"), "steps.0.seconds"),
    "no run_id": (lambda data: data.pop("run_id"), "run_id"),
    "a recipe of text": (put("recipe", "x"), "recipe"),
    "a GPU of text": (put("gpus", ["H200"]), "gpus.0"),
    "a target of text": (put("recipe", "target", "x"), "recipe.target"),
    "stages of numbers": (put("recipe", "stages", [1]), "recipe.stages"),
    "a broken regex": (put("recipe", "stages", ["("]), "not a regular expression"),
    "a slow regex": (put("recipe", "stages", ["(a+)+$"]), "takes longer than"),
    "variants of numbers": (put("variants", [1]), "variants.0"),
    "tools of lists": (put("tools", {"nsys": []}), "tools.nsys"),
}


@pytest.mark.parametrize("name", MANIFESTS)
def test_a_wrong_manifest_is_refused_with_its_field(
    run: Path, capfd: pytest.CaptureFixture[str], name: str
) -> None:
    change, field = MANIFESTS[name]
    path = run / "manifest.json"
    data = json.loads(path.read_text("utf-8"))
    change(data)
    path.write_text(json.dumps(data), "utf-8")
    for command in (["report", str(run)], ["export", str(run), "-o", str(run / "x.json")]):
        assert main(command) == 4
        error = capfd.readouterr().err
        assert str(path) in error
        assert field in error
        assert "hint: " in error


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", '{"format_version": 1e999}', '{"a": ' * 100_000, "\ud83d", "\0" * 99],
    ids=["empty", "cut", "list", "null", "infinite", "deep", "surrogate", "zeros"],
)
def test_a_manifest_that_is_none_is_refused(
    run: Path, capfd: pytest.CaptureFixture[str], text: str
) -> None:
    (run / "manifest.json").write_bytes(text.encode("utf-8", "surrogatepass"))
    assert main(["report", str(run)]) == 4
    assert f"{run}/manifest.json cannot be read as the manifest" in capfd.readouterr().err


def test_a_manifest_of_a_newer_prof_says_so(run: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = run / "manifest.json"
    path.write_text('{"format_version": 99, "steps": "in another form"}', "utf-8")
    assert main(["report", str(run)]) == 4
    assert "format version 99" in capfd.readouterr().err


def test_every_recorded_manifest_is_right(root: Path) -> None:
    found = [path.parent for path in (root / "captures").rglob("manifest.json")]
    assert len(found) > 10
    for path in found:
        assert read_manifest(RunDir(path)).run_id


@pytest.mark.parametrize("table", ["launches", "kernels", "counters", "gaps"])
@pytest.mark.parametrize("garbage", [b"", b"PAR1", b"PAR1" + b"\xff" * 400 + b"PAR1", None])
def test_a_table_of_garbage_is_named(
    run: Path, capfd: pytest.CaptureFixture[str], table: str, garbage: bytes | None
) -> None:
    path = run / f"tables/{table}.parquet"
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2] + data[-200:] if garbage is None else garbage)
    out = str(run / "out.csv")
    assert main(["export", str(run), "--format", "csv", "--table", table, "-o", out]) == 4
    assert str(path) in capfd.readouterr().err
    with pytest.raises(ArtifactUnreadable, match=path.name):
        getattr(load_run(run), table)


def test_a_timeline_of_a_table_with_other_columns_is_refused(
    run: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = run / "tables/launches.parquet"
    frame = load_run(run).launches
    for wrong in (frame.drop(columns="pid"), frame.assign(start_ns="soon")):
        path.unlink()
        wrong.to_parquet(path)
        assert main(["export", str(run), "-o", str(run / "x.json")]) == 4
        assert str(path) in capfd.readouterr().err
        assert not (run / "x.json").exists()


def test_a_table_that_says_to_have_more_rows_than_bytes_is_refused(
    run: Path,
) -> None:
    """A million equal rows are packed into some hundred bytes; that is how bombs are made."""
    path = run / "tables/launches.parquet"
    frame = load_run(run).launches
    many = frame.iloc[[0] * 1_000_000].reset_index(drop=True)
    path.unlink()
    many.to_parquet(path)
    assert len(many) > tables.ROWS_A_BYTE * path.stat().st_size
    with pytest.raises(ArtifactUnreadable, match="more than its size can hold"):
        tables.read(path.parent, "launches")


SELECTIONS = {
    "a list": "[1]",
    "no kernels": "skip: 1",
    "kernels of text": "kernels: [x]",
    "an unknown key": "kernels: []\nkernel: 1",
    "a negative launch": "kernels: []\nskip: -1",
    "aliases": f"kernels: []\nnotes: [{', '.join(['&a [1]'] + ['*a'] * 60_000)}]",
    "levels": "kernels: " + "[" * 9000,
    "a 13th month": "kernels: []\nnotes: [2001-13-01]",
}


@pytest.mark.parametrize("name", SELECTIONS)
def test_a_wrong_selection_is_refused(
    run: Path, capfd: pytest.CaptureFixture[str], name: str
) -> None:
    path = run / "steps/2-select/selection.yaml"
    path.write_text(SELECTIONS[name], "utf-8")
    with pytest.raises(ArtifactUnreadable, match=r"selection\.yaml is not a kernel selection"):
        assert load_run(run).selection
