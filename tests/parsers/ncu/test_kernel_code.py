"""Tests of what the code of a kernel does that it need not."""

from __future__ import annotations

import pandas as pd
import pytest

from nsight_prof.parsers.ncu import kernel_code
from nsight_prof.parsers.ncu.registers import exchanged, products_added


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


def test_what_each_pass_stores_cannot_be_reduced_after_the_loop() -> None:
    loop = listing("SHFL.DOWN PT, R3, R2, 0x10, 0x1f", "FADD R2, R2, R3", times=640)
    once, each = (listing("@!P0 REDG.E.ADD.F64", times=times) for times in (10, 640))
    assert exchanged(pd.concat([listing("S2R R0"), loop, once]), 0.0) == pytest.approx(640 / 1300)
    assert exchanged(pd.concat([listing("S2R R0"), loop, each]), 0.0) == 0.0


LEVEL = ("@!P6 LDS R8, [R3]", "@!P6 LDS R7, [R3+0x100]", "@!P6 FADD R8, R8, R7",
         "@!P6 STS [R3], R8", "BAR.SYNC.DEFER_BLOCKING 0x0")  # fmt: skip


def test_a_level_of_a_tree_adds_to_a_number_in_its_place() -> None:
    start = ("STS [R3], R0", "BAR.SYNC.DEFER_BLOCKING 0x0")
    assert kernel_code.of_tree(listing(*start, *LEVEL, *LEVEL, "EXIT")) == pytest.approx(10 / 13)
    exchange = (*LEVEL[:4], "@!P6 STS [R3+0x100], R7", LEVEL[4])  # a step of a sort
    assert kernel_code.of_tree(listing(*start, *exchange, "EXIT")) == 0.0
    elsewhere = tuple(text.replace("STS [R3]", "STS [R9]") for text in LEVEL)  # a stencil
    assert kernel_code.of_tree(listing(*start, *elsewhere, "EXIT")) == 0.0


def test_lines_that_call_sines_are_told_from_those_of_fast_ones() -> None:
    rows = pd.concat([listing("MUFU.SIN", line=1, times=60), listing("FADD", line=2, times=40)])
    calls = source("sincosf(k * step, &d.y, &d.x);", "sum += d.x;")
    assert kernel_code.of_functions(rows, calls) == 0.6
    assert kernel_code.of_functions(rows, source("d = __sinf(x) + expf(y);", "s += d;")) == 0.0
    assert kernel_code.of_functions(rows, source("cos = tl.cos(a)", "")) == 0.6


def test_only_an_addition_that_takes_a_product_could_be_one_with_it() -> None:
    sass = ("FMUL R4, R2, R3", "FFMA R5, R2, R2, R4", "FADD R6, R5, 0.01")
    assert products_added(sass, [10, 10, 10]) == 0.0
    assert products_added((*sass, "FADD R7, R4, R6"), [10, 10, 10, 10]) == 0.25
    assert products_added(("DMUL R4, R2, R8", "FADD R6, R5, R4"), [10, 10]) == 0.0


def test_what_two_lines_load_from_memory_is_loaded_twice() -> None:
    first = ("for k in range(0, n, BLOCK):", "x = tl.load(row + k + at, mask=k + at < n)", "")
    second = ("y = tl.load(row + k + at, mask=k + at < n)", "tl.store(out + k + at, x)")
    lines = source(*first, *second, sectors=(0, 32, 0, 32, 32))
    assert kernel_code.loaded_again(lines) == pytest.approx(1 / 3)
    lines["sectors"] = [0, 32, 0, 0, 32]  # the compiler took what was there
    assert kernel_code.loaded_again(lines) == 0.0
    cuda = source("sum += row[k];", "out[k] = row[k] / sum;", "row[k] = 0;", sectors=(32, 64, 32))
    assert kernel_code.loaded_again(cuda) == pytest.approx(32 / 128)


def test_what_an_inner_loop_loads_alike_in_each_pass_of_the_outer_one_is_loaded_again() -> None:
    """As keys and values of a group of queries that come one after another."""
    texts = ("for voice in range(VOICES):", "query = tl.load(q + voice * SIZE + column)",
             "for start in range(first, last, WORDS):", "at = base + start + column",
             "keys = tl.load(k + at)", "tl.store(out + voice, total)")  # fmt: skip
    lines = source(*texts, sectors=(0, 32, 0, 0, 320, 32)).assign(file="k.py")
    often = [(1, "MOV R1, R2", 4), (2, "LDG.E R2, [R4.64]", 32), (5, "LDG.E R6, [R8.64]", 320)]

    def again(after: int, *changes: tuple[str, str]) -> float:
        changed = lines.copy()
        for old, new in changes:
            changed["source"] = changed["source"].str.replace(old, new, regex=False)
        code = [*often, (6, "STG.E [R2.64], R3", after)]
        rows = pd.DataFrame(code, columns=["line", "sass", "instructions"])
        return kernel_code.loaded_each_pass(changed, rows.assign(file="k.py"))

    assert again(32) == pytest.approx(320 * (1 - 1 / 8) / 384)
    assert again(4) == 0.0  # one loop after another
    assert again(32, ("k + at", "k + at + voice")) == 0.0
    assert again(32, ("at = base", "at = voice")) == 0.0
    assert again(32, ("at = base + start + column", "at += WORDS")) == 0.0  # it goes on
