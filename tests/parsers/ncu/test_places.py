"""Instructions at the lines of the program that they belong to, in SASS as nvcc 13.0 made it."""

import pandas as pd
import pytest

from nsight_prof.parsers.ncu.places import (
    at_barriers,
    at_loads,
    at_program,
    at_writers,
    in_order,
)
from nsight_prof.parsers.ncu.registers import writers

HEADER = "/usr/local/cuda-13.0/targets/x86_64-linux/include/device_atomic_functions.hpp"


@pytest.mark.parametrize(
    ("sass", "read"),
    [
        (["MOV R4, R9", "IADD3 R5, R4, 0x1, RZ", "STG.E desc[UR4][R2.64], R5"], [[], [0], [1]]),
        (["LDG.E.128 R4, desc[UR4][R2.64]", "FADD R8, R7, R6"], [[], [0]]),
        (["IMAD.WIDE R2, R0, 0x4, R8", "@!P0  LDG.E R1, desc[UR4][R2.64]"], [[], [0]]),
        (["MOV R3, RZ", "ISETP.GE.AND P0, PT, R3, 0x2, PT", "FADD R1, R3, R3"], [[], [0], [0]]),
        (["ATOMG.E.ADD.STRONG.GPU PT, R9, desc[UR4][R2.64], R8", "MOV R1, R9"], [[], [0]]),
        (["HGMMA.64x64x16.F32 R24, R8, gdesc[UR4], R24", "FMUL R3, R55, R2"], [[0], [0]]),
        (["CS2R R4, SRZ", "STL.64 [R1+0x8], R4", "no instruction; R4"], [[], [0], []]),
    ],
)
def test_what_is_read_leads_to_the_instruction_that_wrote_it(
    sass: list[str], read: list[list[int]]
) -> None:
    assert writers(sass, [1] * len(sass)) == read


def test_what_a_loop_carries_was_written_in_the_loop() -> None:
    before, store, load, product = "CS2R R4, SRZ", "STL [R1], R4", "LDL R4, [R1]", "FMUL R4, R4, R6"
    assert writers([before, store, load, product], [1, 9, 9, 9])[1] == [3]
    assert writers([before, store, load, product], [9, 9, 9, 9])[1] == [0]


def rows(*found: tuple[str, int, str]) -> pd.DataFrame:
    frame = pd.DataFrame(found, columns=["file", "line", "sass"])
    return frame.assign(instructions=8, stall="long_sb", callers="")


def test_an_atomic_of_a_header_is_at_the_line_whose_operands_it_takes() -> None:
    """The two of a kernel whose line 12 is scheduled between those of line 10 and their atomics."""
    frame = rows(
        ("k.cu", 10, "IMAD R17, R15, R0, RZ"),
        ("k.cu", 11, "IMAD R19, R13, R0, RZ"),
        ("k.cu", 12, "IMAD R15, R6, R15, RZ"),
        (HEADER, 112, "REDG.E.ADD.STRONG.GPU desc[UR6][R8.64], R17"),
        (HEADER, 112, "REDG.E.ADD.STRONG.GPU desc[UR6][R8.64+0x4], R19"),
        (HEADER, 113, "IADD3 R1, R19, R17, RZ"),
    )
    found = at_program(frame)
    assert found["line"].tolist() == [10, 11, 12, 10, 11, 12]
    assert found["is_foreign"].tolist() == [False] * 3 + [True] * 3
    # A line that calls an atomic goes before the one that computed its other operand.
    address = rows(
        ("k.cu", 30, "LDC.64 R10, c[0x0][0x228]"),
        ("k.cu", 17, "SEL R8, R8, 0x2, !P0"),
        (HEADER, 107, "@!P1  ATOMG.E.ADD.STRONG.GPU PT, R9, desc[UR4][R10.64], R8"),
    )
    assert at_program(address)["line"].tolist() == [30, 17, 17]
    assert at_program(address, {("k.cu", 30)})["line"].tolist() == [30, 17, 30]


