"""Records of serving targets: each kind as rows of its table, and points with known numbers."""

import json
import math
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsight_prof.parsers.bench.records import SERVING, read_records
from nsight_prof.parsers.serving.points import build_points, token_gaps
from nsight_prof.parsers.serving.records import join_serving, read_serving, request_times
from nsight_prof.parsers.tables import tables

CASE = "batch/cuda-graphs/b2/p8/o4"


def write(path: Path, *lines: dict[str, Any] | str) -> Path:
    text = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    path.write_text("\n".join(text) + "\n")
    return path


def point(name: str = CASE, *samples: float, **changes: Any) -> dict[str, Any]:
    params = {"experiment": "batch", "engine": "cuda-graphs", "batch": 2, "prompt_tokens": 8}
    params |= {"output_tokens": 4, "tensor_parallel": 1, "model": "m"}
    made = {"record": "case", "schema": 1, "process": 1, "repeat": 1, "case": name, "mode": "hot"}
    made |= {"data": "normal", "params": params, "status": "ok"}
    made |= {"time": {"samples_s": list(samples or (1.0,))}, "work": {"flops": None}}
    return made | changes


def request(
    repeat: int, number: int, arrival: float, *tokens: float, **more: Any
) -> dict[str, Any]:
    """A request whose tokens came at these seconds after its arrival."""
    made = {"record": "request", "case": CASE, "repeat": repeat, "request": number}
    made |= {"prompt_tokens": 8, "output_tokens": len(tokens), "arrival_s": arrival}
    made |= {"first_token_s": arrival + tokens[0], "finish_s": arrival + tokens[-1]}
    return made | {"token_times_s": list(tokens), "status": "ok", "reason": ""} | more


def test_every_kind_becomes_rows_of_its_table(tmp_path: Path) -> None:
    path = write(
        tmp_path / "r.jsonl",
        {"record": "engine", "schema": 1, "version": "0.20.2", "kv_blocks": 7,
         "dummy_weights": True, "capture_sizes": [1, 2], "args": {"b": 1, "a": None}},
        request(1, 0, 5.0, 0.5, 0.6, 0.8),
        {"record": "step", "case": CASE, "repeat": 1, "index": 0, "t_s": 1.0, "seconds": 0.1,
         "outputs": 2, "tokens": 2},
        {"record": "phase", "case": None, "name": "start engine", "begin_s": 0, "end_s": 9.5},
        {"record": "host_loop", "case": CASE, "repeat": 1, "t_s": 1.0, "loop_s": 3e-5},
        {"record": "telemetry", "t_s": 1, "device": 0, "power_w": None, "sm_clock_hz": 1.98e9,
         "throttle": ["sw_power_cap", "hw_slowdown"]},
        {"record": "engine_stats", "t_s": 1.0, "case": CASE, "running": 2, "kv_usage": 0.25},
        {"record": "vllm_totals", "case": CASE, "repeat": 1, "seconds": 1.0},
    )  # fmt: skip
    found = read_serving(path, "bench", 3)
    assert not found.problems
    frames = found.frames()
    assert set(frames) == set(SERVING.values())
    for name, frame in frames.items():
        assert list(frame.columns) == [column.name for column in tables()[name]]
        assert len(frame) == 1
        assert (frame["source"][0], frame["process"][0]) == ("bench", 3)
    assert json.loads(frames["engines"]["args"][0]) == {"a": None, "b": 1}
    assert frames["engines"]["dummy_weights"][0]
    (row,) = frames["requests"].to_dict("records")
    assert row["ttft_s"] == pytest.approx(0.5)
    assert row["tpot_s"] == pytest.approx(0.15)
    assert row["e2e_s"] == pytest.approx(0.8)
    assert frames["telemetry"]["throttle"][0] == "sw_power_cap, hw_slowdown"
    assert math.isnan(frames["telemetry"]["power_w"][0])


