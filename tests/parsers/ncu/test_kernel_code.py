"""Tests of what the code of a kernel does that it need not."""

from __future__ import annotations

import pandas as pd
import pytest

from nsight_prof.parsers.ncu import kernel_code


def listing(*sass: str, line: int = 1, times: int = 10) -> pd.DataFrame:
    """Return rows of source_instructions."""
    return pd.DataFrame({"sass": sass, "line": line, "instructions": times})


def source(*texts: str, sectors: tuple[float, ...] = ()) -> pd.DataFrame:
    """Return rows of source_lines, from line 1 on."""
    touched = sectors or (0.0,) * len(texts)
    return pd.DataFrame({"line": range(1, len(texts) + 1), "source": texts, "sectors": touched})


def test_instructions_of_the_heap_are_those_outside_of_the_listing() -> None:
    rows = listing("IADD3 R2, R2, 0x1, RZ", "CALL.ABS.NOINC R2", "EXIT")
    assert kernel_code.of_heap(rows, source("auto p = new short[48];"), 600.0) == 0.95
    # So are printf and assert.
    assert kernel_code.of_heap(rows, source('printf("%d", renewed);'), 600.0) == 0.0
    assert kernel_code.of_heap(listing("EXIT"), source("auto p = new short[48];"), 600.0) == 0.0


def test_calls_of_known_functions_are_not_through_pointers() -> None:
    virtual = ("LD.E R2, desc[UR36][R12.64]", "LDC.64 R2, c[0x2][R2]", "FADD R1, R2, R3")
    assert kernel_code.of_calls(listing(*virtual, "CALL.REL.NOINC R2, 0x7fa0")) == 0.75
    assert kernel_code.of_calls(listing(*virtual, "CALL.REL.NOINC 0x7fa0")) == 0.0


@pytest.mark.parametrize(("index", "share"), [
    ("LOP3.LUT R4, R9, 0xff, RZ, 0xc0, !PT", 0.75),
    ("IMAD R4, R9, 0x20, R8", 0.0),  # an element of a tile
])  # fmt: skip
def test_a_look_up_has_an_index_that_was_cut_out(index: str, share: float) -> None:
    rows = listing(index, "LDS.U8 R5, [R4+UR5]", "IADD3 R6, R5, R6, RZ", "STG.E [R2], R6")
    assert kernel_code.of_lookups(rows) == share


def test_functions_on_both_sides_of_a_choice_are_told_from_the_kernel() -> None:
    text = source("return tl.sin(x)", "return tl.exp(x)", "def play(a, b):", "k = tl.load(a)",
                  "y = tl.where(k == 0, flute(x), bell(x))")  # fmt: skip
    rows = pd.concat([listing("MUFU.SIN", line=1, times=60), listing("MUFU.EX2", line=2, times=20),
                      listing("LDG", line=4, times=20)])  # fmt: skip
    assert kernel_code.of_sides(rows, text) == 0.8
    text.loc[4, "source"] = "y = tl.where(k == 0, tl.sin(x), x)"
    assert kernel_code.of_sides(rows, text) == 0.0


def test_loads_that_do_not_depend_on_an_axis_are_the_same_along_it() -> None:
    texts = ("row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)", "guest = tl.program_id(1)",
             "mine = guests + guest * width", "w = tl.load(weights + row * width)",
             "x = tl.load(mine + deep)")  # fmt: skip
    lines = source(*texts, sectors=(0, 0, 0, 96, 4))
    assert kernel_code.same_loads(lines, (64, 16, 1)) == pytest.approx(0.96 * 15 / 16)
    assert kernel_code.same_loads(lines, (1, 1, 1)) == 0.0
    assert kernel_code.same_loads(lines[lines["line"] != 2], (64, 16, 1)) < 0.1
