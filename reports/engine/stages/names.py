"""Names of kinds of steps and activities as sentences take them."""

from __future__ import annotations

from nsight_prof.reports.page import Text, Value, Verbatim

KIND_NAMES = {"prefill": Text("prefill"), "mixed": Text("mixed"), "decode": Text("decode")}
"""Kinds of steps that compute something, in the order of a report."""
LIMITS = {"memory": Text("memory"), "arithmetic": Text("arithmetic")}
"""What limits a step."""
ACTIVITY_NAMES = {
    "gaps between queued operations": Text("gaps between queued operations"),
    "launch latency": Text("launch latency"),
    "scheduling": Text("scheduling"),
    "input preparation": Text("input preparation"),
    "launches of the forward pass": Text("launches of the forward pass"),
    "sampling": Text("sampling"),
    "detokenizing and outputs": Text("detokenizing and outputs"),
    "engine loop outside of named ranges": Text("engine loop outside of named ranges"),
    "worker outside of named ranges": Text("worker outside of named ranges"),
    "blocking CUDA call": Text("blocking CUDA call"),
}
"""What the host did while the GPU was idle, as table engine_gaps has it."""


def activity_name(activity: str) -> Value:
    """Return the name of what the host did; a range or call that has none as it is."""
    return ACTIVITY_NAMES.get(activity) or Verbatim(activity)