def test_lines_that_cannot_be_used_are_told_and_the_others_read(tmp_path: Path) -> None:
    path = write(
        tmp_path / "r.jsonl",
        "[1]",
        {"record": "step", "case": CASE, "repeat": 1, "outputs": "two"},
        {"record": "step", "case": CASE, "repeat": 1.5},
        {"record": "phase", "case": None, "name": True},
        {"record": "aura"},
        point(CASE, 1.0, status="perhaps"),
        {"record": "telemetry", "t_s": 0.5},
        '{"record": "teleme',
    )
    path.write_text(path.read_text().rstrip("\n"))
    found = read_serving(path, "trace")
    assert len(found.of("telemetry")) == 1
    assert [problem.removeprefix("r.jsonl: line ") for problem in found.problems] == [
        "1 is left out: records of kind '(no JSON object)' are not known",
        "2 is left out: outputs is no number",
        "3 is left out: repeat is no whole number",
        "4 is left out: name is no text",
        "5 is left out: records of kind 'aura' are not known",
        "6 is left out: status 'perhaps' is not known",
        "8 is cut: the process was killed while it wrote",
    ]


def test_the_reader_of_cases_passes_over_them(tmp_path: Path) -> None:
    path = write(tmp_path / "r.jsonl", point(), request(1, 0, 0.0, 0.1), {"record": "telemetry"})
    found = read_records(path)
    assert len(found.cases) == 1
    assert found.problems == ("r.jsonl has no conditions",)


def test_a_point_has_rates_and_latencies_of_known_requests(tmp_path: Path) -> None:
    path = write(
        tmp_path / "r.jsonl",
        point(CASE, 0.8, 1.0, 1.6),
        request(0, 0, 0.0, 9.0, 10.0, 11.0, 12.0),  # a warm-up
        *(request(r, n, 10.0 * r, 0.2, 0.4, 0.6, 0.8) for r in (1, 2, 3) for n in (0, 1)),
        {
            "record": "vllm_totals",
            "case": CASE,
            "repeat": 1,
            "generation_tokens": 8,
            "seconds": 0.8,
        },
        {
            "record": "vllm_totals",
            "case": CASE,
            "repeat": 2,
            "generation_tokens": 8,
            "seconds": 1.2,
        },
    )
    (row,) = build_points(read_serving(path, "bench")).to_dict("records")
    assert (row["repeats"], row["requests"], row["failed_requests"]) == (3, 6, 0)
    assert row["duration_s"] == 1.0
    assert row["output_tokens_per_s"] == pytest.approx(8 / 1.0)
    assert row["total_tokens_per_s"] == pytest.approx(24 / 1.0)
    assert row["requests_per_s"] == pytest.approx(2.0)
    assert row["prefill_s"] == pytest.approx(0.2)
    for name, value in (("ttft", 0.2), ("tpot", 0.2), ("itl", 0.2), ("e2e", 0.8)):
        for label in ("mean", "p50", "p99"):
            assert row[f"{name}_{label}_s"] == pytest.approx(value)
    assert row["vllm_output_tokens_per_s"] == pytest.approx((8 / 0.8 + 8 / 1.2) / 2)


def test_a_decode_step_is_one_that_follows_a_step_of_the_whole_batch(tmp_path: Path) -> None:
    def steps(repeat: int, *them: tuple[int, float]) -> list[dict[str, Any]]:
        return [
            {
                "record": "step",
                "case": CASE,
                "repeat": repeat,
                "index": i,
                "seconds": s,
                "outputs": n,
            }
            for i, (n, s) in enumerate(them)
        ]

    path = write(
        tmp_path / "r.jsonl",
        point(),
        *steps(1, (0, 0.01), (1, 0.5), (2, 0.6), (2, 0.004), (2, 0.005), (1, 0.003), (2, 0.9)),
        *steps(2, (2, 0.7), (2, 0.006)),
    )
    (row,) = build_points(read_serving(path, "bench")).to_dict("records")
    assert row["decode_step_s"] == pytest.approx(0.005)
    assert row["decode_steps"] == 3


