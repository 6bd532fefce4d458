"""The baseline's driver against a stand-in for its worker: rows, restarts, bounds, nothing left."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nsight_prof.targets.serving import baseline, engine_process
from nsight_prof.targets.serving.points import Point, points
from tests.processes import wait_for_end

SMALL = ["--experiments", "batch", "--batches", "1", "4", "8", "--point-timeout", "20"]
B1, B4, B8 = (f"batch/cuda-graphs/b{batch}/p512/o128" for batch in (1, 4, 8))

Run = Callable[..., tuple[int, list[dict[str, Any]]]]


@pytest.fixture
def worker(root: Path) -> Path:
    return root / "tests" / "fakes" / "serving_worker.py"


@pytest.fixture
def run(tmp_path: Path, worker: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs the driver with workers that do as they are told; returns exit code and records."""
    monkeypatch.setattr(engine_process, "WORKER", worker)
    monkeypatch.setattr(engine_process, "GRACE_S", 0.3)
    monkeypatch.setattr(baseline, "need", lambda *_: None)

    def go(*options: str, **happens: str) -> tuple[int, list[dict[str, Any]]]:
        told = {name.replace("_", " "): what for name, what in happens.items()}
        named = {"b1": B1, "b4": B4, "b8": B8}
        wanted = {named.get(name, name): what for name, what in told.items()}
        monkeypatch.setenv("SERVING_WORKER", json.dumps(wanted))
        out = tmp_path / "records.jsonl"
        code = baseline.main([*SMALL, "--out", str(out), *options])
        lines = out.read_text(encoding="utf-8").splitlines()
        return code, [json.loads(line) for line in lines]

    return go


def statuses(records: list[dict[str, Any]]) -> dict[str, str]:
    return {r["case"]: r["status"] for r in records if r["record"] == "case"}


