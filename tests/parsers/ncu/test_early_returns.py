"""Where nearly all threads return before they have done anything, on made-up instructions."""

import math

import pandas as pd
import pytest

from nsight_prof.parsers.ncu.kernel_code import beyond_return

LOOK = [("LDG.E R2, desc[UR4][R2.64]", 100, 95), ("ISETP.NE.AND P0, PT, R2, R5, PT", 100, 0)]
RETURN, GOING_ON = ("@P0  EXIT", 100, 0), ("STG.E desc[UR4][R6.64], R4", 5, 5)


def share(*found: tuple[str, int, int]) -> float:
    return beyond_return(pd.DataFrame(found, columns=["sass", "instructions", "samples"]))


def test_the_samples_beyond_a_look_are_those_of_threads_with_work() -> None:
    assert share(*LOOK, RETURN, GOING_ON) == 0.05


@pytest.mark.parametrize(
    "found",
    [
        [*LOOK, GOING_ON],  # no return
        [*LOOK, RETURN, ("STG.E desc[UR4][R6.64], R4", 50, 5)],  # half of them go on
        # One thread of a block stores what all have added up: in a loop, or by shuffles.
        [LOOK[0], ("FADD R4, R4, R2", 3200, 0), RETURN, GOING_ON],
        [LOOK[0], ("SHFL.BFLY PT, R3, R2, 0x10, 0x1f", 100, 0), RETURN, GOING_ON],
        [LOOK[0], ("BAR.SYNC.DEFER_BLOCKING 0x0", 100, 0), RETURN, GOING_ON],
    ],
)
def test_threads_that_have_worked_return_from_work(found: list[tuple[str, int, int]]) -> None:
    assert math.isnan(share(*found))
