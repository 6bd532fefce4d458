"""Rows about lines of Python, moved along their stacks."""

from typing import Any

import pandas as pd

from nsight_prof.parsers import tables
from nsight_prof.parsers.names.stacks import (
    called_rows,
    calling_lines,
    entered_again,
    holding_lines,
    known_lines,
)
from nsight_prof.parsers.nsys.rows.timed_shares import by_time

MAIN = "/a/p.py:90 <module>"


def row(line: int, function: str, callers: str, samples: int, **more: Any) -> dict[str, Any]:
    place = {"file": "/a/p.py", "line": line, "function": function, "callers": callers}
    counts = {"samples": samples, "idle_samples": samples, "time_ns": samples * 1e6}
    return {**place, **counts, "idle_ns": samples * 1e6, "source": "", **more}


def timed(*rows: tuple[int, str, int, float, str]) -> pd.DataFrame:
    columns = ["line", "function", "hits", "own_ns", "source"]
    frame = pd.DataFrame(rows, columns=columns).assign(file="/a/p.py")
    return tables.check(frame.assign(time_ns=frame["own_ns"].astype(int)), "timed_lines")


def test_a_graph_takes_in_what_one_line_of_a_loop_calls() -> None:
    at_step = f"/a/p.py:62 run < {MAIN}"
    rows = pd.DataFrame(
        [row(34, "step", at_step, 30), row(35, "step", at_step, 30), row(36, "step", at_step, 35),
         row(70, "run", MAIN, 5)]
    )  # fmt: skip
    hits = timed((62, "run", 4000, 1.0, ""), (90, "<module>", 1, 1.0, ""))
    moved = holding_lines(rows, "samples", hits)
    assert list(moved["line"]) == [62, 62, 62, 70]
    # Where nobody knows what is a loop, only models are left.
    assert list(holding_lines(rows, "samples", hits[:0])["line"]) == [34, 35, 36, 70]
    # A line that has a large part of the step says more than who calls it.
    rows["samples"] = [20, 20, 55, 5]
    assert list(holding_lines(rows, "samples", hits)["line"]) == [34, 35, 36, 70]


def test_a_function_that_a_chain_enters_again_is_a_step_of_it() -> None:
    """Line 8 runs for lines 14 and 15 of each step, line 20 for line 16 alone."""
    step = f"/a/p.py:33 run < {MAIN}"
    rows = pd.DataFrame(
        [row(8, "around", f"/a/p.py:{at} grow < {step}", 20) for at in (14, 15)]
        + [row(20, "norm", f"/a/p.py:16 grow < {step}", 20), row(13, "grow", step, 5)]
    )
    hits = [(8, "around", 200), (14, "grow", 100), (15, "grow", 100), (16, "grow", 100),
            (20, "norm", 200), (13, "grow", 100)]  # fmt: skip
    moved = entered_again(rows, timed(*((*hit, 1.0, "") for hit in hits)))
    assert sorted(moved["line"]) == [13, 14, 15, 20]
    assert entered_again(rows, timed()) is rows  # nobody knows what runs how often


def test_a_model_is_called_as_a_whole() -> None:
    around = f"/a/p.py:28 moves < /a/p.py:44 run < {MAIN}"
    rows = pd.DataFrame([row(20, "forward", around, 60), row(18, "forward", around, 40)])
    hits = timed(
        (44, "run", 50, 1.0, ""), (28, "moves", 50, 1.0, ""), (20, "forward", 999, 1.0, "")
    )
    assert set(holding_lines(rows, "samples", hits)["line"]) == {28}


def test_what_is_called_for_each_item_is_to_mend_where_it_is_called() -> None:
    """A comprehension at line 35 calls a function for 64 items in each of 70 steps."""
    around = f"/a/p.py:35 step < /a/p.py:72 run < {MAIN}"
    rows = pd.DataFrame(
        [row(16, "orthogonal", around, 60), row(13, "orthogonal", around, 10),
         row(71, "run", MAIN, 30)]
    )  # fmt: skip
    hits = [(13, "orthogonal", 4480, 1.0, "x = update / norm"), (16, "orthogonal", 22400, 1.0, ""),
            (35, "step", 70, 1.0, ""), (72, "run", 70, 1.0, "")]  # fmt: skip
    assert list(holding_lines(rows, "samples", timed(*hits))["line"]) == [35, 35, 71]
    # A loop within the function, which is entered once for a step, is that function's.
    for first in (
        (13, "orthogonal", 70, 1.0, "x = update"),
        (13, "orthogonal", 4480, 1.0, "for _"),
    ):
        hits[0] = first
        assert list(holding_lines(rows, "samples", timed(*hits))["line"]) == [16, 13, 71]