def test_telemetry_and_counters_are_those_of_the_measured_phase(tmp_path: Path) -> None:
    def sample(t: float, power: float, device: int = 0) -> dict[str, Any]:
        made = {"record": "telemetry", "t_s": t, "device": device, "power_w": power}
        made |= {"gpu_util_pct": 90, "sm_clock_hz": 1e9 + t}
        return made | {"throttle": ["cap"] if t > 12 else []}

    def stats(t: float, case: str | None, preempted: int, kv: float) -> dict[str, Any]:
        return {"record": "engine_stats", "t_s": t, "case": case, "running": 2, "waiting": 1,
                "kv_usage": kv, "preemptions": preempted}  # fmt: skip

    path = write(
        tmp_path / "r.jsonl",
        point(),
        {"record": "phase", "case": CASE, "name": "warm-up", "begin_s": 8.0, "end_s": 10.0},
        {"record": "phase", "case": CASE, "name": "measure", "begin_s": 10.0, "end_s": 13.0},
        sample(9.0, 100.0), sample(10.5, 150.0), sample(11.5, 600.0), sample(12.5, 700.0),
        sample(12.5, 300.0, device=1), sample(14.0, 90.0),
        stats(1.0, "other", 3, 0.9), stats(11.0, CASE, 4, 0.2), stats(12.0, CASE, 6, 0.5),
        stats(20.0, CASE, 1, 0.4),
    )  # fmt: skip
    (row,) = build_points(read_serving(path, "bench")).to_dict("records")
    assert row["power_w_mean"] == pytest.approx(650 + 300)
    assert row["sm_clock_hz_mean"] == pytest.approx(1e9 + (10.5 + 11.5 + 12.5 + 12.5) / 4)
    assert row["throttle_reasons"] == "cap"
    assert (row["preemptions"], row["running_max"], row["waiting_max"]) == (3 + 1, 2, 1)
    assert row["kv_usage_max"] == 0.5


def test_points_of_steps_stay_apart_and_files_of_one_are_pooled(tmp_path: Path) -> None:
    one = write(tmp_path / "1.jsonl", point(CASE, 1.0), request(1, 0, 0.0, 0.1, 0.2))
    two = write(tmp_path / "2.jsonl", point(CASE, 3.0), request(1, 0, 0.0, 0.3, 0.6))
    bad = point("big", status="out-of-memory", reason="KV cache of 9 GB", time=None)
    three = write(tmp_path / "3.jsonl", point(CASE, 9.0), bad)
    found = build_points(
        join_serving(
            [
                read_serving(one, "bench", 1),
                read_serving(two, "bench", 2),
                read_serving(three, "trace"),
            ]
        )
    )
    assert found["source"].tolist() == ["bench", "trace", "trace"]
    assert found["duration_s"].tolist()[:2] == [2.0, 9.0]
    assert found["ttft_p50_s"].tolist()[0] == pytest.approx(0.2)
    assert found["output_tokens_per_s"].tolist()[0] == pytest.approx((2 / 1.0 + 2 / 3.0) / 2)
    assert (found["status"].tolist()[2], found["reason"].tolist()[2]) == (
        "out-of-memory",
        "KV cache of 9 GB",
    )
    assert math.isnan(found["duration_s"].tolist()[2])


@given(st.lists(st.floats(1e-3, 1.0), min_size=1, max_size=20), st.floats(0, 1e4))
def test_times_of_a_request_add_up(gaps: list[float], arrival: float) -> None:
    times = [sum(gaps[: n + 1]) for n in range(len(gaps))]
    row = {
        "arrival_s": arrival,
        "first_token_s": arrival + times[0],
        "finish_s": arrival + times[-1],
        "output_tokens": len(times),
        "token_times_s": json.dumps(times),
    }
    found = request_times(row)
    between = token_gaps(row)
    assert len(between) == len(times) - 1
    if between:
        assert found["tpot_s"] == pytest.approx(sum(between) / len(between), rel=1e-6)
        whole = found["ttft_s"] + found["tpot_s"] * len(between)
        assert found["e2e_s"] == pytest.approx(whole, rel=1e-6)
    else:
        assert math.isnan(found["tpot_s"])


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)
kinds = [*SERVING, "case", "conditions", "new"]
names = sorted({column.name for table in SERVING.values() for column in tables()[table]})


@given(st.sampled_from(kinds), st.dictionaries(st.sampled_from(names), json_values, max_size=4))
def test_any_value_in_any_field_is_read_or_told(kind: str, fields: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = write(Path(folder) / "r.jsonl", {"record": kind} | fields)
        found = read_serving(path, "bench")
    rows = sum(len(found.of(table)) for table in SERVING.values())
    assert rows + len(found.points) + len(found.problems) == (0 if kind == "conditions" else 1)
    for name, frame in found.frames().items():
        assert list(frame.columns) == [column.name for column in tables()[name]]
    build_points(found)
