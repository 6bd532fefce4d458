"""How a column is taken from its sources, and what is said where none gives it."""

import pandas as pd

from nsight_prof.parsers.metrics.catalogue import catalogue
from nsight_prof.parsers.metrics.columns import Evaluated, evaluate


def evaluated(chip: str = "GH100", **metrics: list[float]) -> Evaluated:
    names = {name.replace("___", "."): values for name, values in metrics.items()}
    rows = len(next(iter(names.values())))
    wide = pd.DataFrame(names, index=pd.Index([f"k{i}" for i in range(rows)], name="kernel_id"))
    return evaluate(wide.astype("float64"), chip, catalogue())


def reasons(found: Evaluated, column: str) -> dict[str | None, str]:
    return {hole.row: hole.reason for hole in found.holes if hole.column == column}


NAN = float("nan")


def test_each_row_takes_the_first_source_that_knows_it() -> None:
    found = evaluated(
        gpu__time_duration___sum=[10.0, NAN, NAN],
        gpu__time_duration___avg=[11.0, 12.0, NAN],
    )
    assert found.values["duration_ns"].tolist()[:2] == [10, 12]
    assert reasons(found, "duration_ns") == {"k2": "ncu has no value for gpu__time_duration.sum"}


def test_an_approximation_is_flagged_where_it_is_used() -> None:
    found = evaluated(
        lts__t_sectors_srcunit_tex___sum=[1.0, NAN],
        lts__t_bytes___sum=[100.0, 100.0],
    )
    assert found.values["l2_bytes"].tolist() == [32, 100]
    assert list(reasons(found, "l2_bytes")) == ["k1"]


def test_a_final_source_is_not_overruled_by_a_later_one() -> None:
    found = evaluated(
        l1tex__t_sector_hit_rate___pct=[50.0],
        l1tex__t_bytes___sum=[1.0],
        l1tex__m_xbar2l1tex_read_bytes_pipe_tma___sum=[1000.0],
        l1tex__m_l1tex2xbar_write_bytes_mem_global_op_tma_st___sum=[0.0],
    )
    assert found.values["l1_hit_pct"].isna().all()
    assert "TMA" in reasons(found, "l1_hit_pct")["k0"]


def test_an_unknown_chip_is_read_by_the_names_it_has() -> None:
    assert evaluated("", dram__bytes_op_read___sum=[5.0]).values["dram_read_bytes"].tolist() == [5]
    assert evaluated("", dram__bytes_read___sum=[5.0]).values["dram_read_bytes"].tolist() == [5]


def test_l1_traffic_without_tma_is_exact_before_hopper_and_flagged_from_there() -> None:
    old, new = (evaluated(chip, l1tex__t_bytes___sum=[7.0]) for chip in ("GA100", "GH100"))
    assert old.values["l1_bytes"].tolist() == new.values["l1_bytes"].tolist() == [7]
    assert reasons(old, "l1_bytes") == {}
    assert "TMA" in reasons(new, "l1_bytes")["k0"]


def test_local_bytes_without_their_instructions_tell_of_none_only() -> None:
    alone = evaluated(sm__sass_data_bytes_mem_local___sum=[0.0, 9.0])
    assert alone.values["local_bytes"].tolist()[0] == 0
    assert "local instructions" in reasons(alone, "local_bytes")["k1"]
    held = evaluated(
        sm__sass_data_bytes_mem_local___sum=[0.0, 64.0, 6.7e7],
        smsp__sass_inst_executed_op_local_ld___sum=[5.0, 10.0, 0.0],
        smsp__sass_inst_executed_op_local_st___sum=[5.0, 6.0, 0.0],
    )
    assert held.values["local_bytes"].tolist()[1:] == [2048, 0]
    assert list(reasons(held, "local_bytes")) == ["k0"]


def test_the_root_of_a_missing_value_is_named_once() -> None:
    found = evaluated(gpu__time_duration___sum=[10.0])
    assert reasons(found, "intensity_dram")["k0"] == reasons(found, "flop_throughput")["k0"]
    assert reasons(found, "intensity_dram")["k0"].count("needs") == 1


def test_issue_slots_are_known_from_any_counter_of_issued_instructions() -> None:
    """Numbers of one kernel of an RTX A6000 (ncu 2022), where the schedulers' own are 67.75 %."""
    cycles = {"sm__cycles_active___avg": [135122.02], "sm__cycles_elapsed___max": [148626.0]}
    for counters in (
        {"sm__inst_issued___avg.pct_of_peak_sustained_active": [67.97]},
        {"sm__inst_issued___avg.per_cycle_active": [2.72]},
        {"sm__issue_active___avg.pct_of_peak_sustained_elapsed": [61.86]} | cycles,
    ):
        found = evaluated("GA102", **counters)
        assert abs(found.values["issue_active_pct"].iloc[0] - 67.75) < 0.5
    assert "SM is active" in reasons(found, "issue_active_pct")["k0"]


def test_waves_that_are_printed_as_0_come_from_the_launch_or_are_unknown() -> None:
    found = evaluated("AD107", launch__waves_per_multiprocessor=[0.0, 0.02])
    assert found.values["waves"].isna().tolist() == [True, False]
    assert "rounded" in reasons(found, "waves")["k0"]
    limits = {
        f"launch__occupancy_limit_{what}": [limit, 5.0]
        for what, limit in zip(
            ("registers", "shared_mem", "blocks", "warps"), (16.0, 16.0, 24.0, 6.0), strict=True
        )
    }
    facts = {"launch__grid_size": [1.0, 2.0], "launch__sm_count": [34.0, 34.0]}
    found = evaluated("AD107", launch__waves_per_multiprocessor=[0.0, 0.02], **facts, **limits)
    assert found.values["waves"].tolist() == [1 / (34 * 6), 0.02]
