"""Instructions that the line table of a kernel gives another line than the one they work for."""

from nsight_prof.parsers.build.source_tables import at_divisions
from nsight_prof.parsers.ncu.source_page import Instruction

TEXT = """
__global__ void restore(const float *seen, float *out, Film film) {
    if (at >= film.size()) return;  // of all / a piece
    long long line = at / film.cols, plane = line / film.rows;
    long long colour = plane % film.colours;
    out[at] = seen[at] * film.weights[colour];
}
""".splitlines()
FILE, GUARD, DIVIDES, STORE = "/a/film.cu", 3, 4, 6


def lines(*rows: tuple[str, int], file: str = FILE) -> list[int]:
    instructions = [
        Instruction(16 * at, sass, (file, line), 1, 32, 0, 0, 0, 0, {})
        for at, (sass, line) in enumerate(rows)
    ]
    return [i.line[1] for i in at_divisions(instructions, {file: TEXT})]


def test_a_division_that_has_no_line_is_at_the_next_one_that_divides() -> None:
    """As nvcc 13.0 has 64-bit divisions of film_frames.cu, at the guard before them."""
    guard, store = ("@P0 EXIT", GUARD), ("STG.E [R2.64], R5", STORE)
    divides = "I2F.U32.RP R0, UR10"
    assert lines(guard, (divides, GUARD), store) == [GUARD, DIVIDES, STORE]
    # What divides has instructions, and hence a line; or nothing between does.
    known = ("IMAD R3, R4, R5, R6", DIVIDES)
    assert lines(guard, (divides, GUARD), known, store) == [GUARD, GUARD, DIVIDES, STORE]
    assert lines((divides, STORE), ("EXIT", STORE + 1)) == [STORE, STORE + 1]
    assert lines((divides, DIVIDES), store) == [DIVIDES, STORE]
    assert lines(guard, (divides, GUARD), store, file="/a/film.py") == [GUARD, GUARD, STORE]
