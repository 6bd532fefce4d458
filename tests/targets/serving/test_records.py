"""Records of serving targets: valid JSON lines, nulls for what is unknown, bounded token times."""

import io
import json
import math
import threading
import time
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from nsight_prof.targets.serving.conditions import conditions
from nsight_prof.targets.serving.records import Records


def written(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


@pytest.fixture
def stream() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def records(stream: io.StringIO) -> Records:
    return Records(stream, "vllm-baseline", process=2, repeat=3, token_times=10)


def request(tokens: int) -> dict[str, Any]:
    times = tuple(0.1 * (n + 1) for n in range(tokens))
    return {"request": 0, "prompt_tokens": 5, "output_tokens": tokens, "token_times_s": times}


def test_conditions_and_cases_are_as_the_schema_of_benchmarks_wants_them(
    records: Records, stream: io.StringIO, root: Path
) -> None:
    records.conditions(conditions(["--batches", "1"], 0, []))
    records.case("batch/eager/b1/p5/o2", {"batch": 1, "rate": None}, [0.2, 0.1, 0.3])
    records.case("batch/eager/b8/p5/o2", {"batch": 8}, status="out-of-memory", reason="too large")
    schema = json.loads((root / "parsers" / "bench.schema.json").read_text(encoding="utf-8"))
    first, measured, failed = written(stream)
    for record in (first, measured, failed):
        jsonschema.validate(record, schema)
        assert (record["process"], record["repeat"]) == (2, 3)
    assert measured["time"]["samples_s"] == [0.2, 0.1, 0.3]
    assert measured["time"]["median_s"] == 0.2
    assert measured["params"] == {"batch": 1}
    assert (failed["time"], failed["reason"]) == (None, "too large")


def test_what_is_no_number_is_null(records: Records, stream: io.StringIO) -> None:
    records.step("case", 1, {"index": 0, "seconds": math.nan, "tokens": math.inf})
    records.engine({"args": {"path": Path("a"), "sizes": (1, 2)}, "start_s": 1.23456789012})
    step, engine = written(stream)
    assert (step["seconds"], step["tokens"], step["repeat"]) == (None, None, 1)
    assert engine["args"] == {"path": "a", "sizes": [1, 2]}
    assert engine["start_s"] == pytest.approx(1.23456789012, abs=1e-7)


def test_times_of_tokens_are_kept_whole_requests_at_a_time_until_a_case_has_enough(
    records: Records, stream: io.StringIO
) -> None:
    for case, tokens in (("a", 6), ("a", 6), ("a", 4), ("b", 10)):
        records.request(case, 1, request(tokens))
    kept = [len(record.get("token_times_s", ())) for record in written(stream)]
    assert kept == [6, 0, 4, 10]
    assert all(record["status"] == "ok" for record in written(stream))


def test_records_of_several_threads_do_not_mix(records: Records, stream: io.StringIO) -> None:
    def write(name: str) -> None:
        for _ in range(200):
            records.phase(name, "measure", 0.0, 1.0)

    threads = [threading.Thread(target=write, args=[name * 50]) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(written(stream)) == 800


def test_moments_count_from_a_beginning_that_processes_share(stream: io.StringIO) -> None:
    earlier = Records(stream, "x", begin=time.monotonic() - 100)
    later = Records(stream, "x", begin=time.monotonic())
    assert 99 < earlier.now() - later.now() < 101
