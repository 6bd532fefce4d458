"""What scripts and shells get: JSON alone on stdout, one path under --quiet, completion."""

import json
import lzma
import os
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from click.shell_completion import ShellComplete

from nsight_prof.orchestrator.cli import group, main
from nsight_prof.orchestrator.run import doctor

BASH_SCRIPTS, PYTHON_SCRIPTS = "```bash\n", "```python\n"


@pytest.fixture(scope="module")
def trace(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    packed = root / "captures/h200-known-gemm/steps/1-trace/trace.sqlite.xz"
    path = tmp_path_factory.mktemp("trace") / "trace.sqlite"
    path.write_bytes(lzma.decompress(packed.read_bytes()))
    return path


@pytest.fixture(scope="module")
def prof(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for PATH in which `prof` and `python` are those of the tests."""
    folder = tmp_path_factory.mktemp("bin")
    script = folder / "prof"
    script.write_text(f'#!/bin/sh\nexec {sys.executable} -m nsight_prof "$@"\n')
    script.chmod(0o755)
    return folder


def answer(capsys: pytest.CaptureFixture[str], *words: object, code: int = 0) -> Any:
    """Return what a command prints as JSON: stdout holds nothing else."""
    capsys.readouterr()
    assert main([*map(str, words), "--json"]) == code
    return json.loads(capsys.readouterr().out)


def test_a_replayed_run_its_report_and_its_export_as_json(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], no_pictures: None
) -> None:
    run, capture = tmp_path / "run", root / "captures/h200-known-gemm"
    arguments = map(str, ("known-gemm", "--replay", capture, "--out", run, "--json"))
    assert main(["run", *arguments]) == 0
    captured = capsys.readouterr()
    made = json.loads(captured.out)
    parts = ("checking the captures", "reading the trace", "reading the counters",
             "writing the tables", "findings and text", "figures", "pages")  # fmt: skip
    told = [line for line in captured.err.splitlines() if line.removeprefix("report: ") in parts]
    # Figures are drawn beside the pages where there are two cores.
    assert told[:-2] == [f"report: {part}" for part in parts[:-2]]
    assert {*told[-2:]} == {f"report: {part}" for part in parts[-2:]}
    assert (made["run"], made["errors"], made["exit_code"]) == (str(run), [], 0)
    assert made["findings"]
    assert json.loads(Path(made["metrics"]).read_text())["run_id"] == "run"
    assert Path(made["report"]).is_file()
    again = answer(capsys, "report", run, "--format", "md")
    assert again == {key: made[key] for key in ("run", "report", "metrics", "findings")}
    files = answer(
        capsys, "export", run, "--format", "csv", "--table", "kernels", "-o", tmp_path / "k"
    )
    assert files[0]["rows"] > 0
    (timeline,) = answer(capsys, "export", run, "-o", tmp_path / "timeline.json")
    assert Path(timeline["file"]).is_file()
    compared = answer(capsys, "compare", run, run)
    assert compared["kind"] == "compare"
    assert main(["compare", str(run), str(run), "--quiet", "--fail-on", "launches<0"]) == 0
    captured = capsys.readouterr()
    assert captured.out == ""
    broken = ["--fail-on", "launches>0", "--fail-on", "wall_time>+5%"]
    assert main(["compare", str(run), str(run), "-q", *broken]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert [line.partition(":")[0] for line in captured.err.splitlines()] == ["broken"]
    assert main(["report", str(run), "--format", "md", "--quiet"]) == 0
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == (f"{made['report']}\n", "")


def test_an_import_as_json_and_quiet(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = answer(capsys, "import", trace, "--out", tmp_path / "a")
    assert (made["run"], made["files"]) == (str(tmp_path / "a"), ["trace.sqlite"])
    assert made["recorded"].startswith("20")
    assert main(["import", str(trace), "--out", str(tmp_path / "b"), "--quiet"]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'b'}\n"


def test_top_kernels_as_json_and_quiet(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = answer(capsys, "top-kernels", trace, "-k", 3)
    assert made["kernels_of_trace"] >= len(made["kernels"]) > 0
    assert sum(kernel["share"] for kernel in made["kernels"]) == pytest.approx(made["share"])
    for kernel in made["kernels"]:
        assert kernel["calls"] > 0
        assert kernel["total_ns"] > 0
    assert main(["top-kernels", str(trace), "-k", "3", "--quiet"]) == 0
    names = capsys.readouterr().out.splitlines()
    assert names == [kernel["short_name"] for kernel in made["kernels"]]


def test_recipes_metrics_and_doctor_as_json_and_quiet(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    listed = answer(capsys, "recipe", "list")
    assert all(Path(one["file"]).is_file() and one["question"] for one in listed)
    assert main(["recipe", "list", "-q"]) == 0
    assert capsys.readouterr().out.splitlines() == [one["name"] for one in listed]
    good, bad = answer(capsys, "recipe", "check", "batch-sweep", "batch-swep", code=2)
    assert (good["ok"], good["runs"], bad["ok"]) == (True, 4, False)
    assert bad["hint"].startswith("did you mean batch-sweep?")
    assert main(["recipe", "check", "top-kernels", "-q"]) == 0
    assert capsys.readouterr().out == ""
    assert answer(capsys, "metrics", "--chip", "H100")["chip"] == "GH100"
    monkeypatch.setattr(doctor, "examine", cache(doctor.examine))
    code = main(["doctor", "--quiet"])
    missing = [line for line in capsys.readouterr().out.splitlines() if line.startswith("missing")]
    states = [check["state"] for check in answer(capsys, "doctor", code=code)]
    assert states.count("missing") == len(missing)
    assert code == (3 if missing else 0)


def test_a_quiet_run_prints_its_folder_and_warnings_alone(
    lab: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    (lab.folder / "target.py").write_text("print('target ran')")
    recipe = lab.folder / "mine.yaml"
    recipe.write_text("target: {file: target.py}\ntrace: {extra_args: [--gpuctxsw=true]}\n")
    assert main(["run", str(recipe), "--out", "x", "--quiet"]) == 0
    captured = capsys.readouterr()
    assert captured.out == "x\n"
    assert captured.err.splitlines()
    assert all(line.startswith("warning: ") for line in captured.err.splitlines())
    assert main(["run", str(recipe), "--dry-run", "--json"]) == 2


def test_after_an_error_stdout_is_empty(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["report", "gone"], ["import", "gone", "--out", "x"], ["top-kernels", "gone"]):
        assert main([*words, "--json"]) != 0
        captured = capsys.readouterr()
        assert captured.out == ""
        assert captured.err.startswith("error: ")


def blocks(root: Path, start: str) -> list[str]:
    text = (root / "docs/scripts.md").read_text(encoding="utf-8")
    return re.findall(rf"^{start}(.*?)^```", text, re.DOTALL | re.MULTILINE)


def shell(prof: Path, home: Path, *argv: str) -> str:
    environment = {"PATH": f"{prof}:{os.environ['PATH']}", "HOME": str(home), "PYTHONPATH": ""}
    done = subprocess.run(
        argv, cwd=home, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_example_in_python_runs(root: Path, prof: Path, tmp_path: Path) -> None:
    (code,) = blocks(root, PYTHON_SCRIPTS)
    printed = shell(prof, tmp_path, sys.executable, "-c", code)
    assert printed == "top-kernels 1\nbatch-sweep 4\n"


@pytest.mark.skipif(shutil.which("jq") is None, reason="needs jq")
def test_the_example_in_the_shell_runs(root: Path, prof: Path, trace: Path, tmp_path: Path) -> None:
    shutil.copy(trace, tmp_path)
    finding, total, *kernels = shell(
        prof, tmp_path, "bash", "-c", blocks(root, BASH_SCRIPTS)[0]
    ).splitlines()
    metrics = json.loads((tmp_path / "runs/mine/report/metrics.json").read_text())
    assert finding
    assert float(total) == metrics["gpu_time_ns"]
    assert sum(float(line.split("\t")[1]) for line in kernels) <= 1.0001


def complete(*words: str) -> list[str]:
    """Return what is offered for the last word."""
    found = ShellComplete(group, {}, "prof", "_PROF_COMPLETE").get_completions(
        list(words[:-1]), words[-1]
    )
    return [item.value for item in found if item.type == "plain"]


def test_completion_knows_recipes_keys_sets_and_chips() -> None:
    assert complete("run", "top-") == ["top-kernels"]
    assert complete("recipe", "show", "vllm-s") == ["vllm-serve"]
    assert complete("recipe", "check", "roofline", "trace") == ["trace-only"]
    assert complete("run", "top-kernels", "--set", "select.top") == ["select.top_k="]
    assert "counters.sets=" in complete("run", "x", "--set", "")
    assert "counters=" not in complete("run", "x", "--set", "")
    assert complete("run", "x", "--set", "counters.rules=") == [
        "counters.rules=true",
        "counters.rules=false",
    ]
    assert complete("run", "x", "--set", "counters.clock_control=b") == [
        "counters.clock_control=base"
    ]
    assert complete("run", "x", "--set", "no.such=") == []
    assert complete("metrics", "--set", "s") == ["stalls"]
    assert complete("metrics", "--chip", "h") == ["H100", "H200"]
    assert complete("metrics", "--chip", "gh1") == ["GH100"]
    assert complete("impo") == ["import"]


def test_completion_knows_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("runs/first", "runs/second", "other/third", "runs/none"):
        (tmp_path / name).mkdir(parents=True)
        if name != "runs/none":
            (tmp_path / name / "manifest.json").write_text("{}")
    assert complete("report", "") == ["runs/first", "runs/second"]
    assert complete("compare", "runs/first", "runs/s") == ["runs/second"]
    assert complete("export", "other/") == ["other/third"]
    assert complete("run", "x", "--resume", "runs/f") == ["runs/first"]


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash_completes_once_it_is_switched_on(root: Path, prof: Path, tmp_path: Path) -> None:
    text = (root / "docs/scripts.md").read_text(encoding="utf-8")
    line = 'eval "$(_PROF_COMPLETE=bash_source prof)"'
    assert line in text
    script = (
        f"{line}; COMP_WORDS=(prof run top-k); COMP_CWORD=2; _prof_completion prof top-k run; "
        'echo "${COMPREPLY[@]}"'
    )
    # compopt complains where no completion runs: its words go to stderr.
    assert shell(prof, tmp_path, "bash", "-c", script).strip() == "top-kernels"
