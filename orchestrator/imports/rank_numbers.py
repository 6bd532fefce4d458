"""Reads the rank of each trace of a job from the names of the files."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from nsight_prof.parsers.errors import UsageError
from nsight_prof.parsers.run.directory import MOST_RANKS

# rank3, rank_03, global-rank.3; not local_rank3, which each node has.
_NAMED = re.compile(r"(?<![a-z])(?:global[-_.]?)?rank[-_.=]?(\d+)", re.IGNORECASE)
_LOCAL = re.compile(r"local[-_.]?rank[-_.=]?\d+", re.IGNORECASE)
_NUMBER = re.compile(r"\d+")
TOO_LARGE = 1024
"""Numbers from here on are processes or jobs, unless the name calls them a rank."""


@dataclass(frozen=True)
class RankNumbers:
    """The rank of each file, in the order of the files; `basis` says where they are from."""

    numbers: tuple[int, ...]
    basis: str


def number_ranks(names: Sequence[str]) -> RankNumbers:
    """Return the ranks of the files called `names` (with folders where only these differ).

    "rank3" in every name; else the one number in which the names differ, as `%q{SLURM_PROCID}`
    leaves them (job.3, 3/trace; job_77_node1_3 counts where 3 runs from 0); else the order.

    Raises:
        UsageError: two names have one rank.
    """
    candidates = [_NAMED.findall(_LOCAL.sub("", name)) for name in names]
    if all(len(set(found)) == 1 for found in candidates):
        numbers = tuple(int(found[0]) for found in candidates)
        _check(numbers, names)
        if max(numbers) >= MOST_RANKS:
            raise UsageError(
                f"{names[numbers.index(max(numbers))]} is of rank {max(numbers)}",
                f"name the files by ranks below {MOST_RANKS:,}",
            )
        return RankNumbers(numbers, "the files' names (rank…)")
    column = _column(names)
    if column is not None:
        return RankNumbers(column, "the number in which the files' names differ")
    return RankNumbers(tuple(range(len(names))), "the order in which the files were given")


def _check(numbers: Sequence[int], names: Sequence[str]) -> None:
    first: dict[int, str] = {}
    for number, name in zip(numbers, names, strict=True):
        if number in first:
            raise UsageError(
                f"two files are of rank {number}: {first[number]} and {name}",
                "give one trace for each rank; files of two jobs go into two runs",
            )
        first[number] = name


def _column(names: Sequence[str]) -> tuple[int, ...] | None:
    """Return the number that tells the names apart, where they differ in numbers alone."""
    if len({_NUMBER.sub("#", name) for name in names}) != 1:
        return None
    columns = [tuple(map(int, c)) for c in zip(*map(_NUMBER.findall, names), strict=True)]
    distinct = [c for c in columns if len(set(c)) == len(names) and max(c) < TOO_LARGE]
    if len(distinct) == 1:
        return distinct[0]
    counted = [column for column in distinct if sorted(column) == list(range(len(names)))]
    return counted[0] if len(counted) == 1 else None
