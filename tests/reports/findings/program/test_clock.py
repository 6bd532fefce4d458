"""Steps in the times of one kernel's launches, and the clock that times tell."""

import numpy as np
import pytest

from nsight_prof.reports.findings.program.clock import step_up, traced_clock


@pytest.mark.parametrize(
    ("times", "step"),
    [
        ([*[285.0] * 11, *[319.0] * 17], (11, 285.0, 319.0)),
        ([*[285.0, 287.0] * 6, *[318.0, 320.0] * 8], (12, 286.0, 319.0)),
        ([285.0, 319.0] * 14, None),  # two kinds of work, one after the other
        ([*[285.0] * 10, *[319.0] * 8, *[285.0] * 10], None),  # does not stay
        ([319.0, *[285.0] * 27], None),  # a slow start
        ([285.0, 319.0], None),
    ],
)
def test_a_step_up_that_stays_is_seen(
    times: list[float], step: tuple[int, float, float] | None
) -> None:
    assert step_up(np.array(times)) == step


def test_arithmetic_that_takes_longer_ran_at_a_lower_clock() -> None:
    row = {"bound_by": "tensor", "sm_clock_hz": 1.6e9, "duration_ns": 90.0, "mean_ns": 100.0,
           "std_ns": 1.0}  # fmt: skip
    assert traced_clock(row, 1.98e9) == pytest.approx(1.44e9)
    assert traced_clock(row | {"duration_ns": 200.0}, 1.98e9) == 1.98e9, "not beyond its highest"
    assert traced_clock(row | {"bound_by": "dram"}, 1.98e9) == 1.6e9, "DRAM has its own clock"
    assert traced_clock(row | {"std_ns": 50.0}, 1.98e9) == 1.6e9, "launches of different work"