def test_a_calling_line_is_another_one() -> None:
    rows = pd.DataFrame([row(26, "whiten", f"/a/p.py:26 whiten < /a/p.py:53 run < {MAIN}", 1)])
    assert list(calling_lines(rows)["line"]) == [53]


def test_samples_of_a_loop_of_python_are_where_its_time_is() -> None:
    usual = {"activity": "program", "inner": "", "call": "", "stage": "", "work": ""}
    lines = pd.DataFrame(
        [
            row(17, "chosen", MAIN, 80, **usual),
            row(9, "chosen", MAIN, 20, **usual),
            row(17, "chosen", MAIN, 7, **{**usual, "inner": "/lib/python3.12/json.py:1 dumps"}),
            row(45, "run", MAIN, 30, **usual),
        ]
    )
    known = timed(
        (14, "chosen", 1000, 30e6, "for book in books:"),
        (15, "chosen", 1000, 40e6, "if book not in known:"),
        (17, "chosen", 1000, 37e6, "if len(fresh) == 3:"),
        (20, "chosen", 1, 0.0, "return fresh"),
    )
    found = by_time(lines, known, tables.empty("timed_calls"))
    by_line = found[found["inner"] == ""].groupby("line")["samples"].sum()
    # The head of the loop belongs to its body; 7 ms of line 17 are in json, which has samples.
    assert dict(by_line) == {15: 70, 17: 30, 45: 30}
    assert found["samples"].sum() == lines["samples"].sum()
    assert (found["idle_samples"] <= found["samples"]).all()


def calls(*rows: tuple[str, str, int, int, int, int, str]) -> pd.DataFrame:
    columns = ["call", "activity", "line", "calls", "time_ns", "gpu_ns", "copy"]
    place = {"file": "/a/p.py", "function": "send", "callers": MAIN, "source": "", "kernel_id": ""}
    return tables.check(pd.DataFrame(rows, columns=columns).assign(**place), "timed_calls")


def test_copies_are_where_they_take_the_gpu_or_where_their_stream_waits() -> None:
    copies = [
        ("cudaMemcpyAsync", "copying", 29, 300, 9_000, 500_000, "copy host to device"),
        ("cudaMemsetAsync", "copying", 31, 900, 99_000, 900_000, ""),
    ]
    (found,) = called_rows(calls(*copies), ["copying"]).itertuples()
    assert (found.line, found.samples) == (29, 500)
    wait = ("cudaStreamWaitEvent", "waiting", 25, 300, 9_000, 0, "")
    (found,) = called_rows(calls(*copies, wait), ["copying"]).itertuples()
    assert found.line == 25
    # A wait that comes once is none of each copy.
    (found,) = called_rows(calls(*copies, (*wait[:3], 1, *wait[4:])), ["copying"]).itertuples()
    assert found.line == 29


def test_the_wait_for_all_at_the_end_holds_nothing_up() -> None:
    last = ("cudaDeviceSynchronize", "waiting", 99, 1, 900_000, 0, "")
    each = ("cudaStreamSynchronize", "waiting", 21, 50, 80_000, 0, "")
    assert list(called_rows(calls(last, each), ["waiting"])["line"]) == [21]
    assert list(called_rows(calls(last), ["waiting"])["line"]) == [99]


def test_a_fill_is_no_wait_for_results() -> None:
    fill = ("cudaMemsetAsync", "copying", 31, 900, 99_000, 900_000, "")
    wait = ("cudaStreamSynchronize", "waiting", 21, 50, 80_000, 0, "")
    assert list(called_rows(calls(fill, wait), ["waiting", "copying"])["line"]) == [21]


def test_a_call_in_a_compiled_library_is_at_the_innermost_line_that_is_known() -> None:
    """Thrust within a program in C++, as nsys names its functions."""
    allocate = "thrust::detail::temporary_allocator<unsigned char, par_t>::allocate(unsigned long)"
    sort = "/a/routes:0 void merge_sort<integral_constant<bool, true>, Nearer>(policy<par_t>&)"
    frame = pd.DataFrame(
        [
            {"file": "/a/routes", "line": pd.NA, "function": allocate,
             "callers": f"{sort} < /a/routes.cu:50 main < /a/routes.cu:90 start"},
            {"file": "/a/routes.cu", "line": 46, "function": "main", "callers": ""},
        ]
    )  # fmt: skip
    found = known_lines(frame)
    assert list(zip(found["file"], found["function"], found["line"], strict=True)) == [
        ("/a/routes.cu", "main", 50),
        ("/a/routes.cu", "main", 46),
    ]
