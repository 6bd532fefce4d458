import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from nsight_prof.parsers.bench.records import (
    RoofKey,
    join_records,
    parse_case,
    read_records,
    roof_key,
)
from nsight_prof.parsers.errors import ArtifactUnreadable, SchemaTooNew

Write = Callable[..., Path]


def test_the_records_of_these_tests_are_what_the_schema_wants(
    make: SimpleNamespace, bench_schema: Draft202012Validator
) -> None:
    roof = {"level_or_pipe": "dram", "kind": "read", "dtype": ""}
    bench_schema.validate(make.conditions())
    bench_schema.validate(make.case(roof=roof))
    bench_schema.validate(make.failed("no such kernel", "unsupported"))


@pytest.mark.parametrize(
    "change",
    [{"status": "ok", "time": None}, {"status": "failed", "reason": "", "time": None}, {"x": 1}],
)
def test_the_schema_refuses(
    make: SimpleNamespace, bench_schema: Draft202012Validator, change: dict[str, Any]
) -> None:
    assert not bench_schema.is_valid(make.case(**change))


@pytest.mark.parametrize("name", ["result-1-1.jsonl", "result-1-1.jsonl.xz"])
def test_conditions_and_cases_are_read(
    make: SimpleNamespace, write_records: Write, name: str
) -> None:
    read = read_records(write_records(make.conditions(), make.case(), name=name))
    (found,) = read.cases
    assert read.conditions[0]["software"]["driver"] == "580.1"
    assert found.case_id == "dram/read/u4|cold|normal"
    assert found.time is not None
    assert found.time.samples.tolist() == [1.0, 1.1, 1.2]
    assert found.bytes == 4e9
    assert found.flops != found.flops  # NaN: unknown, not 0
    assert read.problems == ()


def test_a_line_cut_by_a_kill_is_told_and_the_others_stand(
    make: SimpleNamespace, write_records: Write
) -> None:
    cut = json.dumps(make.case("dram/write/u4"))[:200]
    read = read_records(write_records(make.conditions(), make.case(), cut))
    assert [c.name for c in read.cases] == ["dram/read/u4"]
    assert read.problems == (
        "result-1-1.jsonl: line 3 is cut: the process was killed while it wrote",
    )


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{oh\n", "line 2 is no JSON"),
        ("[1]\n", "it is no JSON object"),
        ('{"record": "case"}\n', "schema is missing"),
        ('{"record": "weather", "schema": 1}\n', "kind 'weather' are not known"),
        ('{"record": "case", "schema": 1, "status": "ok"}\n', "time.samples_s must be seconds"),
        ('{"record": "case", "schema": 1, "status": "tired"}\n', "status 'tired' is not known"),
    ],
)
def test_a_line_that_cannot_be_used_is_left_out_and_named(
    make: SimpleNamespace, write_records: Write, line: str, words: str
) -> None:
    read = read_records(write_records(make.conditions(), line, make.case()))
    assert len(read.cases) == 1
    assert words in read.problems[0]
    assert "line 2" in read.problems[0]


def test_the_second_record_of_a_case_is_left_out(
    make: SimpleNamespace, write_records: Write
) -> None:
    read = read_records(write_records(make.conditions(), make.case(), make.case(samples=[9.0])))
    assert len(read.cases) == 1
    assert "a second record of dram/read/u4|cold|normal" in read.problems[0]


@pytest.mark.parametrize("value", [0.0, -1.0, None, "1", True])
def test_a_time_that_is_no_time_is_refused(
    make: SimpleNamespace, write_records: Write, value: Any
) -> None:
    record = make.case()
    record["time"]["samples_s"][1] = value
    read = read_records(write_records(make.conditions(), record))
    assert read.cases == ()
    assert "samples_s" in read.problems[0]


def test_a_newer_format_is_refused(make: SimpleNamespace, write_records: Write) -> None:
    with pytest.raises(SchemaTooNew, match="schema 2"):
        read_records(write_records(make.conditions(schema=2)))


def test_a_file_of_something_else_is_refused(write_records: Write) -> None:
    with pytest.raises(ArtifactUnreadable, match="no record of a benchmark"):
        read_records(write_records("hello\nworld\n"))


def test_a_process_that_ended_at_once_is_told(write_records: Write) -> None:
    assert "ended before any" in read_records(write_records()).problems[0]


def test_a_packed_file_that_is_cut_is_refused(make: SimpleNamespace, write_records: Write) -> None:
    path = write_records(make.conditions(), name="result-1-1.jsonl.xz")
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(ArtifactUnreadable, match="cannot be unpacked"):
        read_records(path)


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    max_examples=settings().max_examples // 2,
)
@given(cut=st.integers(0, 5000))
def test_a_file_cut_anywhere_gives_its_whole_lines(
    make: SimpleNamespace, tmp_path: Path, cut: int
) -> None:
    records = [make.conditions(), *(make.case(f"c{i}") for i in range(4))]
    text = "".join(json.dumps(record) + "\n" for record in records)
    path = tmp_path / "result-1-1.jsonl"
    path.write_text(text[:cut])
    whole = text[:cut].count("\n")
    try:
        read = read_records(path)
    except ArtifactUnreadable:
        assert whole == 0
        return
    # A line that lacks its end alone is whole, too.
    assert len(read.cases) + len(read.conditions) - whole in (0, 1)
    assert [c.name for c in read.cases] == [f"c{i}" for i in range(len(read.cases))]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    max_examples=settings().max_examples // 2,
)
@given(data=st.data())
def test_any_value_in_any_field_is_read_or_told(
    make: SimpleNamespace, tmp_path: Path, data: st.DataObject
) -> None:
    record = make.case()
    field = data.draw(st.sampled_from([name for name in record if name != "schema"]))
    record[field] = data.draw(JSON)
    path = tmp_path / "result-1-1.jsonl"
    path.write_text("\n".join(json.dumps(r) for r in (make.conditions(), record, make.case("b"))))
    read = read_records(path)
    assert len(read.cases) + len(read.problems) >= 2 or read.cases[0].name == "b"


def test_roofs_are_written_and_read_the_same() -> None:
    keys = [
        RoofKey("dram", "", "read"),
        RoofKey("tensor", "bf16", "burst"),
        RoofKey("fp32", "fp32", "fma"),
        RoofKey("host", "", "h2d-pinned"),
    ]
    assert [str(key) for key in keys] == [
        "dram read",
        "tensor bf16 burst",
        "fp32 fma",
        "host h2d-pinned",
    ]
    assert [roof_key(str(key)) for key in keys] == keys
    assert roof_key("") is None


def test_a_vector_pipe_works_in_its_own_dtype(make: SimpleNamespace) -> None:
    roof = {"level_or_pipe": "fp32", "kind": "fma", "dtype": ""}
    assert parse_case(make.case(roof=roof)).roof == RoofKey("fp32", "fp32", "fma")


def test_files_are_joined_in_their_order(make: SimpleNamespace, write_records: Write) -> None:
    parts = [
        read_records(write_records(make.conditions(p), make.case(process=p), name=f"r{p}.jsonl"))
        for p in (1, 2)
    ]
    assert [c.process for c in join_records(parts).cases] == [1, 2]
