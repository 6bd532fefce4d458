"""Every number of a kernel leads to counters."""

import pandas as pd

from nsight_prof.parsers import tables
from nsight_prof.parsers.build.load import load_run
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.profile.provenance import provenance


def with_metrics(run: Run) -> Run:
    key = run.counters["kernel_id"].iloc[0]
    metrics = [
        (key, 3, 0, "dram__bytes_read.sum", 11.5, "", "B", "csv"),
        (key, 3, 0, "sm__warps_active.avg.pct_of_peak_sustained_active", 24.0, "", "%", "csv"),
        (key, 3, 0, "launch__func_cache_config", None, "PreferNone", "", "csv"),
        (key, 4, 1, "dram__bytes_read.sum", 99.0, "", "B", "csv"),
    ]
    joins = [
        (0, key, 3, "a", "a", "1x1x1", "1x1x1", True, "mangled", ""),
        (1, key, 4, "a", "a", "1x1x1", "1x1x1", False, "mangled", ""),
    ]
    for table, rows in (("metrics", metrics), ("joins", joins)):
        columns = list(tables.empty(table).columns)
        tables.write(pd.DataFrame(rows, columns=columns), table, run.directory.tables)
    return load_run(run.path)


def test_a_number_names_the_counter_it_was_made_from(run: Run) -> None:
    found = provenance(with_metrics(run))[run.counters["kernel_id"].iloc[0]]
    origins = {item.column: item.origin for item in found.traced}
    assert origins["achieved_occupancy_pct"] == (
        "sm__warps_active.avg.pct_of_peak_sustained_active"
    )
    assert origins["dram_bytes"] == "add(dram_read_bytes, dram_write_bytes)"


def test_only_the_chosen_launch_is_shown_in_full_precision(run: Run) -> None:
    found = provenance(with_metrics(run))[run.counters["kernel_id"].iloc[0]]
    raw = {item.metric: (item.value, item.text, item.unit) for item in found.raw}
    assert raw["dram__bytes_read.sum"] == (11.5, "", "B")
    assert raw["launch__func_cache_config"] == (None, "PreferNone", "")


def test_text_is_shown_as_text(run: Run) -> None:
    found = provenance(run)[run.counters["kernel_id"].iloc[0]]
    limiter = next(item for item in found.traced if item.column == "occupancy_limiter")
    assert limiter.text
    assert limiter.value is None


def test_a_run_without_counters_has_no_provenance(trace_only_run: Run) -> None:
    assert provenance(trace_only_run) == {}
