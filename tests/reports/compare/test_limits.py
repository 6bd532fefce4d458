"""Rules of --fail-on about what a run does not tell, and about what is no time."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from nsight_prof.parsers.errors import UsageError
from nsight_prof.reports.compare.changes import Comparison
from nsight_prof.reports.compare.comparison import compare
from nsight_prof.reports.compare.limits import check_limits, parse_limit
from nsight_prof.reports.compare.sides import Side
from tests.reports.compare.conftest import Launch

Maker = Callable[..., Side]
KERNEL = Launch("decode", "gemm_kernel", "8x1x1", 1000.0)


def state(rule: str, view: Comparison) -> str:
    return check_limits([parse_limit(rule)], view)[0].state


@pytest.fixture
def view(make_run: Maker) -> Comparison:
    return compare(make_run("A", [KERNEL] * 9), make_run("B", [KERNEL] * 9))


def test_what_was_not_measured_keeps_no_limit(view: Comparison) -> None:
    """Without the wall time of B nobody knows whether it is below 20 ms."""
    totals = [replace(c, b=None, ratio=None) if c.key == "wall_time" else c for c in view.totals]
    blind = replace(view, totals=tuple(totals))
    assert state("wall_time<20ms", view) == "broken"  # it is 11 us
    for rule in ("wall_time>20ms", "wall_time>+5%", "wall_time>+2ms"):
        assert state(rule, view) == "kept"
        with pytest.raises(UsageError, match="names nothing that both runs know"):
            state(rule, blind)


def test_a_count_has_no_unit_of_time(view: Comparison) -> None:
    assert state("launches>8", view) == "broken"
    with pytest.raises(UsageError, match="launches is no time"):
        state("launches>8ms", view)
