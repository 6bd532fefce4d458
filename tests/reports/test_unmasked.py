"""What masks leave of guarded accesses, on instructions of a product in Triton (H200)."""

import pandas as pd
import pytest

from nsight_prof.reports.analysis.profiled import unmasked_shares

BEFORE = ("LDGSTS.E.BYPASS.128 desc[UR14][R10.64], P4, [R35]", 393216, 1147536)
MASKED = ("LDGSTS.E.BYPASS.128 desc[UR14][R22.64], P5, [R68]", 4718592, 11475360)
WHOLE = ("LDGSTS.E.BYPASS.128 desc[UR14][R22.64], !P4, [R68+0x6000]", 4718592, 62914560)
STORES = [
    ("@!P0  STG.E.128 desc[UR14][R2.64], R20", 393216, 1147536),
    ("STG.E.128 desc[UR14][R8.64], R24", 64068, 1023168),
]


def shares(*found: tuple[str, int, int]) -> dict[str, float]:
    frame = pd.DataFrame(found, columns=["sass", "instructions", "sectors"])
    return unmasked_shares(frame.assign(kernel_id="k1"))


def test_what_masks_let_through_is_the_larger_part_of_loads_and_stores() -> None:
    stored = (1147536 + 1023168) / (16 * (393216 + 64068))
    assert shares(BEFORE, MASKED, WHOLE, *STORES) == {"k1": pytest.approx(stored)}


@pytest.mark.parametrize(
    "found",
    [
        # Blocks that have nothing to do end their loop at once: what is before it comes seldom.
        [BEFORE, WHOLE, *STORES],
        [WHOLE, *STORES],
        [MASKED, WHOLE, STORES[1]],  # nothing is masked of what it stores
        # All threads of a warp load the same number.
        [("LDG.E R7, desc[UR14][R2.64]", 393216, 393216), *STORES],
        [],
    ],
)
def test_accesses_that_are_whole_or_shared_are_not_masked(
    found: list[tuple[str, int, int]],
) -> None:
    assert shares(*found) == {}
