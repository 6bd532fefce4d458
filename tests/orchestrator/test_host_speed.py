"""How fast the host is: a loop beside each program, and predictions for a host of another speed."""

from __future__ import annotations

import json
import math
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from nsight_prof import load_run
from nsight_prof.orchestrator.cli import main
from nsight_prof.orchestrator.predict.host_speeds import AS_MEASURED, HostSpeed, given_speed, is_run
from nsight_prof.orchestrator.predict.plan import Settings, speed_of
from nsight_prof.orchestrator.predict.predicting import plan
from nsight_prof.orchestrator.predict.run_folder import opened
from nsight_prof.orchestrator.system import host_speed
from nsight_prof.orchestrator.system.host_speed import AROUND, host_timed
from nsight_prof.parsers.build.gaps import Gaps
from nsight_prof.parsers.build.telemetry_tables import HOST_LOOP, host_speed_frame
from nsight_prof.parsers.errors import UsageError
from nsight_prof.parsers.predict.points import point_row
from nsight_prof.parsers.predict.serving import HOST_TIMES, Workload
from nsight_prof.parsers.run.directory import RunDir
from nsight_prof.targets.serving import host_loop

TRUTH, NARROW = "prediction/baseline-qwen3-14b-same", "prediction/narrow-qwen3-14b-same"
SLICE, SERVER = "prediction/slice-qwen3-14b", "prediction/serve-qwen3-4b-same"


@pytest.fixture
def copied(recorded_folder: Callable[[str], Path], tmp_path: Path) -> Callable[[str], Path]:
    def copy(name: str) -> Path:
        there = tmp_path / Path(name).name
        if not there.exists():
            shutil.copytree(recorded_folder(name), there)
        return there

    return copy


def test_the_loop_is_timed_before_beside_and_after_a_program(tmp_path: Path) -> None:
    path = tmp_path / "host-speed.json"
    with host_timed(path):
        until = time.monotonic() + 10
        while time.monotonic() < until and threads_of("_watch") == 0:
            time.sleep(0.01)
        time.sleep(3 * host_speed.INTERVAL_S)
    found = json.loads(path.read_text())
    assert len(found["before_s"]) == len(found["after_s"]) == AROUND
    assert found["during_s"], "a machine with several cores is timed meanwhile"
    assert all(0 < seconds < 0.1 for seconds in found["before_s"])
    assert found["python"].startswith("CPython 3.")
    cost = sum(seconds for _, seconds in found["during_s"])
    assert cost < 0.005 * found["during_s"][-1][0]


def threads_of(name: str) -> int:
    return sum(name in thread.name for thread in threading.enumerate())


def test_prof_and_targets_time_the_same_loop() -> None:
    """Targets import nothing of ours: the loop stands in both, and times of one fit the other."""
    here, there = host_speed.timed_loop.__code__, host_loop.loop_seconds.__code__
    assert here.co_code == there.co_code
    assert (here.co_names, here.co_consts) == (there.co_names, there.co_consts)
    assert host_speed.LOOP == host_loop.LOOP == HOST_LOOP


def test_one_core_is_timed_around_the_program_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_speed, "_usable_cores", lambda: 1)
    with host_timed(tmp_path / "host-speed.json"):
        time.sleep(2 * host_speed.INTERVAL_S)
    assert json.loads((tmp_path / "host-speed.json").read_text())["during_s"] == []


def test_a_recorded_run_has_the_table_and_an_older_one_an_empty_one(
    copied: Callable[[str], Path], root: Path
) -> None:
    rows = host_speed_frame(RunDir(copied(TRUTH)), Gaps())
    assert rows["source"].tolist() == ["bench"]
    assert rows["phase"].tolist() == ["during"]
    # Independent: the mean of what was timed by hand beside that run (host-speed-same.csv.xz).
    by_hand = pd.read_csv(root / "captures" / "prediction" / "host-speed-same.csv.xz")
    times = by_hand[by_hand["during"].eq(Path(TRUTH).name)]["loop_us"]
    assert rows["mean_s"].iloc[0] == pytest.approx(times.mean() * 1e-6, rel=1e-6)
    assert rows["median_s"].iloc[0] == pytest.approx(times.median() * 1e-6, rel=1e-6)
    assert host_speed_frame(RunDir(copied(SLICE)), Gaps()).empty


def test_a_damaged_file_is_a_gap(copied: Callable[[str], Path]) -> None:
    run = copied(NARROW)
    for path in run.glob("steps/*/host-speed*"):
        path.unlink()
    (step,) = (folder for folder in (run / "steps").iterdir() if folder.is_dir())
    (step / "host-speed.json").write_text('{"loop": 0}')
    gaps = Gaps()
    assert host_speed_frame(RunDir(run), gaps).empty
    assert "cannot be read as how fast a host was" in gaps.frame()["reason"].iloc[0]


