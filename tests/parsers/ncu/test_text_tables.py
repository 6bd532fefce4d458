"""Tables that ncu prints without --csv are read as far as they are whole."""

from pathlib import Path

import pandas as pd
import pytest

from nsight_prof.parsers.ncu import NcuCapture, read_csv

TEXT = """\
==PROF== Connected to process 88 (/x/app)
==PROF== Profiling "f" - 0: 0%....50%....100% - 9 passes
==PROF== Profiling "g" - 1: 0%....50%....100% - 10 passes
[88] app@127.0.0.1
  void f<(int)4, g(int)>(int, const float *) (32, 2, 1)x(256, 1, 1), Context 1, Stream 7, Device 3, CC 9.0
    Section: GPU Speed Of Light Throughput
    ----------------- ------------- ------------
    Metric Name         Metric Unit Metric Value
    ----------------- ------------- ------------
    DRAM Frequency    cycle/nsecond         6.21
    Elapsed Cycles            cycle    2,273,471
    Memory Throughput             %      (!) nan
    Duration                msecond         1.73
    ----------------- ------------- ------------

    INF   The kernel is utilizing greater than 80.0% of the available compute or memory performance.

    Section: Launch Statistics
    ---------------------------- ----------- ---------------
    Metric Name                  Metric Unit    Metric Value
    ---------------------------- ----------- ---------------
    Function Cache Configuration             CachePreferNone
    Grid Size                                             64
    ---------------------------- ----------- ---------------

  g, 2021-Mar-02 19:44:07, Context 2, Stream 9
    Metric Name             Metric Unit Metric Value
    --------------------- ------------- ------------
    dram__bytes_read.sum          Mbyte         2.33

"""  # noqa: E501


def read(tmp_path: Path, text: str) -> NcuCapture:
    path = tmp_path / "ncu.log"
    path.write_text(text, encoding="utf-8")
    return read_csv(path)


def test_launches_and_values_of_both_layouts_are_read(tmp_path: Path) -> None:
    capture = read(tmp_path, TEXT)
    first, second = capture.launches.to_dict("records")
    assert first["name"] == "void f<(int)4, g(int)>(int, const float *)"
    assert (first["grid"], first["block"], first["device"]) == ("32x2x1", "256x1x1", 3)
    assert (first["pid"], first["passes"], second["passes"]) == (88, 9, 10)
    assert (second["name"], second["stream"]) == ("g", 9)
    assert capture.launches["grid"].isna().tolist() == [False, True]
    known = capture.metrics.dropna(subset="value")
    assert dict(zip(known["metric"], known["value"], strict=True)) == pytest.approx(
        {
            "dram__cycles_elapsed.avg.per_second": 6.21e9,
            "gpc__cycles_elapsed.max": 2273471.0,
            "gpu__time_duration.sum": 1.73e6,
            "launch__grid_size": 64.0,
            "dram__bytes_read.sum": 2.33e6,
        }
    )
    assert known["profile"].tolist() == [0, 0, 0, 0, 1]


def test_the_last_value_of_a_cut_table_is_left_out(tmp_path: Path) -> None:
    capture = read(tmp_path, TEXT[: TEXT.index("2,273,471") + 3])
    assert capture.metrics["metric"].tolist() == ["dram__cycles_elapsed.avg.per_second"]
    assert "was cut" in capture.warnings[0]


# Nsight Compute 2020 on a V100: no heads over the tables, the date in place of the shape.
OLD = """\
[88] bfs@127.0.0.1
  Kernel, 2020-Mar-20 14:53:13, Context 1, Stream 7
    Section: GPU Speed Of Light
    ---------------------------------- --------------- ---------------
    Memory Frequency                     cycle/usecond          733.56
    SOL FB                                           %            3.15
    Memory [%]                                       %            3.15
    Duration                                   usecond            9.25
    SOL L2                                           %            0.46
    SM [%]                                           %            0.95
    SOL TEX                                          %            4.29
    ---------------------------------- --------------- ---------------
    WRN   Low utilization of memory bandwidth and of the SMs: 3.15 % and 0.95 %.

    Section: Memory Workload Analysis
    ---------------------------------- --------------- ---------------
    Memory Throughput                     Gbyte/second           23.63
    L1 Hit Rate                                      %            1.52
    ---------------------------------- --------------- ---------------

"""
# ncu --print-summary per-kernel
SUMMARY = """\
[88] app@127.0.0.1
  heat(float *, int) (1, 1, 1)x(256, 1, 1), Device 0, CC 8.9, Invocations 14
    Section: GPU Speed Of Light Throughput
    ----------------------- ----------- -------- -------- --------
    Metric Name             Metric Unit  Minimum  Maximum  Average
    ----------------------- ----------- -------- -------- --------
    Elapsed Cycles                cycle 3,100.00 4,200.00 3,939.50
    Duration                         us     1.70     1.89     1.75
    ----------------------- ----------- -------- -------- --------

"""


