"""Waits before a measurement until the GPUs are as cool as the recipe asks."""

from __future__ import annotations

import time
from collections.abc import Callable

from nsight_prof.orchestrator.recipe.sections import WaitUntil
from nsight_prof.orchestrator.system.monitor import Source
from nsight_prof.parsers.run.sentences import stored

POLL_S = 1.0


def wait_until_cool(
    wanted: WaitUntil | None, source: Source | None, tell: Callable[[str], None]
) -> str:
    """Wait until no GPU is at `wanted.below` degrees Celsius or more; return why it was not met.

    "" where it was met or nothing is wanted. `tell` hears what it waits for.
    """
    if wanted is None:
        return ""
    asked = stored("wait_until (below {below:g} °C) was not met", below=wanted.below)
    end = time.monotonic() + wanted.timeout
    while True:
        rows = source() if source is not None else []
        known = [row["temperature_c"] for row in rows if row["temperature_c"] is not None]
        if not known:
            return stored("{asked}: no GPU tells its temperature", asked=asked)
        if max(known) < wanted.below:
            return ""
        remaining_s = end - time.monotonic()
        if remaining_s <= 0:
            return stored(
                "{asked}: a GPU was at {known:g} °C after {timeout:g} s; it was measured at "
                "that temperature",
                asked=asked,
                known=max(known),
                timeout=wanted.timeout,
            )
        tell(f"a GPU is at {max(known):g} °C, waiting until it is below {wanted.below:g} °C")
        time.sleep(min(POLL_S, remaining_s))
