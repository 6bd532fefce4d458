"""What the rules made of planted defects before anybody had seen the recording.

Later scores of the same recording tell less: rules are mended on what they got wrong.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from nsight_prof.parsers.errors import ArtifactUnreadable
from scripts.pages.proof import Score, Verdict, score

NAME = "first_look.json"


@dataclass(frozen=True)
class FirstLook:
    """The score of a recording by the rules of a commit; `wrong` are pairs not all right."""

    commit: str
    score: Score
    wrong: dict[str, list[str]]


def first_look(judged: Sequence[Verdict], commit: str) -> FirstLook:
    """Return the first look of these verdicts, made by the rules of `commit` (its hash)."""
    wrong = {one.planted.name: failures(one) for one in judged}
    return FirstLook(commit, score(judged), {name: held for name, held in wrong.items() if held})


def failures(one: Verdict) -> list[str]:
    """Return which of "named", "gone", "priced" does not hold."""
    return [held for held in ("named", "gone", "priced") if not getattr(one, held)]


def look_at(judged: Sequence[Verdict], look: FirstLook) -> Score:
    """Return the score that a first look gave to some of its programs; `judged` says which."""
    wrong = [look.wrong.get(one.planted.name, []) for one in judged]
    held = {key: sum(key not in failed for failed in wrong) for key in ("named", "gone", "priced")}
    return Score(len(judged), **held)


def write_first_look(path: Path, look: FirstLook) -> None:
    """Write `first_look.json` into a recorded run.

    Raises:
        ArtifactUnreadable: it is there already. A second look is no first one.
    """
    to = path / NAME
    if to.exists():
        raise ArtifactUnreadable(
            f"{to} is there already: a second look is no first one",
            "record the programs anew for another first look",
        )
    to.write_text(json.dumps(asdict(look), indent=1) + "\n", encoding="utf-8")


def read_first_look(path: Path) -> FirstLook | None:
    """Return the first look of a recorded run; None where it has none.

    Raises:
        ArtifactUnreadable: the file is not what `write_first_look` writes.
    """
    file = path / NAME
    if not file.is_file():
        return None
    try:
        found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        return FirstLook(
            commit=str(found["commit"]),
            score=Score(**{name: int(value) for name, value in found["score"].items()}),
            wrong={name: list(held) for name, held in found["wrong"].items()},
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ArtifactUnreadable(
            f"{file} is no first look: {error}", "scripts/proof --first-look writes it"
        ) from error
