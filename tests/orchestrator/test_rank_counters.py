"""`prof rank --counters`: which ranks are counted, how, and what becomes of those that hang."""

import ast
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nsight_prof.orchestrator.cli import main
from nsight_prof.parsers.run.directory import RunDir, StepRecord, StepState, read_manifest
from nsight_prof.reports.notebook import load_run
from tests.rank_node import FAKES, Node, warm_ranks


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Node:
    """A job of two ranks that were traced."""
    node = Node(tmp_path_factory.mktemp("traced"))
    for rank in (0, 1):
        assert node.run(rank, "true")[0] == 0
    return node


@pytest.fixture
def node(traced: Node, tmp_path: Path) -> Node:
    node = Node(tmp_path)
    shutil.copytree(traced.job, node.job)
    return node


@pytest.fixture
def warm() -> Iterator[str]:
    with warm_ranks() as name:
        yield name


def count(node: Node, rank: int, mode: str, *command: str, **more: Any) -> tuple[int | None, str]:
    options = ("--counters", mode, *more.pop("options", ()))
    return node.run(rank, *(command or ("true",)), options=options, **more)


def counters(node: Node, rank: int) -> StepRecord:
    record = read_manifest(RunDir(node.job).rank(rank)).step("counters")
    assert record is not None
    return record


def page(node: Node) -> str:
    assert main(["report", str(node.job), "--format", "md", "--quiet"]) == 0
    return (node.job / "report/report.md").read_text()


def option(record: StepRecord, name: str) -> str:
    return record.argv[record.argv.index(name) + 1]


def test_one_rank_is_counted_with_all_sets_and_the_others_run_alone(node: Node) -> None:
    code, said = count(node, 1, "one-rank", "sh", "-c", "echo pid $$; exit 3")
    assert code == 3
    assert read_manifest(RunDir(node.job).rank(1)).step("counters") is None
    assert count(node, 0, "one-rank", "sh", "-c", "exit 4")[0] == 4
    record = counters(node, 0)
    assert (record.state, record.inputs["mode"]) == (StepState.DONE, "one-rank")
    assert "smsp__inst_executed.sum" in option(record, "--metrics")  # of the set `stalls`
    assert option(record, "--replay-mode") == "kernel"
    assert len(load_run(node.job / "ranks/0000").counters) == 2
    text = page(node)
    assert "Counters of kernels by rank" in text
    assert not list(node.scratch.iterdir())


def test_one_pass_counts_all_ranks_and_gives_each_a_lock_of_its_own(node: Node) -> None:
    folders = []
    for rank in (0, 1):
        code, said = count(node, rank, "one-pass", "sh", "-c", "echo TMPDIR=$TMPDIR")
        assert code == 0, said
        folders.append(said.partition("TMPDIR=")[2].split()[0])
        metrics = option(counters(node, rank), "--metrics").split(",")
        assert "dram__bytes_read.sum" in metrics
        assert not any("sass" in metric for metric in metrics)  # those take passes of their own
    assert folders[0] != folders[1]
    # What is counted is not counted again.
    code, said = count(node, 0, "one-pass")
    assert (code, "have their counters" in said) == (2, True)


def test_the_passes_of_an_application_need_an_ncu_that_holds_ranks_in_lockstep(node: Node) -> None:
    code, said = count(node, 0, "application")  # 2025.3.1, whose help the fake has, does not
    assert code == 3
    assert "cannot hold ranks in lockstep" in said
    assert "or: --counters one-pass" in said
    assert read_manifest(RunDir(node.job).rank(0)).step("counters") is None


def test_a_program_that_hangs_under_ncu_is_ended_and_what_was_counted_is_kept(node: Node) -> None:
    before = (node.job / "ranks/0000/steps/1-trace/trace.sqlite").read_bytes()
    _, said = count(node, 0, "one-pass", "sleep", "600", options=("--limit", "1"))
    assert "did not end within 1 s under ncu" in said
    record = counters(node, 0)
    assert record.state is StepState.DONE  # in part: ncu wrote what it had
    assert "a kernel may wait for one of another rank" in record.error
    assert "--counters one-rank" in record.hint
    assert "Counters of rank 0: the program did not end within 1 s" in page(node)
    assert (node.job / "ranks/0000/steps/1-trace/trace.sqlite").read_bytes() == before
    # Counting goes on with what is missing.
    assert count(node, 0, "one-pass")[0] == 0
    assert counters(node, 0).error == ""


