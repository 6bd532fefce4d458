"""How far the same engine differs between hosts, of recorded runs."""

from __future__ import annotations

import json
import lzma
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from scripts.pages import noise_floor
from scripts.pages.accuracy import bounds
from scripts.pages.accuracy.bounds import bound_words, unknown_host_words
from scripts.pages.host_floor import ADDED, SEVERAL, Hosts, between_hosts, measured, missed

CASE = "lengths/cuda-graphs/b1/p200/o100"


def first_tokens(run: Path) -> list[float]:
    (file,) = run.glob("steps/*/result-*.jsonl.xz")
    with lzma.open(file, "rt") as lines:
        records = [json.loads(line) for line in lines]
    return [
        record["first_token_s"] - record["arrival_s"]
        for record in records
        if record["record"] == "request" and record["case"] == CASE
    ]


def test_two_hosts_differ_by_sqrt_2_times_what_one_is_off_the_true_median(root: Path) -> None:
    captures = root / "captures" / "prediction"
    runs = [captures / f"baseline-gemma-3-12b-h100{end}" for end in ("", "-again")]
    values = [float(np.median(first_tokens(run))) for run in runs]
    found = [
        item for item in measured(root / "captures")
        if item.engine.startswith("baseline-gemma") and item.case == CASE and "ttft" in item.what
    ]  # fmt: skip
    assert [item.what for item in found] == ["ttft, fewer tokens"]
    assert sorted(sum(found[0].values, ())) == pytest.approx(sorted(values))
    middle = sum(values) / 2
    assert found[0].distance == pytest.approx(abs(values[0] - values[1]) / 2**0.5 / middle)


@pytest.mark.parametrize("starts", [2, 3, 4, 7])
def test_the_floor_has_no_bias_however_few_starts_there_are(starts: int) -> None:
    chance = np.random.default_rng(starts)
    drawn = 1 + 0.1 * chance.standard_normal((4000, starts))
    off = np.mean([missed([[value] for value in engine]) for engine in drawn.tolist()])
    assert off == pytest.approx(0.1 * (2 / np.pi) ** 0.5, rel=0.03)


def test_starts_on_one_host_are_compared_with_those_of_others_alone() -> None:
    assert missed([[1.0, 1.2], [1.1]]) == pytest.approx(0.1 / 2**0.5 / 1.1)
    point = Hosts("", "", "", ((0.9,), (1.0,), (1.3,)))
    assert point.distance == pytest.approx((0.1 + 0.3 + 0.4) / 3 / 2**0.5)


def test_starts_on_one_host_are_no_pair_and_several_gpus_stand_alone(root: Path) -> None:
    engines = {item.engine for item in measured(root / "captures")}
    assert any("-tp2" in engine for engine in engines)
    kinds = between_hosts(root / "captures")
    assert len(kinds["ttft, fewer tokens, several GPUs"].starts) == 2
    assert not any("qwen3-32b" in engine for engine in engines), "it ran on one host alone"


def test_a_host_that_is_not_known_is_asked_no_more_than_hosts_differ(
    root: Path, recorded_folder: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def of_tables_made(function: Callable[..., object], runs: list[Path]) -> object:
        captures = root / "captures"
        return function([recorded_folder(str(run.relative_to(captures))) for run in runs])

    for name in ("distances", "server_distances"):  # else tables are made in copies of the runs
        monkeypatch.setattr(bounds, name, partial(of_tables_made, getattr(noise_floor, name)))
    what = "open, up to 80 % of the capacity: ttft"
    floors = between_hosts(root / "captures")
    floor = floors["open: ttft"].distance
    assert f"{floor + 0.01:.1%} (floor)" == unknown_host_words(what, 0.0)
    assert unknown_host_words(what, floor + 0.02).endswith("missed")
    short = "ttft, fewer tokens"
    assert bound_words(short, 0.15).endswith("missed")
    for group in ("", SEVERAL, ADDED):
        own = floors[short + group].distance
        assert f"{own + 0.01:.1%} (floor)" == unknown_host_words(short, own, group=group)
    assert unknown_host_words("tpot", 0.02) == "3%"


def test_open_loops_beyond_what_is_asked_are_in_no_floor(root: Path) -> None:
    rates = {item.case for item in measured(root / "captures") if item.what.startswith("open")}
    assert "open/r35/p512/o128" in rates
    assert "open/r40/p512/o128" not in rates, "84.4 % of the capacity of Llama-3.1-8B's server"


def test_an_interval_holds_the_floor_and_needs_several_engines(root: Path) -> None:
    floors = between_hosts(root / "captures")
    short = floors["ttft, fewer tokens"]
    assert short.low < short.distance < short.high
    of_one = [floor.low for floor in floors.values() if len(floor.starts) == 1]
    assert of_one
    assert np.isnan(of_one).all(), "one engine"
