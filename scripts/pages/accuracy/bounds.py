"""Errors that this project asks of predictions, no lower than starts of one engine differ."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from functools import cache

from nsight_prof.parsers.predict.corrections import LONG_TOKENS
from scripts.pages.accuracy.captures import CASE, ROOT
from scripts.pages.host_floor import ADDED, SEVERAL, between_hosts
from scripts.pages.noise_floor import BOARDS, STARTS, distances, server_distances

KV, OPEN = "KV cache", "open, up to 80 % of the capacity"
REQUIRED = {
    KV: 0.02, "tpot": 0.03, "throughput": 0.05, "ttft, 1,000 tokens and more": 0.03,
    "ttft, fewer tokens": 0.08, "closed: throughput": 0.05, "closed: tpot": 0.05,
    "closed: ttft": 0.10, f"{OPEN}: tpot": 0.07,
    f"{OPEN}: ttft": 0.12, "capacity": 0.05,
}  # fmt: skip
"""Largest mean absolute error that this project asks of predictions from slices."""


def bound_words(what: str, mape: float, bounds: Mapping[str, float] = REQUIRED) -> str:
    """Return the required error, and whether it was missed; a dash where none is required.

    Where starts of one engine differ by more than that, the bound is a point more than they do.
    """
    return words_of(what, mape, bounds, _floors())


def unknown_host_words(
    what: str, mape: float, bounds: Mapping[str, float] = REQUIRED, group: str = ""
) -> str:
    """Return the same for a host that is not known: by how far the same engine differs on others.

    `group`: SEVERAL or ADDED, of engines over several GPUs, and of those with drafts or LoRA: where
    these have no floor of their own, that of one GPU counts.
    """
    return words_of(what, mape, bounds, unknown_floors(group))


def unknown_floors(group: str = "") -> Mapping[str, float]:
    """Return how far the same engine differs between hosts, by what is predicted of a group."""
    floors = dict(_floors())
    for name, floor in between_hosts(ROOT / "captures").items():
        kind, _, quantity = name.partition(": ")
        key = f"{OPEN}: {quantity}" if kind == "open" else name.removesuffix(group)
        if not key.endswith((SEVERAL, ADDED)):  # names are sorted: that of the group comes later
            floors[key] = floor.distance
    return floors


def words_of(
    what: str, mape: float, bounds: Mapping[str, float], floors: Mapping[str, float]
) -> str:
    """Return the required error with such floors, and whether it was missed."""
    bound = bounds.get(what)
    if bound is None:
        return "–"
    floor, words = floors.get(what, 0.0), f"{bound:.0%}"
    if floor > bound:
        bound = floor + 0.01
        words = f"{bound:.1%} (floor)"
    return f"{words}, missed" if mape > bound else words


@cache
def _floors() -> dict[str, float]:
    """Return how far a start of an engine lies from the true median, by what is predicted."""
    found: dict[str, list[float]] = defaultdict(list)
    for case, row in distances([ROOT / "captures" / board for board in BOARDS]).iterrows():
        sizes = CASE.fullmatch(str(case))
        assert sizes is not None, case
        long = int(sizes["batch"]) * int(sizes["prompt"]) >= LONG_TOKENS
        found["ttft, 1,000 tokens and more" if long else "ttft, fewer tokens"].append(row["ttft_s"])
        found["tpot"].append(row["tpot_s"])
    for _, row in server_distances([ROOT / "captures" / name for name in STARTS]).iterrows():
        for name in ("ttft", "tpot"):
            found[f"{OPEN}: {name}"].append(row[f"{name}_s"])
    return {what: sum(values) / len(values) for what, values in found.items()}