@pytest.mark.parametrize(
    ("mode", "reason"),
    [("killed", "ncu left no report"), ("permission-late", "refuses access to the GPU"),
     ("no-kernels", "ncu profiled no kernel"), ("import-fails", "counters.ncu-rep")],
)  # fmt: skip
def test_what_goes_wrong_with_ncu_is_kept_and_costs_the_trace_nothing(
    node: Node, mode: str, reason: str
) -> None:
    _, said = count(node, 0, "one-pass", FAKE_NCU=mode)
    assert reason in said
    record = counters(node, 0)
    assert record.state is StepState.FAILED
    assert reason in record.error
    assert reason.replace("_", "\\_") in page(node)
    assert len(load_run(node.job / "ranks/0000").kernels) == 3


def test_an_ncu_that_does_nothing_at_all_is_ended(node: Node) -> None:
    options = ("--limit", "1", "--flush", "1")
    _, said = count(node, 0, "one-pass", options=options, FAKE_NCU="hang")
    assert "did not end within 1 s under ncu" in said
    assert counters(node, 0).state is StepState.FAILED


def test_a_program_that_ncu_starts_after_its_time_is_ended(node: Node) -> None:
    options = ("--limit", "1")
    _, said = count(node, 0, "one-pass", "sleep", "600", options=options, FAKE_NCU="late")
    assert "did not end within 1 s under ncu" in said
    assert counters(node, 0).state is StepState.DONE


def test_counters_before_a_trace_are_refused(tmp_path: Path) -> None:
    node = Node(tmp_path)
    code, said = count(node, 0, "one-rank")
    assert (code, "is not a run directory" in said) == (2, True)


RECIPE = """
name: job
target: {command: [sh, -c, 'exit 0']}
ranks: {launcher: mpirun, count: 2, counters: one-pass}
"""


def test_a_recipe_counts_its_ranks_and_a_resume_does_only_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], warm: str
) -> None:
    monkeypatch.setenv("PATH", f"{FAKES}:/usr/bin:/bin")
    monkeypatch.setenv("FAKE_LOG", str(tmp_path / "calls"))
    monkeypatch.setenv("FAKE_WARM", warm)
    (tmp_path / "job.yaml").write_text(RECIPE)
    recipe, out = str(tmp_path / "job.yaml"), tmp_path / "run"
    monkeypatch.setenv("FAKE_NCU", "killed")
    assert main(["run", recipe, "--out", str(out), "--json"]) == 1
    errors = json.loads(capsys.readouterr().out)["errors"]
    assert "rank 0 has no counters: ncu left no report" in errors[0]["error"]
    before = starts(tmp_path)
    assert before["nsys"] == 2
    assert 1 <= before["ncu"] <= 2  # the launcher may end the other rank before its ncu starts
    monkeypatch.delenv("FAKE_NCU")
    assert main(["run", recipe, "--resume", str(out)]) == 0
    after = {"nsys": 2, "ncu": before["ncu"] + 2}  # the traces are kept
    assert starts(tmp_path) == after
    assert len(load_run(out).rank_counters) == 4
    assert main(["run", recipe, "--resume", str(out)]) == 0
    assert starts(tmp_path) == after
    (tmp_path / "job.yaml").write_text(RECIPE.replace("exit 0", "exit 1"))
    assert main(["run", recipe, "--resume", str(out)]) == 2
    assert "was captured with another target" in capsys.readouterr().err


def starts(folder: Path) -> dict[str, int]:
    """How often each tool started a program."""
    calls = [ast.literal_eval(line) for line in (folder / "calls").read_text().splitlines()]
    return {
        "nsys": sum(call[:2] == ["nsys", "profile"] and "--help" not in call for call in calls),
        "ncu": sum(call[0] == "ncu" and "--export" in call for call in calls),
    }
