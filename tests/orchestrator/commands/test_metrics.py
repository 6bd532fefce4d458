"""`prof metrics`: the catalogue as text, names and JSON."""

import json

import pytest
from click.testing import CliRunner

from nsight_prof.orchestrator.commands.metrics import command
from nsight_prof.parsers.errors import UsageError
from nsight_prof.parsers.metrics import catalogue


def run(*arguments: str) -> str:
    result = CliRunner().invoke(command, arguments, catch_exceptions=False)
    assert result.exit_code == 0
    return result.output


def test_the_table_shows_every_column_its_meaning_and_what_the_sets_cost() -> None:
    text = run()
    for column in catalogue().columns.values():
        assert column.helper or column.name in text
    assert "together" in text
    assert "H200" in text


def test_names_of_tool_metrics_stay_whole() -> None:
    text = run("--set", "roofline")
    assert "lts__t_sectors_srcunit_tex.sum.peak_sustained" in text
    assert "sm__ops_path_tensor_src_bf16_dst_fp32.sum" in text


def test_stall_reasons_are_explained_where_the_chip_has_them() -> None:
    assert "gmma" in run("--set", "stalls")
    assert "gmma" not in run("--set", "stalls", "--chip", "ga100")


def test_names_are_ready_for_ncu() -> None:
    names = run("--names", "--set", "occupancy").strip().split(",")
    assert names == catalogue().tool_metrics(["occupancy"], "GH100", ["bf16"])


def test_json_holds_everything() -> None:
    data = json.loads(run("--json", "--chip", "ad104", "--dtype", "fp8"))
    assert (data["chip"], data["like"]) == ("AD104", "AD102")
    assert data["passes"] == catalogue().passes(list(data["sets"]), "AD102", ["fp8"])
    assert {"column", "unit", "meaning", "formula", "from", "source"} <= set(data["columns"][0])


def test_an_unknown_chip_is_refused() -> None:
    with pytest.raises(UsageError, match="XX100"):
        run("--chip", "XX100")


@pytest.mark.parametrize(("chip", "dtype"), [("GH100", "bf61"), ("GA100", "fp8")])
def test_an_input_type_that_the_chip_does_not_count_is_refused(chip: str, dtype: str) -> None:
    with pytest.raises(UsageError, match=f"{chip} has no counter .* {dtype}") as caught:
        run("--chip", chip, "--dtype", dtype)
    assert "bf16" in caught.value.hint


def test_a_chip_that_does_not_count_the_default_input_type_is_shown_all_the_same() -> None:
    assert "Columns on TU102" in run("--chip", "tu102")
