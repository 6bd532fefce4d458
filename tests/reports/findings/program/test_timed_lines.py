"""Lines of findings by what was measured of their cause, on made-up samples and calls."""

from typing import Any

import pytest

from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.analysis.lines import waiting_rows
from nsight_prof.reports.verdicts.ranking import findings
from tests.reports.findings.program.test_host_work import MS, line, waiting
from tests.reports.programs import english, write


def told(run: Run, rule: str) -> str:
    (found,) = [f for f in findings(run) if f.rule == rule]
    return english(found.verdict)


def test_a_recompilation_is_at_the_line_whose_guard_failed(run: Run) -> None:
    guard = {"file": "/a/model.py", "line": 23, "function": "forward", "source": "self.calls += 1",
             "guard": "self.calls == 6", "compilations": 7}  # fmt: skip
    run = write(waiting(run, "host"), "host_lines", [line("compiling", 60)])
    assert "The host is then in train.py:9" in told(run, "compilation")
    run = write(run, "recompilations", [guard])
    words = told(run, "compilation")
    assert words.endswith("no longer held: self.calls == 6 at model.py:23 in forward.")
    (found,) = [f for f in findings(run) if f.rule == "compilation"]
    evidence = {english(row.label): row.value for row in found.evidence}
    assert evidence["compiled again at model.py:23"] == 7


@pytest.mark.parametrize(("copied_at", "first"), [(53, 53), (52, 26)])
def test_a_round_trip_to_a_library_is_at_the_line_that_fetches(
    run: Run, copied_at: int, first: int
) -> None:
    rows = [
        line("computing on the host", 40, line=26, callers="/a/train.py:53 run"),
        line("", 5, line=copied_at, function="run", activity="copying", call="cudaMemcpyAsync",
             idle_samples=0),
    ]  # fmt: skip
    words = told(write(waiting(run, "host"), "host_lines", rows), "cpu_libraries")
    assert f"The host is then in train.py:{first} " in words


def call_at(at: int, **more: Any) -> dict[str, Any]:
    place = {"file": "/a/train.py", "line": at, "function": "search", "callers": "", "source": ""}
    call = {"call": "cudaMemcpyAsync", "activity": "copying", "copy": "copy host to device"}
    return {**place, **call, "kernel_id": "", "calls": 40, "time_ns": MS, "gpu_ns": 9 * MS, **more}


def test_copies_are_at_the_lines_of_their_calls(run: Run) -> None:
    copy = {"kind": "host to device", "calls": 40, "bytes": 4e8, "total_ns": 9 * MS}
    rows = [line("", 9, stage="", line=17, activity="copying", call="cudaMemsetAsync")]
    run = write(write(run, "memory_operations", [copy]), "host_lines", rows)
    assert "train.py:17 in step" in told(run, "copies")
    run = write(run, "timed_calls", [call_at(16), call_at(17, copy="", gpu_ns=99 * MS)])
    assert "The host is then in train.py:16 in search (100 % of them)" in told(run, "copies")


def test_waits_are_priced_by_the_trace_and_not_by_the_run_that_timed_lines(run: Run) -> None:
    rows = [line("", 40, line=12, activity="waiting", call="cudaStreamSynchronize")]
    run = write(run, "host_lines", rows)
    priced = waiting_rows(run)[["time_ns", "idle_ns"]]
    calls = [call_at(12, activity="waiting", copy="", time_ns=99 * MS)]
    run = write(run, "timed_calls", calls)
    assert waiting_rows(run)[["time_ns", "idle_ns"]].equals(priced)
