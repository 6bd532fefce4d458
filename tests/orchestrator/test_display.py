"""The display of a run, on a terminal and without one."""

import io
from functools import partial

import pytest
from rich.console import Console

from nsight_prof.orchestrator.terminal.display import Display, elapsed
from nsight_prof.parsers.run.directory import StepState
from nsight_prof.parsers.substeps import substep, watched_by


def display(live: bool) -> tuple[Display, io.StringIO]:
    out = io.StringIO()
    console = Console(file=out, force_terminal=live, width=200, highlight=False, color_system=None)
    return Display(console, live=live), out


def test_without_a_terminal_each_step_is_a_plain_line() -> None:
    shown, out = display(live=False)
    shown.variant("batch=1", 1, 2)
    shown.started("trace", "nsys python [x].py")
    shown.waits("trace", 0.2)
    shown.warning("something [odd]")
    shown.finished("trace", StepState.FAILED, "it broke")
    assert out.getvalue().splitlines() == [
        "run 1 of 2: batch=1",
        "trace: nsys python [x].py",
        "warning: something [odd]",
        "trace: failed, it broke",
    ]


def test_parts_of_the_report_are_shown_beside_the_spinner() -> None:
    shown, out = display(live=True)
    shown.started("report", "tables and report")
    with watched_by(partial(shown.doing, "report")):
        substep("figures", "roofline")
        shown.finished("report", StepState.DONE, "")
    substep("after", "it")
    assert "report: figures: roofline" in out.getvalue()
    assert "after" not in out.getvalue()


def test_a_long_step_says_now_and_then_that_it_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    shown, out = display(live=False)
    clock = [0.0]
    monkeypatch.setattr(
        "nsight_prof.orchestrator.terminal.display.time.monotonic", lambda: clock[0]
    )
    shown.started("counters", "ncu")
    for second in range(0, 181, 10):
        clock[0] = float(second)
        shown.waits("counters", second)
    lines = out.getvalue().splitlines()
    assert lines[1:] == [
        "counters: still waiting after 1 min 00 s",
        "counters: still waiting after 2 min 00 s",
        "counters: still waiting after 3 min 00 s",
    ]


def test_on_a_terminal_a_spinner_shows_what_the_step_waits_for() -> None:
    shown, out = display(live=True)
    shown.started("trace", "nsys python x.py")
    shown.waits("trace", 1.5)
    shown.finished("trace", StepState.DONE, "")
    shown.close()
    assert "trace: nsys python x.py" in out.getvalue()
    assert "trace: done in 0.0 s" in out.getvalue()


def test_without_a_terminal_each_part_of_a_step_is_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    shown, out = display(live=False)
    clock = [0.0]
    monkeypatch.setattr(
        "nsight_prof.orchestrator.terminal.display.time.monotonic", lambda: clock[0]
    )
    shown.started("bench", "python run.py")
    for part, detail in [("1 of 2", ""), ("1 of 2", "[a] 3 us"), ("2 of 2", "b: 4 us")]:
        shown.doing("bench", part, detail)
    clock[0] = 61.0
    shown.waits("bench", 61.0)
    assert out.getvalue().splitlines()[1:] == [
        "bench: 1 of 2",
        "bench: 2 of 2",
        "bench: still waiting after 1 min 01 s: b: 4 us",
    ]


def test_on_a_terminal_the_spinner_shows_the_part_and_its_last_line() -> None:
    shown, out = display(live=True)
    shown.started("bench", "python run.py")
    shown.doing("bench", "process 1 of 2", "[dram] read: 3 us")
    shown.finished("bench", StepState.DONE, "")
    shown.close()
    assert "process 1 of 2: [dram] read: 3 us" in out.getvalue()


def test_on_a_terminal_the_last_line_takes_the_place_of_the_command() -> None:
    shown, out = display(live=True)
    shown.started("trace", "nsys python x.py")
    shown.doing("trace", "", "")
    shown.finished("trace", StepState.DONE, "")
    assert "trace: nsys python x.py" in out.getvalue()
    shown.started("untraced", "python x.py")
    shown.doing("untraced", "", "loading [50 %]")
    shown.finished("untraced", StepState.DONE, "")
    assert "untraced: loading [50 %]" in out.getvalue()


def test_without_a_terminal_the_last_line_is_told_now_and_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown, out = display(live=False)
    clock = [0.0]
    monkeypatch.setattr(
        "nsight_prof.orchestrator.terminal.display.time.monotonic", lambda: clock[0]
    )
    shown.started("untraced", "python x.py")
    shown.doing("untraced", "", "loading [50 %]")
    clock[0] = 61.0
    shown.waits("untraced", 61.0)
    assert out.getvalue().splitlines() == [
        "untraced: python x.py",
        "untraced: still waiting after 1 min 01 s: loading [50 %]",
    ]


@pytest.mark.parametrize(
    ("seconds", "text"), [(4.21, "4.2 s"), (192, "3 min 12 s"), (3720, "1 h 02 min")]
)
def test_durations_are_for_people(seconds: float, text: str) -> None:
    assert elapsed(seconds) == text
