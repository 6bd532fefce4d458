"""Choice of roofs from tables made by hand: times are such that values can be read off."""

import math
from typing import Any

import pandas as pd
import pytest

from nsight_prof.parsers.roofs.measured import MeasuredRoofs, choose_roofs
from nsight_prof.parsers.tables import check, tables

SMS = 132
CONFIRMED = {"counted_calls": 1, "counted_launches": 1}


def bench(*rows: dict[str, Any]) -> pd.DataFrame:
    defaults = {"status": "ok", "reason": "", "data": "normal", "n": 30, "processes": 3}
    defaults |= {"repeats": 1, "duration": "", "clock_hz": 1.98e9, "median_s": 1.0}
    names = [column.name for column in tables()["bench"]]
    full = []
    for place, row in enumerate(rows):
        time = row.get("median_s", 1.0)
        row = defaults | {"ci_low_s": 0.99 * time, "ci_high_s": 1.01 * time} | row
        of_its_own = {"case_id": f"case-{place}|cold|normal", "params": str(place)}
        full.append(of_its_own | row)
    return check(pd.DataFrame(full, columns=names), "bench")


def runs(**medians: list[float]) -> pd.DataFrame:
    names = [column.name for column in tables()["bench_runs"]]
    rows = [
        {"case_id": case_id.replace("_", "-") + "|cold|normal", "repeat": i + 1, "process": 1}
        | {"median_s": value}
        for case_id, values in medians.items()
        for i, value in enumerate(values)
    ]
    return check(pd.DataFrame(rows, columns=names), "bench_runs")


def chosen(*rows: dict[str, Any], **more: Any) -> MeasuredRoofs:
    return choose_roofs(bench(*rows), more.pop("bench_runs", runs()), SMS, **more)


def read(rate: float, counted: float | None = 1.0, **more: Any) -> dict[str, Any]:
    """A DRAM read of 4e12 B at `rate` B/s whose counters saw `counted` times its bytes."""
    counts = {} if counted is None else CONFIRMED | {"dram_bytes": counted * 4e12}
    return {"roof": "dram read", "bytes": 4e12, "median_s": 4e12 / rate} | counts | more


def test_the_fastest_confirmed_candidate_is_the_roof() -> None:
    found = chosen(read(4.5e12), read(4.62e12), read(9e12, counted=0.1), read(4.7e12, None)).roofs
    (row,) = found.to_dict("records")
    assert row["value"] == pytest.approx(4.62e12)
    assert row["case_id"] == "case-1|cold|normal"
    assert (row["candidates"], row["accepted"], row["is_ceiling"]) == (4, True, True)
    assert row["low"] == pytest.approx(4.62e12 / 1.01)
    assert row["high"] == pytest.approx(4.62e12 / 0.99)
    assert pd.isna(row["per_clock_sm"])  # DRAM has a clock of its own


def test_without_counters_the_fastest_is_used_and_says_so() -> None:
    (row,) = chosen(read(4.5e12, None), read(4.6e12, None)).roofs.to_dict("records")
    assert pd.isna(row["accepted"])
    assert row["is_ceiling"]
    assert "no launch" in row["reason"]


def test_a_contradicted_roof_is_kept_but_never_used() -> None:
    (row,) = chosen(read(9e12, counted=0.1)).roofs.to_dict("records")
    assert (row["accepted"], row["is_ceiling"]) == (False, False)


def test_the_largest_stream_is_the_ceiling_of_its_level() -> None:
    write = read(4.65e12) | {"roof": "dram write"}
    copy = read(4.1e12) | {"roof": "dram copy"}
    found = chosen(read(4.62e12), write, copy).roofs
    assert found.set_index("kind")["is_ceiling"].to_dict() == {
        "read": False,
        "write": True,
        "copy": False,
    }


def test_zeros_are_no_roof_where_real_data_was_measured() -> None:
    gemm = {"roof": "tensor bf16 burst", "flops": 1e12, **CONFIRMED, "counted_flops": 1e12}
    real, zeros = gemm | {"median_s": 1 / 786}, gemm | {"median_s": 1 / 882, "data": "zeros"}
    assert chosen(real, zeros).roofs["value"].tolist() == [pytest.approx(786e12)]
    assert chosen(zeros).roofs["value"].tolist() == [pytest.approx(882e12)]


def test_burst_and_steady_are_two_rows_and_the_larger_one_is_the_ceiling() -> None:
    gemm = {"flops": 1e12, **CONFIRMED, "counted_flops": 1e12}
    burst = gemm | {"roof": "tensor bf16 burst", "median_s": 1 / 805, "duration": "burst"}
    steady = gemm | {"roof": "tensor bf16 steady", "median_s": 1 / 700, "duration": "steady"}
    fp8 = gemm | {"roof": "tensor fp8 steady", "median_s": 1 / 1437}
    found = chosen(burst, steady, fp8).roofs
    assert found["is_ceiling"].tolist() == [True, False, True]
    assert found["dtype"].tolist() == ["bf16", "bf16", "fp8"]
    assert set(found["unit"]) == {"FLOP/s"}


