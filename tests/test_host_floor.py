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
from scripts.pages.host_floor import Hosts, between_hosts, measured

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


def test_a_point_of_two_hosts_is_half_of_their_difference_from_its_middle(root: Path) -> None:
    captures = root / "captures" / "prediction"
    runs = [captures / f"baseline-gemma-3-12b-h100{end}" for end in ("", "-again")]
    values = [float(np.median(first_tokens(run))) for run in runs]
    found = [
        item for item in measured(root / "captures")
        if item.engine.startswith("baseline-gemma") and item.case == CASE and "ttft" in item.what
    ]  # fmt: skip
    assert [item.what for item in found] == ["ttft, fewer tokens"]
    assert sorted(found[0].values) == pytest.approx(sorted(values))
    assert found[0].distance == pytest.approx(abs(values[0] - values[1]) / sum(values))


def test_three_hosts_are_held_against_the_middle_one() -> None:
    assert Hosts("", "", "", (0.9, 1.0, 1.3)).distance == pytest.approx(0.4 / 3)


def test_starts_on_one_host_are_no_pair_and_several_gpus_stand_alone(root: Path) -> None:
    engines = {item.engine for item in measured(root / "captures")}
    assert any("-tp2" in engine for engine in engines)
    kinds = between_hosts(root / "captures")
    assert kinds["ttft, fewer tokens, several GPUs"][2] == 2
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
    floor = between_hosts(root / "captures")["open: ttft"][0]
    assert f"{floor + 0.01:.1%} (floor)" == unknown_host_words(what, 0.0)
    assert unknown_host_words(what, floor + 0.02).endswith("missed")
    assert bound_words("ttft, fewer tokens", 0.115).endswith("missed")
    assert not unknown_host_words("ttft, fewer tokens", 0.115).endswith("missed")
    assert unknown_host_words("tpot", 0.02) == "3%"
