"""Lines that instructions were inlined into, by the line table of a cubin."""

import lzma
from bisect import bisect_right
from collections import Counter
from pathlib import Path

import pandas as pd
import pytest

from nsight_prof.parsers.build.source_tables import with_callers
from nsight_prof.parsers.cubin.elf import Cubin, cubins
from nsight_prof.parsers.cubin.line_table import inlined_lines
from nsight_prof.parsers.ncu.places import at_program
from nsight_prof.parsers.ncu.source_page import SourceOfKernel, read_source_page
from nsight_prof.parsers.ncu.text_file import read_text

KERNEL, ROUNDS = "_Z8cool_onePK6__halfPS_fff", 40


@pytest.fixture
def folder(root: Path) -> Path:
    return root / "tests/fixtures/cubin"


@pytest.fixture
def data(folder: Path) -> bytes:
    return lzma.decompress((folder / "wax_prints.cubin.xz").read_bytes())


@pytest.fixture
def page(folder: Path) -> SourceOfKernel:
    return read_source_page(folder / "source.csv.xz")[0]


def known_to_ncu(folder: Path) -> dict[int, set[int]]:
    """Lines of the program under which the page itself has each instruction."""
    file, line, found = "", 0, dict[int, set[int]]()
    for row in read_text(folder / "source.csv.xz").splitlines():
        cells = row.split('"')[1::2]
        if cells[0] == "File Path":
            file = cells[1]
        elif cells[0].isdigit():
            line = int(cells[0])
        elif not cells[0] and cells[2].startswith("0x") and file.endswith("wax_prints.cu"):
            found.setdefault(int(cells[2], 16), set()).add(line)
    return found


def test_each_round_of_an_unrolled_loop_is_at_the_lines_that_the_program_has(
    data: bytes, page: SourceOfKernel
) -> None:
    (cubin,) = cubins(b"before it" + data + b"behind it")
    kernel = with_callers(page, [cubin])
    rows = pd.DataFrame(
        {"file": i.line[0], "line": i.line[1], "sass": i.sass, "instructions": i.instructions,
         "offset": i.address, "callers": " < ".join(f"{file}:{line}" for file, line in i.callers)}
        for i in kernel.instructions
    )  # fmt: skip
    halves = rows["sass"].str.match(r"(?:HADD2|HMUL2|HFMA2) ")
    lines = at_program(rows)[halves]
    assert set(lines["file"].str.rsplit("/").str[-1]) == {"wax_prints.cu"}
    found = Counter(lines["line"])
    # From the second round on, nvcc gives the __hfma of line 17 the line of those before it.
    assert (found[14], found[15], found[16] + found[17]) == (ROUNDS, ROUNDS, 3 * ROUNDS)
    unknown = Counter(at_program(rows.assign(callers=""))[halves]["line"])
    assert (unknown[14], unknown[15]) != (ROUNDS, ROUNDS)


def test_lines_are_those_that_ncu_names_where_it_does(
    data: bytes, page: SourceOfKernel, folder: Path
) -> None:
    (cubin,) = cubins(data)
    chains = inlined_lines(cubin)[KERNEL]
    begins, first = sorted(chains), page.instructions[0].address
    known = known_to_ncu(folder)
    assert len(known) > 30
    for address, lines in known.items():
        chain = chains[begins[bisect_right(begins, address - first) - 1]]
        assert lines == {line for file, line in chain if file.endswith("wax_prints.cu")}


def test_of_another_kernel_of_the_name_nothing_is_taken(data: bytes, page: SourceOfKernel) -> None:
    (cubin,) = cubins(data)
    other = {**cubin.sections, f".text.{KERNEL}": b"", ".debug_line": b""}
    assert with_callers(page, [Cubin(other, cubin.names)]) == page
    assert with_callers(page, []) == page
    kernel = with_callers(page, [Cubin(other, cubin.names), cubin])
    assert any(instruction.callers for instruction in kernel.instructions)


def test_a_file_that_is_cut_or_damaged_has_fewer_lines_and_no_error(data: bytes) -> None:
    assert list(cubins(b"")) == []
    (whole,) = cubins(data)
    table = whole.sections[".debug_line"]
    for at in range(0, len(data), 1999):
        list(cubins(data[:at]))
        list(cubins(data[:at] + b"\xff" * 8 + data[at + 8 :]))
    for at in range(0, len(table), 17):
        for damaged in (table[:at], table[:at] + b"\xff" + table[at + 1 :]):
            inlined_lines(Cubin({**whole.sections, ".debug_line": damaged}, whole.names))
