"""The catalogue against NVIDIA's CUPTI host library, without a GPU."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from nsight_prof.parsers.errors import UsageError
from nsight_prof.parsers.metrics.catalogue import catalogue
from nsight_prof.parsers.tables import tables

CHIPS = catalogue().chips
SETS = tuple(catalogue().sets)
NCU_ONLY = ("launch__", "device__", "profiler__", "sm__maximum_warps_per_active_cycle_pct")

Planner = Callable[..., str]


SERVE = """
import contextlib, io, json, sys
from scripts import metric_planner

for line in sys.stdin:
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = metric_planner.main(json.loads(line))
    print(json.dumps([code, said.getvalue()]), flush=True)
"""


@pytest.fixture(scope="module")
def planner(root: Path) -> Iterator[Planner]:
    """Runs scripts/metric_planner.py in a process of its own, which answers all questions.

    CUPTI and ncu_report each load a libnvperf_host.so, and the first one serves both: in the
    process of other tests CUPTI 13.0 refused GV100 after ncu_report 2026.3 was loaded.
    """

    pipe = subprocess.PIPE
    command = [sys.executable, "-c", SERVE]
    with subprocess.Popen(command, cwd=root, stdin=pipe, stdout=pipe, text=True) as process:

        def ask(*arguments: str) -> str:
            assert process.stdin is not None
            assert process.stdout is not None
            print(json.dumps(arguments), file=process.stdin, flush=True)
            code, said = json.loads(process.stdout.readline())
            if code == 3:
                pytest.skip(said.strip())
            assert code == 0, said
            return str(said)

        yield ask


def base(metric: str) -> str:
    return metric.split(".")[0]


@pytest.mark.parametrize("chip", sorted(catalogue().families))
def test_every_metric_exists_on_every_chip_that_the_catalogue_claims(
    chip: str, planner: Planner
) -> None:
    known = catalogue()
    asked = known.tool_metrics(SETS, chip, list(known.tensor[known.family(chip)]))
    has = set(planner("list", chip).split())
    assert len(has) > 1000
    assert [m for m in asked if not m.startswith(NCU_ONLY) and base(m) not in has] == []


def test_recorded_passes_are_those_of_the_planner(planner: Planner, root: Path) -> None:
    recorded = yaml.safe_load((root / "parsers" / "metrics.yaml").read_text(encoding="utf-8"))
    assert recorded["passes"] == yaml.safe_load(planner("catalogue"))["passes"]
    assert set(recorded["passes"]) == set(CHIPS)


@pytest.mark.parametrize("chip", ["GA100", "GA102", "AD102", "GH100", "GB100", "GB202"])
def test_all_sets_stay_within_twelve_passes_and_five_without_stalls(chip: str) -> None:
    lean = [name for name in SETS if name != "stalls"]
    every, without = (catalogue().passes(sets, chip, ["bf16"]) for sets in (SETS, lean))
    assert every is not None
    assert every + 1 <= 12
    assert without is not None
    assert without + 1 <= 5


@pytest.mark.parametrize("chip", CHIPS)
def test_roofs_of_every_dtype_cost_no_pass(chip: str, planner: Planner) -> None:
    known = catalogue()
    peaks = [counter.peak for counter in known.tensor[chip].values()]
    peaks += [roof.peak for roof in known.roofs if not roof.foreign]
    assert planner("passes", chip, *peaks).strip() == "1"


def test_every_column_of_the_counters_table_is_in_the_catalogue() -> None:
    computed = {
        "kernel_id", "launch", "trace_duration_ns", "duration_difference",
        "top_stall", "top_stall_ratio", "bound_by", "roof_share",
            "bound_unit", "second_by", "second_share",
    }  # fmt: skip
    declared = {c.name for c in tables()["counters"]} - computed
    shown = {c.name for c in catalogue().columns.values() if not c.helper}
    assert shown == declared


def test_every_column_is_asked_for_by_a_set() -> None:
    asked = {column for chosen in catalogue().sets.values() for column in chosen.columns}
    inner = {
        name
        for column in catalogue().columns.values()
        for source in column.sources
        for name in source.of
    }
    assert set(catalogue().columns) - asked - inner == set()


def test_inputs_come_before_the_columns_that_use_them() -> None:
    seen: set[str] = set()
    for column in catalogue().columns.values():
        used = {n for s in column.sources for n in s.of if n in catalogue().columns}
        assert used <= seen, column.name
        seen.add(column.name)


def test_only_the_dtypes_of_the_recipe_are_counted() -> None:
    asked = catalogue().tool_metrics(["roofline"], "GH100", ["bf16"])
    counted = [m for m in asked if "ops_path" in m and m.endswith(".sum")]
    assert counted == ["sm__ops_path_tensor_src_bf16_dst_fp32.sum"]


def test_a_dtype_that_the_chip_lacks_is_left_out() -> None:
    assert catalogue().tool_metrics(["roofline"], "GA100", ["fp8"]) == catalogue().tool_metrics(
        ["roofline"], "GA100", []
    )


def test_composite_throughput_metrics_are_never_asked_for() -> None:
    for chip in CHIPS:
        asked = catalogue().tool_metrics(SETS, chip, ["bf16"])
        assert [m for m in asked if "__throughput" in m] == []


def test_a_chip_without_a_catalogue_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match="XX100") as error:
        catalogue().tool_metrics(["roofline"], "XX100", [])
    assert "GH100" in error.value.hint


def test_no_set_asks_for_nothing_on_any_chip() -> None:
    assert catalogue().tool_metrics([], "XX100", ["bf16"]) == []


def test_a_misspelt_set_is_refused_by_name() -> None:
    with pytest.raises(UsageError, match="roofine"):
        catalogue().tool_metrics(["roofine"], "GH100", [])


def test_chips_are_found_in_any_case() -> None:
    assert catalogue().family("gh100") == "GH100"
    assert catalogue().family("ad104") == "AD102"
