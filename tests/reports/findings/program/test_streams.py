"""Streams that take turns, on made-up launches whose answer is known and on recordings."""

import math
from collections.abc import Callable

import pandas as pd
import pytest

from nsight_prof.parsers import tables
from nsight_prof.parsers.build.load import load_run
from nsight_prof.parsers.run.run import Run
from tests.reports.programs import US, english, kernels, of_cause, of_rule, write

ROUNDS, EACH = 30, 40
"""Rounds over the streams, and us of each kernel."""


def launched(run: Run, streams: list[int], *, apart: int = 2, blocks: int = 33) -> Run:
    """Let a kernel of so many blocks run once per round on each of `streams`, one after another."""
    run = kernels(run, {"PyTorch softmax": {"grid": f"{blocks}x1x1"}})
    tables.write(run.gpus.assign(sm_count=132), "gpus", run.directory.tables)
    named = run.kernels["short_name"] == "PyTorch softmax"
    kernel = run.kernels.loc[named, "kernel_id"].iloc[0]
    rows = [
        {"kernel_id": kernel, "index": at, "start_ns": at * (EACH + apart) * US,
         "duration_ns": EACH * US, "device": 0, "pid": 1, "context": 1, "stream": stream,
         "stage": "decode"}
        for at, stream in enumerate(streams * ROUNDS)
    ]  # fmt: skip
    write(run, "idle_gaps", [])
    write(run, "launches", rows)
    return calls(run, "cudaLaunchKernel", len(rows))


def calls(run: Run, name: str, often: int) -> Run:
    return write(run, "api_calls", [{"name": name, "calls": often, "total_ns": often * US}])


def test_kernels_that_fit_side_by_side_gain_all_but_full_sms(run: Run) -> None:
    found = of_cause(launched(run, [13, 14, 15, 16, 17, 18, 19, 20]), "serial_streams")
    total = 8 * ROUNDS * EACH * US
    # A quarter of the SMs each: four at a time, though there are eight streams.
    assert found.gain_ns == pytest.approx(total * 3 / 4)
    assert "240 kernels of 8 streams run one after another" in english(found.verdict)
    assert "blocks for only 25 % of the SMs" in english(found.verdict)
    assert found.confidence == "low"


def test_two_streams_save_no_more_than_the_shorter_one(run: Run) -> None:
    found = of_cause(launched(run, [13, 14, 14]), "serial_streams")
    assert found.gain_ns == pytest.approx(ROUNDS * EACH * US)


@pytest.mark.parametrize(
    ("streams", "call", "verdict", "action"),
    [
        ([13, 14], "cudaStreamWaitEvent_v3020", "wait for an event 59 times", "one fork before"),
        ([7, 14], "cudaLaunchKernel", "one of the two is the legacy default stream", "NonBlocking"),
        ([13, 14], "cudaLaunchKernel", "does not tell what orders them", "MAX_CONNECTIONS"),
    ],
)
def test_what_orders_them_is_named_where_the_trace_tells(
    run: Run, streams: list[int], call: str, verdict: str, action: str
) -> None:
    run = calls(launched(run, streams), call, 2 * ROUNDS - 1)
    found = of_cause(run, "serial_streams")
    assert verdict in english(found.verdict)
    assert action in english(found.action)


def test_kernels_that_are_launched_late_gain_nothing_by_streams(run: Run) -> None:
    run = launched(run, [13, 14])
    gaps = {"stage": "decode", "cause": "launches", "gaps": 59, "late_calls": 59,
            "idle_ns": 59 * 2 * US, "longest_ns": 2 * US}  # fmt: skip
    found = of_cause(write(run, "idle_gaps", [gaps]), "serial_streams")
    assert math.isnan(found.gain_ns)
    assert "launches set the pace" in english(found.verdict)


@pytest.mark.parametrize(
    ("streams", "apart", "blocks"),
    [
        ([13], 2, 33),  # one stream
        ([13, 14], 2, 132),  # a block for every SM
        ([13, 14], -10, 33),  # side by side already
        ([13, 14], 200, 33),  # the host does something else
        ([13] * 15 + [14] * 15, 2, 33),  # phases
    ],
)
def test_other_streams_are_none(run: Run, streams: list[int], apart: int, blocks: int) -> None:
    assert not of_rule(launched(run, streams, apart=apart, blocks=blocks), "serial_streams")


def test_a_stream_of_communication_is_no_turn(run: Run) -> None:
    run = launched(run, [13, 14])
    frame = run.launches.copy()
    second = run.kernels.loc[run.kernels["short_name"] == "PyTorch copy", "kernel_id"].iloc[0]
    frame["kernel_id"] = frame["kernel_id"].astype(str).where(frame["stream"] == 13, second)
    tables.write(tables.check(frame, "launches"), "launches", run.directory.tables)
    assert of_rule(kernels(run, {"PyTorch copy": {"grid": "8x1x1"}}), "serial_streams")
    ours = kernels(run, {"PyTorch copy": {"category": "collective"}})
    assert not of_rule(ours, "serial_streams")


@pytest.mark.parametrize("name", ["h100-sglang-kernels", "h200-data-parallel", "h200-top-kernels"])
def test_recorded_streams_that_work_at_once_or_one_after_another_for_a_reason_are_none(
    recorded_run_of: Callable[[str], Run], name: str
) -> None:
    assert not of_rule(recorded_run_of(name), "serial_streams")


def test_recorded_launches_that_come_late_are_told_as_such(
    recorded_run_of: Callable[[str], Run], run: Run
) -> None:
    """The decode steps of a decoder, each second kernel put on a stream of its own."""
    recorded = recorded_run_of("h200-top-kernels")
    for table in ("launches", "kernels", "gpus", "idle_gaps", "api_calls", "stages", "devices"):
        tables.write(getattr(recorded, table), table, run.directory.tables)
    frame = recorded.launches
    tables.write(
        frame.assign(stream=pd.Series(range(len(frame)), index=frame.index) % 2 + 13),
        "launches",
        run.directory.tables,
    )
    found = of_rule(load_run(run.path), "serial_streams")
    assert all(math.isnan(f.gain_ns) for f in found)
    assert found
