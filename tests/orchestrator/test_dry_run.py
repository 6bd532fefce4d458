"""A dry run shows the very commands that the run starts."""

import shlex
from pathlib import Path
from typing import Any

import pytest

from nsight_prof.orchestrator import cli
from nsight_prof.orchestrator.system.environment import Gpus
from nsight_prof.parsers.run.selection import SelectedKernel, Selection, write_selection

H200 = Gpus([{"device": 0, "compute_capability": "9.0"}], "580.95", "13.0")


def shown(text: str) -> list[list[str]]:
    """Return the argvs of the commands in a dry run."""
    lines = text.replace(" \\\n", " ").splitlines()
    return [shlex.split(line) for line in lines if line and not line.startswith("#")]


def normal(argv: list[str]) -> list[str]:
    """Leave out what differs for good: the tool's folder, and the mark of an unfinished step."""
    return [argv[0].rpartition("/")[2], *(word.replace(".partial", "") for word in argv[1:])]


@pytest.fixture
def recipe(lab: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    """A recipe file that names its kernels and dtypes, so that nothing is left to find out."""
    monkeypatch.setattr("nsight_prof.orchestrator.run.dry_run.read_gpus", lambda: H200)
    (lab.folder / "target.py").write_text("print('target ran')")
    kernels = [SelectedKernel(f"k{n}", n, n, n, "1x1x1", "1x1x1", 0.5, 3) for n in ("f$", "g")]
    write_selection(lab.folder / "kernels.yaml", Selection(kernels, skip=3, count=2))
    path = lab.folder / "mine.yaml"
    path.write_text(
        "target: {file: target.py, args: {size: 5}}\n"
        "capture: {nvtx: decode}\n"
        "select: {kernels: kernels.yaml}\n"
        "counters: {sets: [roofline], tensor_dtypes: [bf16]}\n"
    )
    return str(path)


def test_the_commands_are_those_of_the_run(
    lab: Any, recipe: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["run", recipe, "--out", str(lab.out), "--dry-run"]) == 0
    dry = [normal(argv) for argv in shown(capsys.readouterr().out) if "export" not in argv]
    assert not lab.calls()
    assert cli.main(["run", recipe, "--out", str(lab.out)]) == 0
    assert dry == [normal(argv) for argv in lab.calls()]
    assert [argv[0] for argv in dry] == ["nsys", "ncu"]
    assert r"regex:^(f\$|g)$" in dry[1]


def test_what_is_not_known_yet_is_marked(recipe: str, capsys: pytest.CaptureFixture[str]) -> None:
    known = ["--set", "counters.tensor_dtypes=auto", "--set", "select.kernels=null"]
    assert cli.main(["run", recipe, "--dry-run", *known]) == 0
    text = capsys.readouterr().out
    assert cli.main(["run", recipe, "--dry-run", "--set", "select.kernels=[f]"]) == 0
    assert "regex:<the selected kernels>" in capsys.readouterr().out
    assert "regex:<the selected kernels>" in text
    assert "<the metrics of roofline: which ones, the selected kernels will tell>" in text


def test_the_commands_of_a_benchmark_are_those_of_the_run(
    lab: Any, root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("nsight_prof.orchestrator.run.dry_run.read_gpus", lambda: H200)
    path = lab.folder / "mine.yaml"
    path.write_text(
        f"target: {{file: {root}/tests/fakes/bench_target.py}}\n"
        "bench: {processes: 2, count_args: {launches: 2}}\n"
        "counters: {sets: [roofline], tensor_dtypes: [bf16]}\n"
    )
    arguments = ["run", str(path), "--out", str(lab.out), "--repeat", "3"]
    assert cli.main([*arguments, "--dry-run"]) == 0
    text = capsys.readouterr().out
    assert "6 processes, one after another: --process 1..2 of each --repeat 1..3" in text
    measuring, counting = map(normal, shown(text))
    assert cli.main(arguments) == 0
    assert [counting] == [normal(argv) for argv in lab.calls()]
    assert measuring == normal(lab.manifest.step("bench").argv)
