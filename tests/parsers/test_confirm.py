"""Rules of confirmation, on counts made by hand: one call of 1e9 bytes or FLOPs."""

from typing import Any

import pandas as pd
import pytest

from nsight_prof.parsers.bench.records import RoofKey
from nsight_prof.parsers.roofs.confirm import confirm, verdict_name

WORK = 1e9
DRAM, L2, L1 = RoofKey("dram", "", "read"), RoofKey("l2", "", "read"), RoofKey("l1", "", "read")
SHARED = RoofKey("shared", "", "read")
FP32, TENSOR = RoofKey("fp32", "fp32", "fma"), RoofKey("tensor", "bf16", "burst")
CHASE = {"bytes": None, "accesses": 1000}
AT_L2 = {"l2_bytes": WORK, "dram_bytes": 0.001 * WORK, "l1_hit_pct": 0.0}


def row(**counts: Any) -> dict[str, Any]:
    return {"counted_calls": 1, "counted_launches": 1, "bytes": WORK, "flops": WORK} | counts


@pytest.mark.parametrize(
    ("key", "counts", "accepted", "words"),
    [
        (DRAM, {"dram_bytes": 1.04 * WORK}, True, "DRAM moved 1.040 times"),
        (DRAM, {"dram_bytes": 1.06 * WORK}, False, "DRAM moved 1.060 times"),
        (DRAM, {"dram_bytes": 0.3 * WORK}, False, "wanted within 5%"),
        (L2, AT_L2, True, "DRAM 0.10% of that"),
        (L2, AT_L2 | {"dram_bytes": 0.03 * WORK}, False, "DRAM 3.00% of that, wanted at most 2%"),
        (L2, AT_L2 | {"l2_bytes": 0.5 * WORK}, False, "L2 moved 0.500 times"),
        (L2, AT_L2 | {"l2_bytes": 0.97 * WORK}, False, "wanted 0.98 to 1.05"),
        (L2, AT_L2 | {"l1_hit_pct": 40.0}, False, "L1 hits 40.0 %"),
        (L2, AT_L2 | {"l1_hit_pct": float("nan")}, True, "L2 moved 1.000 times"),
        (L1, {"l1_bytes": WORK, "l2_bytes": 0.001 * WORK}, True, "L2 0.10% of that"),
        (L1, {"l1_bytes": WORK, "l2_bytes": 0.5 * WORK}, False, "L2 50.00% of that"),
        (FP32, {"counted_flops": 1.01 * WORK}, True, "1.010 times the FLOPs"),
        (FP32, {"counted_flops": 0.5 * WORK}, False, "0.500 times the FLOPs"),
        (TENSOR, {"counted_flops": 1.09 * WORK}, True, "1.090 times 2MNK"),
        (TENSOR, {"counted_flops": 0.9 * WORK}, False, "0.900 times 2MNK"),
        (TENSOR, {"counted_flops": 1.2 * WORK}, False, "tiles pad"),
    ],
)
def test_a_roof_is_believed_by_its_counters(
    key: RoofKey, counts: dict[str, Any], accepted: bool, words: str
) -> None:
    verdict = confirm(row(**counts), key)
    assert verdict.accepted is accepted
    assert words in verdict.reason
    assert verdict_name(verdict.accepted) == ("confirmed" if accepted else "contradicted")


@pytest.mark.parametrize("level", ["l1_bytes", "l2_bytes", "dram_bytes"])
def test_shared_memory_must_be_alone(level: str) -> None:
    quiet = dict.fromkeys(("l1_bytes", "l2_bytes", "dram_bytes"), 1000.0)
    counts = {"shared_memory_bytes": WORK} | quiet
    assert confirm(row(**counts), SHARED).accepted is True
    assert confirm(row(**counts | {level: 0.1 * WORK}), SHARED).accepted is False


def test_hits_in_l1_say_nothing_of_writes() -> None:
    key = RoofKey("l2", "", "write")
    assert confirm(row(**AT_L2 | {"l1_hit_pct": 99.0}), key).accepted is True


def test_a_chase_must_reach_its_level_at_every_access() -> None:
    key = RoofKey("dram", "", "latency")
    assert confirm(row(**CHASE, dram_read_bytes=64_000.0), key).accepted is True
    assert confirm(row(**CHASE, dram_read_bytes=3_000.0), key).accepted is False
    key = RoofKey("l2", "", "latency")
    found = confirm(row(**CHASE, l2_bytes=32_000.0, dram_bytes=100.0, l1_hit_pct=0.0), key)
    assert found.accepted is True
    assert "1.000 times the accesses" in found.reason
    key, counts = RoofKey("l1", "", "latency"), {"l1_bytes": 32_000.0, "l2_bytes": 9_000.0}
    assert confirm(row(**CHASE, **counts, l1_hit_pct=99.8), key).accepted is True
    assert confirm(row(**CHASE, **counts, l1_hit_pct=90.0), key).accepted is False
    assert confirm(row(**CHASE, **counts), key).accepted is False  # by bytes, where nothing else


def test_a_chase_in_shared_memory_is_alone_by_sectors() -> None:
    key = RoofKey("shared", "", "latency")
    counts = {"shared_memory_bytes": 4_100.0, "l1_bytes": 500.0, "l2_bytes": 500.0}
    assert confirm(row(**CHASE, **counts, dram_bytes=600.0), key).accepted is True
    assert confirm(row(**CHASE, **counts, dram_bytes=700.0), key).accepted is False


def test_several_counted_calls_are_of_one_call_each() -> None:
    counts = {"counted_calls": 3, "counted_launches": 3, "dram_bytes": 3 * WORK}
    assert confirm(row(**counts), DRAM).accepted is True


@pytest.mark.parametrize(
    ("key", "changes", "words"),
    [
        (DRAM, {"counted_launches": None, "counted_calls": None}, "profiled no launch"),
        (DRAM, {"counted_launches": pd.NA}, "profiled no launch"),
        (DRAM, {"dram_bytes": float("nan")}, "DRAM traffic is not known"),
        (FP32, {}, "FLOPs is not known"),
        (L2, {"l2_bytes": 0.0, "dram_bytes": 0.0}, "L2 traffic is not known"),
        (RoofKey("host", "", "h2d-pinned"), {"dram_bytes": WORK}, "do not see the host"),
    ],
)
def test_what_counters_cannot_tell_stays_open(
    key: RoofKey, changes: dict[str, Any], words: str
) -> None:
    verdict = confirm(row(**changes), key)
    assert verdict.accepted is None
    assert verdict_name(verdict.accepted) == "not confirmed"
    assert words in verdict.reason
