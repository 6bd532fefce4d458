"""Tables that ncu prints without --csv are read as far as they are whole."""

from pathlib import Path

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
