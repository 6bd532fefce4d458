"""Letters of cells that are not available."""

import dataclasses

from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.page.frame import letters
from nsight_prof.reports.profile.view_models import MissingValue
from nsight_prof.reports.profile.views import report_view
from nsight_prof.reports.render.footnotes import Footnotes


def test_the_same_reason_has_the_same_letter(run: Run) -> None:
    kernel = dataclasses.replace(
        report_view(run).kernels[0],
        missing=(
            MissingValue("a_pct", "too old"),
            MissingValue("b_pct", "too old"),
            MissingValue("c", "other: x"),
        ),
    )
    notes = Footnotes()
    assert notes.mark("12 %", kernel, "a_pct") == "12 %"
    assert notes.mark("n/a", kernel, "b_pct") == "n/a (a)"
    assert notes.mark("n/a", kernel, "a_pct") == "n/a (a)"
    assert notes.mark("n/a", kernel, "c") == "n/a (b)"
    assert notes.mark("n/a", kernel, "unknown") == "n/a"
    assert notes.take() == [("a", "too old"), ("b", "other: x")]
    assert notes.take() == []


def test_letters_go_on_after_z() -> None:
    assert [letters(n) for n in (0, 25, 26, 51, 52)] == ["a", "z", "aa", "az", "ba"]
