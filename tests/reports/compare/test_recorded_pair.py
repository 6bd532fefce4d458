"""Matching on the recorded pair eager and compiled, whose kernels were told apart by hand."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from nsight_prof.reports.compare.answer import findings
from nsight_prof.reports.compare.comparison import compare
from nsight_prof.reports.compare.match import Launches, Row, match
from nsight_prof.reports.compare.sides import open_side

# What torch.compile made of the step: it moves the sums of the bias behind the products, takes
# the loss apart, and leaves products and optimizer as they are.
BY_HAND = {
    ("forward", "PyTorch gelu"): (30, {"Inductor gelu": 30}),
    ("forward", "PyTorch mse"): (30, {"Inductor mse loss": 30}),
    ("forward", "PyTorch mean"): (30, {"Inductor mse loss": 30}),
    ("backward", "PyTorch mse backward cuda"): (30, {"Inductor mse loss mse loss backward": 30}),
    ("backward", "PyTorch gelu backward"): (30, {"Inductor gelu gelu backward": 30}),
    ("backward", "PyTorch sum"): (60, {"Inductor sum": 120}),
    ("backward", "PyTorch fill"): (60, {"PyTorch fill": 30}),
}


def summed(parts: tuple[Launches, ...]) -> dict[str, int]:
    found: dict[str, int] = {}
    for part in parts:
        name = part.kernel.short_name.split(",")[0]
        found[name] = found.get(name, 0) + part.calls
    return found


@pytest.fixture(scope="module")
def rows(recorded_folder: Callable[[str], Path]) -> list[Row]:
    sides = [open_side(name, recorded_folder(f"compare/{name}")) for name in ("eager", "compiled")]
    return match(sides[0], sides[1], {})


def test_each_kernel_goes_where_it_went_by_hand(rows: list[Row]) -> None:
    found = {
        (row.stage, name): (calls, summed(row.b))
        for row in rows
        for name, calls in summed(row.a).items()
        if (row.stage, name) in BY_HAND
    }
    assert found == BY_HAND


def test_products_and_the_optimizer_stay_what_they_are(rows: list[Row]) -> None:
    rest = [row for row in rows if not {(row.stage, name) for name in summed(row.a)} & set(BY_HAND)]
    assert rest
    assert all(summed(row.a) == summed(row.b) for row in rest)


def test_steps_that_were_queued_compare_with_such(recorded_folder: Callable[[str], Path]) -> None:
    sides = [
        open_side(name, recorded_folder(f"compare/{name}")) for name in ("batch-8", "batch-64")
    ]
    queued = []
    for side in sides:
        rows = side.run.launches[side.run.launches["stage"] == "decode"].sort_values("start_ns")
        often = rows["kernel_id"].value_counts()
        once = often[often == 16].index[0]  # in each of 16 steps
        steps = np.diff(rows.loc[rows["kernel_id"] == once, "start_ns"])
        queued.append(float(np.median(steps[steps < 1.5 * steps.min()])))
    found = compare(sides[0], sides[1])
    (decode,) = (stage for stage in found.stages if stage.stage == "decode")
    changes = {change.key: change for change in decode.changes}
    assert changes["queued_step"].a == pytest.approx(queued[0], rel=0.01)
    assert changes["queued_step"].b == pytest.approx(queued[1], rel=0.01)
    assert changes["queued_step_per_unit"].ratio == pytest.approx(
        queued[1] / queued[0] / 8, rel=0.01
    )
    assert changes["host_step"].b is None  # all of its steps were queued
    assert [f.rule for f in findings(found)].count("queued") == 1
    eager = [open_side(name, recorded_folder(f"compare/{name}")) for name in ("eager", "compiled")]
    assert "queued" not in [
        f.rule for f in findings(compare(eager[0], eager[1]))
    ]  # all wait for the host
