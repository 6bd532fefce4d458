"""Lines of Triton kernels that call functions of Triton's own modules."""

import lzma
from pathlib import Path

import pytest

from nsight_prof.parsers.cubin.triton_calls import calling_lines, embedded_texts

PROGRAM = "/tmp/eleventh-tree.ZGpd9l/tests/proof_programs/triton_paint_noise.py"
RANDOM = "/opt/torch/.venv/lib/python3.12/site-packages/triton/language/random.py"


@pytest.fixture
def texts(root: Path) -> dict[str, list[str]]:
    data = lzma.decompress((root / "tests/fixtures/cubin/triton_sources.xz").read_bytes())
    return embedded_texts(data, [PROGRAM, RANDOM, "/not/there.py"])


def test_texts_of_a_report_are_those_of_the_files(root: Path, texts: dict[str, list[str]]) -> None:
    program = (root / "tests/proof_programs/triton_paint_noise.py").read_text(encoding="utf-8")
    assert set(texts) == {PROGRAM, RANDOM}
    assert texts[PROGRAM] == program.splitlines()


def test_rounds_of_a_generator_are_of_the_line_that_draws(texts: dict[str, list[str]]) -> None:
    """`tl.rand` calls `randint`, this `randint4x` and this the rounds of lines 35 to 41."""
    kernel = [(PROGRAM, line) for line in (12, 14, 15, 16)]
    rounds = [(RANDOM, line) for line in (35, 41, 57, 142)]
    assert texts[PROGRAM][12].strip() == "noise = tl.rand(seed, at)"
    assert calling_lines([*kernel, *rounds], texts) == dict.fromkeys(rounds, (PROGRAM, 13))
    # Nobody knows whose they are where two lines draw, or the text is not at hand.
    twice = {**texts, PROGRAM: [*texts[PROGRAM]]}
    twice[PROGRAM][10] = "    first = tl.randint(seed, 0)"
    # Line 142 makes a number between 0 and 1 of an integer, for `tl.rand` alone.
    assert calling_lines([*kernel, *rounds], twice) == {(RANDOM, 142): (PROGRAM, 13)}
    assert calling_lines([*kernel, *rounds], {PROGRAM: texts[PROGRAM]}) == {}


def test_a_text_that_is_cut_off_is_no_error(root: Path) -> None:
    data = lzma.decompress((root / "tests/fixtures/cubin/triton_sources.xz").read_bytes())
    for end in range(0, len(data), 500):
        texts = embedded_texts(data[:end], [PROGRAM, RANDOM])
        calling_lines([(PROGRAM, 14), (RANDOM, 41), (RANDOM, 10**9)], texts)