def test_of_headers_alone_nothing_is_moved() -> None:
    frame = rows((HEADER, 112, "REDG.E.ADD.STRONG.GPU desc[UR6][R8.64], R17"))
    assert at_program(frame)["line"].tolist() == [112]


def test_a_value_that_is_spilled_is_at_the_line_that_made_it() -> None:
    frame = rows(("k.py", 26, "FMUL R7, R7, R2"), ("k.py", 20, "STL [R1+0x4], R7"))
    assert at_writers(frame, frame["sass"].str.startswith("STL"))["line"].tolist() == [26, 26]


def test_a_value_in_a_local_array_is_at_its_line_and_not_at_that_of_its_index() -> None:
    frame = rows(
        ("k.cu", 15, "FMUL R15, R13, R2"),
        ("k.cu", 14, "IADD3 R10, R10, -0x4, RZ"),
        ("k.cu", 20, "STL [R10+-0x4], R15"),
    )
    assert at_writers(frame, frame["sass"].str.startswith("STL"))["line"].tolist() == [15, 14, 15]


def test_warps_that_wait_for_a_load_are_at_its_line() -> None:
    frame = rows(
        ("k.cu", 13, "LDG.E.U8 R6, desc[UR4][R2.64]"),
        ("k.cu", 13, "MOV R8, R4"),
        ("k.cu", 7, "I2FP.F32.U32 R6, R6"),
        ("k.cu", 7, "FADD R9, R8, R8"),
    )
    frame.loc[[0, 1], "stall"] = "wait"
    assert at_loads(frame)["line"].tolist() == [13, 13, 13, 7]


def test_warps_that_wait_at_a_barrier_are_at_its_line() -> None:
    frame = rows(
        ("k.cu", 27, "BAR.SYNC.DEFER_BLOCKING 0x0"),
        ("k.cu", 21, "ISETP.GE.U32.AND P0, PT, R0, 0x3ff, PT"),
        ("k.cu", 21, "@!P0  BRA 0x480"),
    )
    frame.loc[2, "stall"] = "barrier"
    assert at_barriers(frame)["line"].tolist() == [27, 21, 27]


@pytest.mark.parametrize(
    ("samples", "ordered"),
    [
        ({10: 29, 11: 30, 12: 30, 13: 11}, [10, 11, 12, 13]),  # alike: the first of them
        ({38: 33, 41: 33, 42: 33}, [41, 42, 38]),  # a group with more than a line by itself
        ({13: 29, 14: 37}, [14, 13]),  # not alike
        ({}, []),
    ],
)
def test_lines_about_as_hot_begin_at_the_first_of_a_group(
    samples: dict[int, int], ordered: list[int]
) -> None:
    of_file = in_order({("k.cu", line): number for line, number in samples.items()})
    assert [line for _, line in of_file] == ordered


def test_a_division_without_lines_is_at_the_line_that_calls_it() -> None:
    """A remainder of 64 bits as nvcc 13.0 calls it, at line 41 for ncu, where the kernel ends."""
    start = 0x7EFC977A0B00
    made = [
        ("k.cu", 33, "MOV R3, R8"),
        ("k.cu", 34, f"CALL.REL.NOINC {start + 64:#x}"),
        ("k.cu", 39, "STG.E desc[UR6][R14.64], R3"),
        ("k.cu", 41, "EXIT"),
        ("k.cu", 41, "I2F.U64.RP R13, R6"),
        ("k.cu", 41, "MUFU.RCP R13, R13"),
        ("k.cu", 41, f"RET.REL.NODEC R12, {start:#x}"),
        ("k.cu", 41, "NOP"),
    ]
    frame = rows(*made).assign(offset=range(0, 128, 16))
    assert at_program(frame)["line"].tolist() == [33, 34, 39, 41, 34, 34, 34, 41]
    # A function of the program has lines of its own.
    own = rows(*made[:4], *(("k.cu", 7, sass) for _, _, sass in made[4:]))
    own = own.assign(offset=range(0, 128, 16))
    assert at_program(own)["line"].tolist() == [33, 34, 39, 41, 7, 7, 7, 7]
