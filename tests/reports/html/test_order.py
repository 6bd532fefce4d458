"""Sort keys: the number that a formatted text stands for."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsight_prof.reports.page import formats
from nsight_prof.reports.render.order import Key, sort_key

AMOUNTS = st.floats(1e-2, 1e17)
SHOWN = {
    "ns": formats.duration,
    "B": formats.data_size,
    "B/s": formats.byte_rate,
    "FLOP": formats.flop_count,
    "FLOP/s": formats.flop_rate,
    "Hz": formats.clock,
    "FLOP/B": formats.intensity,
    "": formats.significant,
}


@pytest.mark.parametrize("unit", SHOWN)
@given(value=AMOUNTS)
def test_a_formatted_amount_comes_back_in_its_base_unit(unit: str, value: float) -> None:
    key = sort_key(SHOWN[unit](value))
    assert key is not None
    assert key.unit == unit
    assert math.isclose(key.value, value, rel_tol=0.006)


@given(part=st.floats(-1, 1))
def test_shares_come_back_as_per_cent(part: float) -> None:
    key = sort_key(formats.share(part))
    assert key is not None
    assert math.isclose(key.value, 100 * part, abs_tol=0.0501)
    # What is shown as <0.1 % is above 0, and below all that is shown with a number.
    assert not 0 < 100 * part < 0.05 or 0 < key.value < 0.1


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("48 MiB", Key(48 * 2.0**20, "B")),
        ("501 us (329 us to 1.15 ms)", Key(501e3, "ns")),
        ("26 of 50 profiled", Key(26, "")),
        ("18.1 % of GPU time", Key(18.1, "%")),
        ("+941.6 %", Key(941.6, "%")),
        ("1.27x", Key(1.27, "")),
        ("12,345", Key(12345, "")),
        ("n/a", None),
        ("–", None),
        ("", None),
        ("NaN", None),
    ],
)
def test_what_stands_in_cells(text: str, key: Key | None) -> None:
    assert sort_key(text) == key
