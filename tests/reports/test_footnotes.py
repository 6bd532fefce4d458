"""Letters of cells that are not available."""

from nsight_prof.reports.page.frame import letters


def test_letters_go_on_after_z() -> None:
    assert [letters(n) for n in (0, 25, 26, 51, 52)] == ["a", "z", "aa", "az", "ba"]