def test_a_copy_that_no_counter_sees_is_shown_and_never_above_a_confirmed_roof() -> None:
    memcpy = read(4.9e12, None) | {"roof": "dram memcpy", **CONFIRMED, "dram_bytes": 0.0}
    found = chosen(read(4.62e12), memcpy).roofs.set_index("kind")
    assert pd.isna(found["accepted"]["memcpy"])
    assert "cudaMemcpy is none" in found["reason"]["memcpy"]
    assert found["value"]["memcpy"] == pytest.approx(4.9e12)
    assert found["is_ceiling"].to_dict() == {"read": True, "memcpy": False}


def test_traffic_of_an_idle_gpu_is_no_leak_of_a_slow_chase() -> None:
    counts = {"accesses": 65_536, "l2_bytes": 65_536 * 32.0, "l1_hit_pct": 0.0, "counted_s": 9e-3}
    l2 = {"roof": "l2 latency", "dram_bytes": 120e3, **counts, **CONFIRMED}
    alone: dict[str, Any] = {"roof": "shared latency", "accesses": 131_072, "counted_s": 1.5e-3}
    alone |= {"shared_memory_bytes": 131_072 * 4.0, "dram_bytes": 6_900.0}
    alone |= {"l1_bytes": 0.0, "l2_bytes": 0.0}
    assert chosen(l2).roofs["accepted"].tolist() == [False, False]
    both = chosen(l2, alone | CONFIRMED).roofs
    assert both["accepted"].tolist() == [True] * 4
    much = l2 | {"dram_bytes": 250e3}
    assert chosen(much, alone | CONFIRMED).roofs["accepted"].tolist() == [False, False, True, True]


def test_a_roof_of_the_l2_goes_by_the_clock_of_the_l2() -> None:
    top = limits("l2", "", 10.3e12, 1.71e9)
    l2 = {"roof": "l2 read", "bytes": 8e12, "l2_bytes": 8e12, "dram_bytes": 1.0, **CONFIRMED}
    found = chosen(l2, read(4.6e12), limits=top).roofs.set_index("level_or_pipe")
    assert found["l2_clock_hz"]["l2"] == 1.71e9
    assert pd.isna(found["l2_clock_hz"]["dram"])
    assert found["per_clock_sm"].isna().all()


def test_the_shortest_latency_is_the_roof_in_seconds_and_in_cycles() -> None:
    chase = {"roof": "l1 latency", "accesses": 1000, **CONFIRMED}
    counts = {"l1_bytes": 32_000.0, "l2_bytes": 100.0}
    found = chosen(chase | counts | {"median_s": 20e-6}, chase | counts | {"median_s": 17e-6}).roofs
    assert found["unit"].tolist() == ["s", "cycles"]
    assert found["value"].tolist() == [pytest.approx(17e-9), pytest.approx(17e-9 * 1.98e9)]
    assert found["low"].tolist()[0] == pytest.approx(0.99 * 17e-9)
    assert not found["is_ceiling"].any()


def test_rows_of_the_host_are_no_ceilings() -> None:
    copy = {"roof": "host h2d-pinned", "bytes": 5.5e10, "clock_hz": math.nan}
    launch = {"roof": "host launch", "launches": 2, "median_s": 4e-6}
    found = chosen(copy, launch).roofs
    assert found["value"].tolist() == [pytest.approx(5.5e10), pytest.approx(2e-6)]
    assert found["unit"].tolist() == ["B/s", "s"]
    assert not found["is_ceiling"].any()
    assert found["per_clock_sm"].isna().all()


def test_repeatability_is_the_spread_of_the_repeats() -> None:
    several = runs(case_0=[1.0, 1.02, 1.01])
    (row,) = chosen(read(4e12, repeats=3), bench_runs=several).roofs.to_dict("records")
    assert row["repeatability"] == pytest.approx(0.02 / 1.01)
    (row,) = chosen(read(4e12), bench_runs=runs(case_0=[1.0])).roofs.to_dict("records")
    assert math.isnan(row["repeatability"])


def test_a_roof_that_nothing_reached_says_why() -> None:
    failed = {"roof": "tensor fp4 burst", "status": "unsupported", "reason": "no fp4 here"}
    found = chosen(failed | {"median_s": math.nan}, read(4e12))
    assert found.gaps == (("tensor fp4 burst", "no fp4 here"),)
    assert found.roofs["level_or_pipe"].tolist() == ["dram"]


def limits(level: str, dtype: str, value: float, clock: float) -> pd.DataFrame:
    row = {"level_or_pipe": level, "dtype": dtype, "value": value, "unit": "", "detail": ""}
    return check(pd.DataFrame([row | {"source": "datasheet", "clock_hz": clock}]), "roofs")


def test_nothing_is_faster_than_the_chip_at_its_clock() -> None:
    top = limits("dram", "", 4.814e12, math.nan)
    found = chosen(read(5.5e12), read(4.6e12), limits=top).roofs
    assert found["value"].tolist() == [pytest.approx(4.6e12)]
    fma = {"roof": "fp32 fma", "flops": 40e12, "counted_flops": 40e12, **CONFIRMED}
    slow = fma | {"clock_hz": 0.99e9}
    peak = limits("fp32", "fp32", 256 * SMS * 1.98e9, 1.98e9)
    assert chosen(fma, limits=peak).roofs["accepted"].tolist() == [True]
    (row,) = chosen(slow, limits=peak).roofs.to_dict("records")
    assert row["accepted"] is False
    assert "120% of what the chip can do" in row["reason"]


def test_no_candidates_make_an_empty_table() -> None:
    assert chosen({"roof": "", "bytes": 1.0}).roofs.empty
