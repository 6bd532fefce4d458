import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from nsight_prof.parsers.bench.bench import BenchTables, bench_files, build_bench
from nsight_prof.parsers.bench.records import BenchRecords, parse_case
from nsight_prof.parsers.run.directory import Manifest, RunDir, StepRecord, write_manifest


def built(
    make: SimpleNamespace, *records: dict[str, Any], counters: pd.DataFrame | None = None
) -> BenchTables:
    processes = {(r["process"], r["repeat"]): None for r in records}
    conditions = tuple(make.conditions(*key) for key in processes)
    cases = tuple(parse_case(record) for record in records)
    return build_bench(BenchRecords(conditions, cases), counters=counters)


def only(tables: BenchTables) -> dict[str, Any]:
    (row,) = tables.bench.to_dict("records")
    return {str(k): v for k, v in row.items()}


def test_samples_of_all_processes_are_pooled(make: SimpleNamespace) -> None:
    random = np.random.default_rng(3)
    samples = [random.normal(1e-3, 1e-5, 12).round(9) for _ in range(3)]
    row = only(built(make, *(make.case(samples=s, process=i + 1) for i, s in enumerate(samples))))
    pooled = np.concatenate(samples)
    assert (row["n"], row["processes"], row["repeats"]) == (36, 3, 1)
    assert row["median_s"] == np.median(pooled)
    assert row["mean_s"] == pytest.approx(pooled.mean())
    assert row["std_s"] == pytest.approx(pooled.std(ddof=1))
    assert (row["p5_s"], row["p95_s"]) == tuple(np.percentile(pooled, [5, 95]))
    assert row["iqr_s"] == pytest.approx(np.subtract(*np.percentile(pooled, [75, 25])))
    assert row["bytes_per_s"] == 4e9 / np.median(pooled)
    medians = [np.median(s) for s in samples]
    assert row["process_spread"] == pytest.approx(np.ptp(medians) / np.median(medians))
    assert (row["status"], row["reason"]) == ("ok", "")


def test_rates_a_clock_need_the_clock(make: SimpleNamespace) -> None:
    clock = {"sm_hz_median": 2e9, "sm_hz_min": 2e9, "sm_hz_max": 2e9, "samples_hz": [2e9]}
    known = only(built(make, make.case(samples=[1e-3], clock=clock)))
    assert known["bytes_per_clock_sm"] == pytest.approx(4e9 / 1e-3 / 2e9 / 132)
    unknown = only(built(make, make.case(samples=[1e-3])))
    assert pd.isna(unknown["bytes_per_clock_sm"])
    assert pd.isna(unknown["flop_per_s"])


def test_a_latency_is_time_an_access(make: SimpleNamespace) -> None:
    work = {"flops": None, "bytes": None, "accesses": 1000, "launches": None}
    clock = {"sm_hz_median": 2e9, "sm_hz_min": 2e9, "sm_hz_max": 2e9, "samples_hz": [2e9]}
    row = only(built(make, make.case(samples=[30e-6], work=work, clock=clock)))
    assert row["latency_s"] == pytest.approx(30e-9)
    assert row["latency_cycles"] == pytest.approx(60)


def test_a_case_that_one_process_lost_is_ok_with_fewer_processes(make: SimpleNamespace) -> None:
    row = only(built(make, make.case(), make.failed("out of memory", "out-of-memory", process=2)))
    assert (row["status"], row["processes"]) == ("ok", 1)
    assert row["reason"] == "process 2: out-of-memory, out of memory"


def test_a_case_that_a_process_never_reached_says_so(make: SimpleNamespace) -> None:
    tables = built(make, make.case("a"), make.case("b"), make.case("a", process=2))
    reasons = dict(zip(tables.bench["name"], tables.bench["reason"], strict=True))
    assert reasons == {"a": "", "b": "process 2 has no record of it"}


def test_a_case_that_failed_everywhere_keeps_its_reasons(make: SimpleNamespace) -> None:
    row = only(built(make, make.failed("no fp8", "unsupported"), make.failed("no fp8", process=2)))
    assert (row["status"], row["reason"]) == ("unsupported", "no fp8")
    assert pd.isna(row["median_s"])
    assert pd.isna(row["n"])


def test_each_process_has_its_own_row(make: SimpleNamespace) -> None:
    tables = built(make, make.case(), make.case(samples=[2.0] * 8, process=2))
    runs = tables.bench_runs
    assert runs["process"].tolist() == [1, 2]
    assert runs["median_s"].tolist() == [1.1, 2.0]
    assert runs["ci_low_s"].isna().tolist() == [True, False]


def test_throttling_that_nothing_told_is_unknown(make: SimpleNamespace) -> None:
    throttle = {"power_s": 1.0, "thermal_s": 0.0, "reasons": ["sw_power_cap"], "samples": 2}
    told = make.case(throttle=throttle | {"known": True})
    assert only(built(make, told))["throttled_samples"] == 2
    assert only(built(make, told))["throttle_reasons"] == "sw_power_cap"
    blind = make.case(throttle=throttle | {"samples": 0, "reasons": [], "known": False})
    assert pd.isna(only(built(make, blind))["throttled_samples"])


def test_other_conditions_in_another_process_are_told(make: SimpleNamespace) -> None:
    one, other = make.conditions(1), make.conditions(2)
    other["software"] = {**other["software"], "driver": "590.2"}
    tables = build_bench(BenchRecords((one, other), (parse_case(make.case()),)))
    assert tables.problems == (
        "driver is not the same in all processes: 580.1 (process 1), 590.2 (process 2)",
    )


def test_parameters_are_sorted_json(make: SimpleNamespace) -> None:
    row = only(built(make, make.case(params={"unroll": 4, "block": 256})))
    assert row["params"] == '{"block": 256, "unroll": 4}'
    assert json.loads(row["params"]) == {"block": 256, "unroll": 4}


def test_counters_stand_beside_their_case(make: SimpleNamespace) -> None:
    counters = pd.DataFrame(
        {"dram_bytes": [4e9], "counted_launches": [1]}, index=["dram/read/u4|cold|normal"]
    )
    tables = built(make, make.case("a"), make.case(), counters=counters)
    assert tables.bench["dram_bytes"].isna().tolist() == [True, False]


def test_a_case_of_the_counting_run_alone_is_counted(make: SimpleNamespace) -> None:
    counted = parse_case(make.case("b", status="counted", time=None))
    measured = BenchRecords((make.conditions(),), (parse_case(make.case("a")),))
    bench = build_bench(measured, BenchRecords((make.conditions(),), (counted,))).bench
    assert bench["status"].tolist() == ["ok", "counted"]


def test_no_records_make_empty_tables() -> None:
    tables = build_bench(BenchRecords())
    assert tables.bench.empty
    assert tables.bench_runs.empty


def test_files_are_found_in_the_order_of_repeats_and_processes(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    step = StepRecord("bench", "a", directory="steps/1-bench")
    write_manifest(run, Manifest("r", "2026-11-21", {}, steps=[step]))
    folder = tmp_path / step.directory
    folder.mkdir(parents=True)
    for name in ("result-10-1.jsonl", "result-2-1.jsonl.xz", "result-2-1.jsonl", "stdout.log"):
        (folder / name).touch()
    assert [p.name for p in bench_files(run)] == ["result-2-1.jsonl", "result-10-1.jsonl"]
