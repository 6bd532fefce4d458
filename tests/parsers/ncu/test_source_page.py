"""Lines and instructions of ncu's source page."""

from pathlib import Path

from nsight_prof.parsers.ncu.source_page import parse_source_page, read_source_page


def test_each_instruction_counts_once_at_its_innermost_line(root: Path) -> None:
    (kernel,) = read_source_page(root / "tests/fixtures/ncu_csv/source.csv.xz")
    # Lines 10 and 11 both list the body of the loop: 77,186 and 77,068 of 77,423 samples.
    samples: dict[int, int] = {}
    for instruction in kernel.instructions:
        line = instruction.line[1]
        samples[line] = samples.get(line, 0) + (instruction.samples or 0)
    assert samples == {9: 17, 10: 120, 11: 77068, 12: 218}
    (add,) = [i for i in kernel.instructions if i.sass.startswith("DADD")]
    assert (add.line[1], max(add.stalls, key=add.stalls.__getitem__)) == (11, "long_sb")
    assert sum(i.sectors or 0 for i in kernel.instructions) == 33554432


def test_a_page_of_warnings_alone_has_no_kernel() -> None:
    warning = "==WARNING== No lineinfo available to show CUDA-C source related to 'gemm'."
    assert parse_source_page([warning]) == []