def of_kind(records: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [record for record in records if record["record"] == kind]


def wait_for(condition: Callable[[], bool]) -> bool:
    """Wait; the limit of the test ends what never comes."""
    while not condition():
        time.sleep(0.02)
    return True


def chosen(*words: str) -> list[Point]:
    return points(baseline.parse(list(words)))


def test_the_default_sweep_has_the_points_of_a_baseline() -> None:
    names = [point.name for point in chosen()]
    assert len(names) == len(set(names))
    assert names[0].startswith("latency/cuda-graphs/b1/")
    batches = [point.batch for point in chosen() if point.experiment == "batch"]
    assert batches == [1, 4, 8, 16, 32, 64, 128]
    lengths = {(p.prompt_tokens, p.output_tokens) for p in chosen() if p.experiment == "lengths"}
    assert lengths == {(p, o) for p in (10, 50, 200, 1000, 4000) for o in (50, 100, 200)}
    # Every point of the other mode has one of the first mode to be compared with.
    shapes = {(p.batch, p.prompt_tokens, p.output_tokens) for p in chosen() if p.mode != "eager"}
    eager = [p for p in chosen() if p.mode == "eager"]
    assert eager
    assert {(p.batch, p.prompt_tokens, p.output_tokens) for p in eager} <= shapes


def test_points_of_one_engine_stand_together() -> None:
    modes = [point.mode for point in chosen("--mode", "eager")]
    assert modes == sorted(modes, key=lambda mode: mode != "eager")
    assert set(modes) == {"eager", "cuda-graphs"}


def test_graphs_alone_measure_both_modes() -> None:
    found = chosen("--experiments", "graphs", "--other-batches", "2")
    assert [(p.mode, p.batch) for p in found] == [("cuda-graphs", 2), ("eager", 2)]


def test_a_sweep_has_conditions_an_engine_and_a_row_of_each_point(run: Run) -> None:
    code, records = run("--batches", "1", "8", "--seed", "7")
    assert code == 0
    assert records[0]["record"] == "conditions"
    assert records[0]["seed"] == 7
    assert statuses(records) == {B1: "ok", B8: "ok"}
    arguments = of_kind(records, "engine")[0]["args"]
    assert (arguments["max_num_seqs"], arguments["max_model_len"]) == (8, 640)
    names = [phase["name"] for phase in of_kind(records, "phase")]
    assert names == ["start engine", "end engine"]


def test_each_mode_has_an_engine_of_its_own_with_the_same_limits(run: Run) -> None:
    code, records = run("--experiments", "batch", "graphs", "--other-batches", "1")
    assert code == 0
    engines = of_kind(records, "engine")
    assert [engine["mode"] for engine in engines] == ["cuda-graphs", "eager"]
    # The limits of the sweep, also where an engine has only small batches to do.
    assert [engine["args"]["max_num_seqs"] for engine in engines] == [8, 8]


def test_out_of_memory_is_a_row_and_the_same_engine_goes_on(run: Run) -> None:
    code, records = run(b4="out-of-memory")
    assert code == 0
    assert statuses(records) == {B1: "ok", B4: "out-of-memory", B8: "ok"}
    assert len(of_kind(records, "engine")) == 1


@pytest.mark.parametrize(
    ("happens", "status", "words"),
    [
        ("dead", "out-of-memory", "too large"),
        ("die", "out-of-memory", "CUDA out of memory"),
        ("killed", "failed", "SIGKILL"),
    ],
)
def test_an_engine_that_dies_leaves_a_row_and_another_measures_the_rest(
    run: Run, happens: str, status: str, words: str
) -> None:
    code, records = run(b4=happens)
    assert code == 0
    assert statuses(records) == {B1: "ok", B4: status, B8: "ok"}
    (row,) = [record for record in of_kind(records, "case") if record["case"] == B4]
    assert words in row["reason"]
    assert len(of_kind(records, "engine")) == 2


def test_a_point_that_hangs_is_ended_although_its_engine_still_tells_gauges(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "records.jsonl"

    def clock() -> float:
        """The time of the point is over once its engine has told a gauge."""
        hangs = out.is_file() and '"engine_stats"' in out.read_text(encoding="utf-8")
        return time.monotonic() + (1e9 if hangs else 0)

    monkeypatch.setattr(baseline, "time", SimpleNamespace(monotonic=clock))
    code, records = run(b1="hang")
    assert code == 0
    assert statuses(records) == {B1: "failed", B4: "ok", B8: "ok"}
    (row,) = [record for record in of_kind(records, "case") if record["case"] == B1]
    assert "within 20 s" in row["reason"]


def test_after_some_engines_that_died_the_rest_is_not_tried(run: Run) -> None:
    code, records = run("--starts", "2", b1="killed", b4="killed")
    assert code == 1
    assert statuses(records) == {B1: "failed", B4: "failed", B8: "failed"}
    assert len(of_kind(records, "engine")) == 2


def test_an_engine_that_does_not_start_is_an_error_with_a_hint(
    run: Run, capfd: pytest.CaptureFixture[str]
) -> None:
    code, records = run(start="refuse")
    assert code == 1
    assert statuses(records) == {}
    assert "error: no such model\n\nhint: name one" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("happens", "words"),
    [("die", "out of GPU memory while starting"), ("hang", "did not start within 1 s")],
)
def test_an_engine_that_dies_or_hangs_at_its_start_is_explained(
    run: Run, capfd: pytest.CaptureFixture[str], happens: str, words: str
) -> None:
    code, _ = run("--start-timeout", "1" if happens == "hang" else "60", start=happens)
    assert code == 1
    assert words in capfd.readouterr().err.replace("\n", " ")


def test_what_one_mode_measured_stays_where_the_other_does_not_start(run: Run) -> None:
    code, records = run("--experiments", "graphs", "--other-batches", "2", start_eager="refuse")
    assert code == 0
    found = statuses(records)
    assert found["graphs/cuda-graphs/b2/p512/o128"] == "ok"
    assert found["graphs/eager/b2/p512/o128"] == "failed"


def test_sequences_that_the_model_cannot_hold_are_rows_and_are_not_tried(run: Run) -> None:
    code, records = run("--max-model-len", "1000", "--experiments", "batch", "lengths")
    assert code == 0
    found = statuses(records)
    assert found["lengths/cuda-graphs/b1/p4000/o50"] == "unsupported"
    assert found["lengths/cuda-graphs/b1/p200/o50"] == "ok"


def test_where_no_sequence_fits_no_engine_starts(
    run: Run, capfd: pytest.CaptureFixture[str]
) -> None:
    code, records = run("--max-model-len", "8")
    assert code == 1
    assert set(statuses(records).values()) == {"unsupported"}
    assert of_kind(records, "engine") == []
    assert "error: no point fits the model" in capfd.readouterr().err


def test_nothing_chosen_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert baseline.main(["--only", "nothing"]) == 1
    assert "hint: --only" in capsys.readouterr().err


def test_the_list_needs_no_engine(capsys: pytest.CaptureFixture[str]) -> None:
    assert baseline.main([*SMALL, "--list"]) == 0
    assert capsys.readouterr().out.splitlines() == [B1, B4, B8]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_engine_and_its_children_and_keeps_the_records(
    tmp_path: Path, root: Path, worker: Path, number: signal.Signals
) -> None:
    out, pids = tmp_path / "records.jsonl", tmp_path / "pids"
    driver = _driver(root, worker, [*SMALL, "--out", str(out)], {B4: "hang"}, pids)
    try:
        assert wait_for(lambda: out.exists() and B1 in out.read_text(encoding="utf-8"))
        driver.send_signal(number)
        assert driver.wait() == 128 + number
    finally:
        driver.kill()
        driver.wait()
    for pid in pids.read_text(encoding="utf-8").split():
        wait_for_end(int(pid))
    records = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    assert statuses(records) == {B1: "ok"}


def test_children_of_an_engine_that_died_are_ended(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SERVING_PIDS", str(tmp_path / "pids"))
    monkeypatch.setattr(baseline, "END_S", 0.1)
    code, _ = run("--starts", "2", b1="dead")
    assert code == 0
    lines = (tmp_path / "pids").read_text(encoding="utf-8").splitlines()
    assert len(lines) == 2  # one engine died, another measured the rest
    for pid in " ".join(lines).split():
        wait_for_end(int(pid))


def _driver(
    root: Path, worker: Path, words: list[str], happens: dict[str, str], pids: Path
) -> subprocess.Popen[bytes]:
    code = (
        "import sys; from pathlib import Path; from nsight_prof.targets.serving import baseline, "
        f"engine_process; engine_process.WORKER = Path({str(worker)!r}); "
        "engine_process.GRACE_S = 0.3; baseline.need = lambda *_: None; "
        f"sys.exit(baseline.main({words!r}))"
    )
    told = {"SERVING_WORKER": json.dumps(happens), "SERVING_PIDS": str(pids)}
    return subprocess.Popen([sys.executable, "-c", code], cwd=root, env=os.environ | told)