def test_hosts_are_given_by_a_run_by_a_time_or_as_they_were(copied: Callable[[str], Path]) -> None:
    assert math.isnan(given_speed(AS_MEASURED, None).loop_s)
    assert given_speed("105us", None).loop_s == pytest.approx(105e-6)
    there = speed_of(opened(copied(TRUTH)))
    assert given_speed(str(copied(TRUTH)), there).loop_s == pytest.approx(126.4e-6, rel=1e-3)
    assert is_run(str(copied(TRUTH)))
    assert not is_run("")
    for wrong in ("fast", "0", str(copied(SLICE))):
        with pytest.raises(UsageError):
            given_speed(wrong, None)


def test_hosts_are_compared_by_one_clock_and_engines_by_their_own_threads() -> None:
    recorded = HostSpeed(50e-6, "CPython 3.12.3", "run", "CPU time of the thread", 40e-6)
    wall = HostSpeed(100e-6, "CPython 3.12.3", "older", "wall, in a process of its own")
    assert math.isnan(recorded.times(wall, engine=True))
    assert HostSpeed(60e-6).times(recorded, engine=True) == pytest.approx(1.2), "a time alone"
    slower = HostSpeed(60e-6, "", "there", recorded.clock, 60e-6)
    assert slower.times(recorded, engine=True) == pytest.approx(1.5)
    assert slower.times(recorded, engine=False) == pytest.approx(1.2)


def test_each_part_of_the_host_is_scaled_by_the_run_that_it_is_from(
    copied: Callable[[str], Path],
) -> None:
    runs = [copied(name) for name in (SLICE, NARROW, SERVER)]
    there = HostSpeed(2 * 101.31e-6, "CPython 3.12.3", "there")

    def host(speed: HostSpeed | None) -> dict[str, float]:
        found = plan("qwen3-14b", runs, Settings(host=speed)).predictor().host
        return {name: getattr(found, name) for name in HOST_TIMES}

    told, slower = host(HostSpeed()), host(there)
    for name in ("decode_s", "eager_s", "graph_s"):  # of the narrow engine
        assert slower[name] / told[name] == pytest.approx(2, rel=1e-3)
    for name in ("frontend_s", "request_s", "token_s"):  # of the server: its loop took 100.4 us
        assert slower[name] / told[name] == pytest.approx(2 * 101.31 / 100.35, rel=1e-3)
    assert slower["overhead_s"] == told["overhead_s"], "nobody timed the host of the slice"


def test_a_host_that_is_not_known_widens_what_waits_for_it(copied: Callable[[str], Path]) -> None:
    runs = [copied(name) for name in (SLICE, NARROW, SERVER)]
    load = Workload(512, 16, rate=20, count=300)  # of few requests a slower host moves single steps

    def row(host: HostSpeed | None) -> tuple[dict[str, float], tuple[float, float]]:
        planned = plan("qwen3-14b", runs, Settings(host=host))
        return dict(point_row(planned.prediction(), load)), planned.predictor().host_range

    (unknown, (fastest, slowest)), (known, as_measured) = row(None), row(HostSpeed())
    assert fastest < 1 < slowest
    assert as_measured == (1, 1)
    assert unknown["ttft_p50_s"] == known["ttft_p50_s"]
    # TTFT of such loads is bounded by those of other servers, each on a host of its own.
    assert unknown["ttft_p50_s_high"] == known["ttft_p50_s_high"]
    # Requests meet in other steps where the host is faster or slower: these ends hardly move here.
    assert unknown["tpot_p50_s_high"] >= known["tpot_p50_s_high"]
    assert unknown["tpot_p50_s_low"] <= known["tpot_p50_s_low"]


def test_the_report_says_what_another_host_would_change(
    copied: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["predict", "qwen3-14b", "--on", str(copied(SLICE)), "--on", str(copied(NARROW))]
    words += ["--batch", "1", "--prompt", "1000", "--host-speed", str(copied(TRUTH))]
    assert main([*words, "--out", str(tmp_path / "run")]) == 0
    told = capsys.readouterr().err
    assert "narrow-qwen3-14b-same (101 µs), slice-qwen3-14b (–)" in told
    assert "predicted for a host that takes 126 µs for that loop, in CPython 3.12.3" in told
    run = load_run(tmp_path / "run")
    changes = run.predicted_changes.set_index(["change", "value"])["ttft_p50_s"]
    assert changes["host", "0"] < changes["host", "0.8"] <= changes["host", "1.25"]
    page = (tmp_path / "run" / "report" / "report.md").read_text()
    assert "| host time per step 1.25x |" in page
    assert main([*words[:-1], str(copied(SLICE)), "--out", str(tmp_path / "no")]) == 2
    assert "does not tell how fast its host was" in capsys.readouterr().err
