"""The fit of turnarounds: known parameters come back within their intervals, over many seeds."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from nsight_prof.reports.studies.memory_patterns import turnaround as fits
from nsight_prof.reports.studies.memory_patterns.turnaround import (
    REFERENCE,
    Mixes,
    predict,
    slopes,
    solve,
)

GIB = float(1 << 30)
READ, WRITE = 4.62e12, 4.65e12
TURN, BATCH, COST = 2e-6, 40e6, 5e-14
RUNS = (512.0, 2.0**14, 2.0**17, 2.0**20, 2.0**23, 2.0**25, 2.0**26, 2.0**27, np.inf)


def drained(
    reads: Any, writes: Any, switches: Any, cost: float = 7e-14, power: float = 0.55
) -> Any:
    """Penalty of the model "drain" as its formula has it, with D of BATCH bytes."""
    count = np.maximum(switches, 1)
    kept = np.minimum(writes / count, BATCH)
    return switches * cost * (reads / count) ** power * kept ** (1 - power)


def mixes(kind: str, seed: int, *, noise: float = 0.002, turn: float = TURN) -> Mixes:
    """Times of 6 GiB in seven ratios at nine run lengths, with relative noise."""
    rows = [(6 * GIB, 0.0, 0.0), (0.0, 6 * GIB, 0.0)]
    for read, write in ((7, 1), (3, 1), (2, 1), (1, 1), (1, 2)):
        part = 6 * GIB / (read + write)
        rows += [(read * part, write * part, part / min(run, part)) for run in RUNS]
    reads, writes, switches = (np.array(column) for column in zip(*rows, strict=True))
    rarer = np.minimum(reads, writes)
    run = np.where(switches > 0, rarer / np.maximum(switches, 1), np.inf)
    extra = {
        "none": 0 * rarer,
        "switches": switches * turn,
        "mix": rarer * COST,
        "batched": rarer / np.maximum(run, BATCH) * turn,
        "drain": drained(reads, writes, switches),
    }[kind]
    exact = reads / READ + writes / WRITE + extra
    rng = np.random.default_rng(seed)
    seconds = exact * (1 + noise * rng.standard_normal(len(exact)))
    return Mixes(reads, writes, switches, seconds, noise * seconds)


TRUTH = {
    "switches": {"turnaround": 2e-10},
    "mix": {"mix_cost": COST},
    "batched": {"turnaround": TURN, "batch": BATCH, "mix_cost": TURN / BATCH},
    "drain": {
        "turnaround": float(drained(REFERENCE, 2 * BATCH, 1.0)),
        "batch": BATCH,
        "mix_cost": 7e-14,
        "exponent": 0.55,
    },
}


@pytest.mark.parametrize("kind", TRUTH)
def test_known_parameters_are_within_their_intervals(kind: str) -> None:
    truth = TRUTH[kind] | {"read_rate": READ, "write_rate": WRITE}
    seeds = 40
    within = dict.fromkeys(truth, 0)
    for seed in range(seeds):
        cases = mixes(kind, seed, turn=TRUTH[kind].get("turnaround", TURN))
        fitted = fits.fit(kind, cases, seed=seed, resamples=200)
        for name, value in truth.items():
            estimate = fitted.estimates[name]
            within[name] += estimate.low <= value <= estimate.high
    # 95 % intervals: 34 of 40 or fewer would come up once in 200 sets.
    assert min(within.values()) >= 35, within


@pytest.mark.parametrize("kind", TRUTH)
def test_the_model_that_made_the_data_wins(kind: str) -> None:
    turn = TRUTH[kind].get("turnaround", TURN)
    fitted = fits.fit_all(mixes(kind, 5, turn=turn), resamples=20)
    assert fitted[0].model == kind
    assert fitted[0].left_out_error == min(one.left_out_error for one in fitted)
    assert fitted[0].error == pytest.approx(0.002, rel=0.5)


def test_without_a_penalty_the_interval_of_a_turnaround_includes_zero() -> None:
    seeds = 20
    includes = 0
    for seed in range(seeds):
        estimate = fits.fit("switches", mixes("none", seed), resamples=200).estimates["turnaround"]
        includes += estimate.low <= 0 <= estimate.high
    assert includes >= 17


def test_without_noise_the_parameters_are_exact() -> None:
    fitted = fits.fit("batched", mixes("batched", 0, noise=1e-9), resamples=50)
    assert fitted.estimates["turnaround"].value == pytest.approx(TURN, rel=1e-4)
    assert fitted.estimates["batch"].value == pytest.approx(BATCH, rel=1e-4)
    assert fitted.estimates["read_rate"].value == pytest.approx(READ, rel=1e-5)
    assert fitted.estimates["write_rate"].value == pytest.approx(WRITE, rel=1e-5)


def test_the_batched_solution_is_the_best_of_a_grid_search() -> None:
    cases = mixes("batched", 3, noise=0.01)
    weights = 1 / cases.sigma**2
    found = solve("batched", cases, weights[None, :])

    def loss(batch: float) -> float:
        design = np.stack(
            [cases.reads, cases.writes, cases.rarer / np.maximum(cases.run, batch)], axis=1
        )
        root = np.sqrt(weights)
        beta, *_ = np.linalg.lstsq(design * root[:, None], cases.seconds * root, rcond=None)
        return float((weights * (cases.seconds - design @ beta) ** 2).sum())

    searched = min(loss(batch) for batch in np.geomspace(1e3, 3e9, 2000))
    assert found.loss[0] <= searched * (1 + 1e-9)
    assert found.loss[0] == pytest.approx(loss(float(found.quantities["batch"][0])), rel=1e-6)


def test_the_drain_has_the_slopes_of_its_formula() -> None:
    cases = mixes("drain", 1)
    weights = (1 / cases.sigma**2)[None, :]
    found = solve("drain", cases, weights)
    analytic = slopes(cases, found)
    for column in (2, 3, 4):
        change = 1e-6 * abs(found.beta[0, column])
        moved = replace(found, beta=found.beta + change * np.eye(5)[column])
        numeric = (predict(cases, moved) - predict(cases, found)) / change
        assert analytic[:, column] == pytest.approx(numeric, rel=1e-3, abs=1e-9 * numeric.max())


def test_the_drain_without_noise_is_exact() -> None:
    fitted = fits.fit("drain", mixes("drain", 0, noise=1e-9), resamples=20)
    for name, value in TRUTH["drain"].items():
        assert fitted.estimates[name].value == pytest.approx(value, rel=1e-3)


def test_linear_fits_agree_with_numpy() -> None:
    cases = mixes("mix", 2)
    fitted = fits.fit("mix", cases, resamples=20)
    root = 1 / cases.sigma
    design = np.stack([cases.reads, cases.writes, cases.rarer], axis=1) * root[:, None]
    beta, *_ = np.linalg.lstsq(design, cases.seconds * root, rcond=None)
    assert [
        1 / fitted.estimates["read_rate"].value,
        1 / fitted.estimates["write_rate"].value,
        fitted.estimates["mix_cost"].value,
    ] == (pytest.approx(list(beta), rel=1e-8))


def test_too_few_cases_are_refused_and_left_out() -> None:
    few = mixes("mix", 0)
    some = Mixes(*(getattr(few, name)[:5] for name in few.__dataclass_fields__))
    with pytest.raises(ValueError, match="too few"):
        fits.fit("mix", some)
    assert [one.model for one in fits.fit_all(some, resamples=10)] == ["none"]
    pure = Mixes(*(getattr(few, name)[:2] for name in few.__dataclass_fields__))
    assert fits.fit_all(pure) == []