def test_tables_without_heads_and_their_labels_of_2020_are_read(tmp_path: Path) -> None:
    rows = read(tmp_path, OLD).metrics
    found = dict(zip(rows["metric"], rows["value"], strict=True))
    peak = "pct_of_peak_sustained"
    assert found == pytest.approx(
        {
            "dram__cycles_elapsed.avg.per_second": 733.56e6,
            f"gpu__dram_throughput.avg.{peak}_elapsed": 3.15,
            f"gpu__compute_memory_throughput.avg.{peak}_elapsed": 3.15,
            "gpu__time_duration.sum": 9250.0,
            f"lts__throughput.avg.{peak}_elapsed": 0.46,
            f"sm__throughput.avg.{peak}_elapsed": 0.95,
            f"l1tex__throughput.avg.{peak}_active": 4.29,
            "dram__bytes.sum.per_second": 23.63e9,
            "l1tex__t_sector_hit_rate.pct": 1.52,
        }
    )
    # HBM2 of a V100 moves 1024 B a cycle: what "SOL FB" is a part of.
    share = found["dram__bytes.sum.per_second"] / (
        1024 * found["dram__cycles_elapsed.avg.per_second"]
    )
    assert found[f"gpu__dram_throughput.avg.{peak}_elapsed"] == pytest.approx(100 * share, abs=0.01)


def test_a_summary_over_launches_gives_its_averages_and_says_so(tmp_path: Path) -> None:
    capture = read(tmp_path, SUMMARY)
    launch = capture.launches.iloc[0]
    assert (launch["name"], launch["grid"], launch["device"]) == ("heat(float *, int)", "1x1x1", 0)
    found = dict(zip(capture.metrics["metric"], capture.metrics["value"], strict=True))
    assert found == {"gpc__cycles_elapsed.max": 3939.5, "gpu__time_duration.sum": 1750.0}
    assert "averages over the launches" in capture.warnings[0]


@pytest.mark.parametrize("margin", ["\t", "    ", "      "])
@pytest.mark.parametrize("gap", [" ", " \n  "])
def test_margins_and_broken_lines_of_copies_change_nothing(
    tmp_path: Path, margin: str, gap: str
) -> None:
    copied = TEXT.replace("\n  void f<", f"\n{margin}void f<").replace(
        "\n  g, 2021", f"\n{margin}g, 2021"
    )
    copied = copied.replace(
        " (32, 2, 1)x(256, 1, 1), Context", f"{gap}(32, 2, 1)x(256, 1, 1), Context"
    )
    assert copied != TEXT or (margin, gap) == ("  ", " ")
    same, other = read(tmp_path, TEXT), read(tmp_path, copied)
    pd.testing.assert_frame_equal(same.launches, other.launches)
    pd.testing.assert_frame_equal(same.metrics, other.metrics)


def test_values_of_a_launch_without_a_name_go_to_no_other(tmp_path: Path) -> None:
    rest = "\n  (8, 1, 1)x(32, 1, 1), Context 1, Stream 7, Device 3, CC 9.0\n"
    table = TEXT[TEXT.index("    Section: Launch") : TEXT.index("  g, 2021")].replace("64", "99")
    capture = read(tmp_path, TEXT + rest + table)
    known = read(tmp_path, TEXT)
    pd.testing.assert_frame_equal(capture.metrics, known.metrics)
    assert "the values of a launch without a name are left out" in capture.warnings


def test_what_rules_say_is_read_with_its_estimate(tmp_path: Path) -> None:
    said = """
    Section: Occupancy
    ------------------- ----------- ------------
    Theoretical Occupancy         %           75
    ------------------- ----------- ------------

    OPT   Est. Local Speedup: 25.5%
          This kernel's theoretical occupancy (75.0%) is limited by the number of required
          registers.
    ----- --------------------------------------------------
    WRN   The difference between calculated theoretical (75.0%) and measured achieved occupancy
          (50.1%) can be the result of warp scheduling overheads.

    Section: Of A Plugin
    OPT   Nobody knows this section."""
    first, *both = read(tmp_path, TEXT + said).rules.to_dict("records")
    assert (first["rule"], first["kind"], first["profile"]) == ("SOLBottleneck", "information", 0)
    limited, fewer = both
    assert (limited["rule"], limited["kind"]) == ("TheoreticalOccupancy", "optimization")
    assert (limited["speedup_pct"], limited["speedup_of"]) == (25.5, "local")
    assert limited["message"].startswith("This kernel's theoretical")
    assert limited["message"].endswith("the number of required registers.")
    assert (fewer["rule"], fewer["kind"], fewer["profile"]) == ("AchievedOccupancy", "warning", 1)
    assert pd.isna(fewer["speedup_pct"])
    assert not fewer["speedup_of"]
