"""A foreach Adam of a recorded training run, whose repair was measured."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.verdicts.ranking import findings
from tests.reports.programs import amounts

PARAMETERS = 2 * (4096 * 4096 + 4096)
"""Of two layers of 4,096, in bf16; ten steps, each with two moments of as many numbers."""


def test_a_fused_adam_saves_what_was_measured(recorded_run_of: Callable[[str], Run]) -> None:
    found = findings(recorded_run_of("stories/train-mlp"))
    (passes,) = [finding for finding in found if finding.rule == "optimizer_passes"]
    needed = amounts(passes)["of these needed by a fused kernel"]
    assert needed == pytest.approx(10 * 7 * PARAMETERS * 2, rel=0.01)
    assert passes.gain_program == pytest.approx(0.202, rel=0.3)  # 15.7 to 12.6 ms, 8 pairs
    chained = {key for f in found if f.rule == "elementwise_chain" for key in f.kernel_ids}
    assert not chained & set(passes.kernel_ids)
