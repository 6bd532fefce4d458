"""A number of a recorded run that changes, or is gone, is found; none is without a golden."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from scripts import goldens
from tests.recorded import REPLAYED


def test_every_recorded_run_has_its_numbers_kept_and_nothing_else_is() -> None:
    names = goldens.recorded()
    assert {goldens.golden(name) for name in names} == set(goldens.GOLDENS.iterdir())
    assert all(goldens.kept(name) for name in names)


@pytest.mark.parametrize("name", REPLAYED)
def test_a_replay_gives_the_numbers_that_are_kept(replay: Callable[[str], Path], name: str) -> None:
    metrics = replay(name.removeprefix("h200-")) / "report" / "metrics.json"
    found = goldens.numbers(json.loads(metrics.read_text(encoding="utf-8")))
    # A replay starts no command that could take seconds.
    lines = goldens.differences(name, found)
    of_commands = ("/method/commands/", "/trust/tables/commands/")
    assert [line for line in lines if not line.startswith(of_commands)] == []


def test_numbers_go_by_the_identity_of_what_they_are_of() -> None:
    cases = [{"case_id": "a b", "median_s": 1.5, "ok": True}, {"case_id": "c", "median_s": 2}]
    data = {"bench": cases, "ranges": [[1, None], ["x", 2.0]]}
    expected = {"/bench/a b/median_s": 1.5, "/bench/c/median_s": 2, "/ranges/0/0": 1,
                "/ranges/1/1": 2.0}  # fmt: skip
    assert goldens.numbers(data) == expected
    assert goldens.numbers({"bench": cases[::-1]})["/bench/c/median_s"] == 2
    twice = [{"name": "a", "n": 1}, {"name": "a", "n": 2}]
    assert goldens.numbers(twice) == {"/0/n": 1, "/1/n": 2}


def test_what_is_other_or_gone_is_listed_and_what_is_new_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(goldens, "GOLDENS", tmp_path)
    whole = {"/a b": 1 / 3, "/c": 0.0, "/d": 12345678901234}
    goldens.keep("of/one", whole)
    assert goldens.differences("of/one", whole | {"/new": 1.0}) == []
    assert goldens.differences("of/one", {"/a b": 1 / 3 + 1e-12, "/c": 0, "/d": whole["/d"]}) == []
    changed = goldens.differences("of/one", {"/a b": 0.3333333, "/c": 0.0})
    assert [line.partition(":")[0] for line in changed] == ["/a b", "/d"]
    assert changed[1].endswith("missing")
