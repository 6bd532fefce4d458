"""Tables of recorded values: of a real program, of made-up recordings, and of damaged ones."""

from __future__ import annotations

import gzip
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nsight_prof.parsers.errors import ArtifactUnreadable
from nsight_prof.parsers.torch.values import read_values

RECORDED = Path(__file__).parents[1] / "fixtures" / "values"
PROGRAM = (RECORDED / "needless.py").read_text("utf-8").splitlines()
IN_ONE_FOLDER = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.fixture(scope="module")
def values() -> pd.DataFrame:
    return read_values(RECORDED / "needless.jsonl.gz")[0]


def at(values: pd.DataFrame, comment: str, operator: str, first: Any = None) -> pd.Series:
    """The row of an operator, in the training, on the line with a comment; `first`: shape of input.

    What the program does once more after the training has a row of its own: other callers."""
    (line,) = (number for number, text in enumerate(PROGRAM, 1) if f"# {comment}" in text)
    found = [row for _, row in values.iterrows() if row["line"] == line
             and row["operator"] == operator and row["direction"] == "forward"
             and first in (None, *json.loads(row["input_shapes"])[:1])]  # fmt: skip
    row, *others = sorted(found, key=lambda row: -row["calls"])
    assert all(row["callers"] != other["callers"] for other in others)
    return row


def test_what_each_layer_and_step_computes_again_has_one_input(values: pd.DataFrame) -> None:
    cos = at(values, "again: the same in each layer", "aten::cos")
    assert (cos["calls"], cos["distinct_inputs"], cos["distinct_results"]) == (12, 1, 1)
    shares = at(values, "again: links never change", "aten::mul")
    assert (shares["calls"], shares["distinct_inputs"]) == (3, 1)
    assert [frame["function"] for frame in json.loads(shares["callers"])] == ["main", "<module>"]


def test_what_is_computed_anew_has_as_many_inputs_as_calls(values: pd.DataFrame) -> None:
    mean = at(values, "unread", "aten::mean")
    assert mean["calls"] == mean["distinct_inputs"] == mean["distinct_results"] == 12


def test_random_numbers_differ_though_arguments_are_equal(values: pd.DataFrame) -> None:
    drawn = values[values["operator"] == "aten::bernoulli_"]
    assert drawn["random"].all()
    assert drawn["distinct_inputs"].eq(1).all()
    assert (drawn["calls"].sum(), drawn["distinct_results"].sum()) == (16, 16)


def test_results_that_nobody_reads_and_those_of_which_some_are_read(values: pd.DataFrame) -> None:
    unread = at(values, "unread", "aten::mean")
    assert unread["results_read"] == 0
    assert json.loads(unread["read_by"]) is None
    scores = at(values, "scores of all words", "aten::addmm")
    assert scores["results_read"] == pytest.approx(1 / 24)  # the last position of each sentence
    sort = at(values, "50 of all", "aten::sort")
    assert sort["results_read"] == 50 / 640
    cos = at(values, "again: the same in each layer", "aten::cos")
    assert json.loads(cos["read_by"])["operator"] == "aten::mul"


def test_zeros_of_a_dense_matrix_and_rows_of_padding(values: pd.DataFrame) -> None:
    dense = at(values, "nearly all zeros", "aten::mm", first=[200, 200])
    assert json.loads(dense["zeros"])[0] > 0.99
    padded = at(values, "rows of padding", "aten::addmm")
    assert json.loads(padded["zero_rows"])[1] == (4 * 64 - 60) / (4 * 64)


def test_types_say_where_float64_begins(values: pd.DataFrame) -> None:
    scaled = at(values, "float64 begins here", "aten::mul")
    assert json.loads(scaled["input_dtypes"]) == ["float32", "float64"]
    assert json.loads(scaled["result_dtypes"]) == ["float64"]
    assert json.loads(scaled["input_shapes"]) == [[2, 24, 32], [32]]


def test_the_backward_pass_is_at_the_line_that_asks_for_it(values: pd.DataFrame) -> None:
    backward = values[values["direction"] == "backward"]
    assert set(backward["function"]) == {"main"}
    assert {PROGRAM[line - 1].strip() for line in backward["line"]} == {"loss.backward()"}
    optimizer = values[values["direction"] == "optimizer"]
    assert {PROGRAM[line - 1].strip() for line in optimizer["line"]} == {"optimizer.step()"}


def test_a_limit_ends_the_recording_and_leaves_open_what_may_be_read_later() -> None:
    values, profiles = read_values(RECORDED / "limited.jsonl.gz")
    (profile,) = profiles.to_dict("records")
    assert (profile["ended"], profile["operators"]) == ("operators", 60)
    assert values["calls"].sum() == 60
    assert json.loads(profile["not_recorded"])["beyond"] > 0
    words = values[values["operator"] == "aten::embedding"]
    assert words["results_read"].tolist() == [1]
    assert values[values["operator"] == "aten::randint"]["results_read"].isna().any()


def written(folder: Path, lines: list[dict[str, Any]]) -> Path:
    path = folder / "values.jsonl.gz"
    with gzip.open(path, "wt", encoding="utf-8") as stream:
        stream.writelines(f"{json.dumps(line)}\n" for line in lines)
    return path


def recording(calls: list[dict[str, Any]], operators: int = 3) -> list[dict[str, Any]]:
    start = {"kind": "start", "version": 1, "pid": 7, "torch": "2.13.0", "device": "cpu"}
    stack = {"kind": "stack", "frames": [["/a.py", "f", 3], ["/a.py", "main", 9]]}
    made = [
        {
            **{"kind": "operator", "operator": f"aten::op{number}", "direction": "forward"},
            **{"place": ["/a.py", "f", 3], "inputs": [[[2, number], "float32"]], "results": []},
            **{"random": False, "sampled": False},
        }
        for number in range(operators)
    ]
    end = {"kind": "end", "operators": len(calls), "seconds": 1.5, "ended": "program"}
    return [start, stack, *made, *calls, end | {"not_recorded": {}, "error": ""}]


number = st.none() | st.integers(0, 4)
share = st.none() | st.floats(0, 1)
call = st.fixed_dictionaries(
    {
        **{"kind": st.just("call"), "operator": st.integers(0, 2), "stack": st.just(0)},
        **{"ns": st.integers(0, 10**9), "inputs": number, "results": number, "read": share},
        **{"reader": st.none() | st.integers(0, 2), "zeros": st.just([]) | st.tuples(share)},
        "zero_rows": st.just([]),
    }
)


@IN_ONE_FOLDER
@given(calls=st.lists(call, max_size=12))
def test_rows_say_of_any_calls_what_a_count_by_hand_says(
    tmp_path: Path, calls: list[dict[str, Any]]
) -> None:
    values, _ = read_values(written(tmp_path, recording(calls)))
    assert values["calls"].sum() == len(calls)
    for _, row in values.iterrows():
        of_row = [made for made in calls if f"aten::op{made['operator']}" == row["operator"]]
        for column, key in (("distinct_inputs", "inputs"), ("distinct_results", "results")):
            found = {made[key] for made in of_row}
            assert pd.isna(row[column]) if None in found else row[column] == len(found)
        shares = [made["read"] for made in of_row if made["read"] is not None]
        known = pytest.approx(sum(shares) / len(shares)) if shares else None
        assert (None if pd.isna(row["results_read"]) else row["results_read"]) == known
        times = sorted(made["ns"] for made in of_row)
        middle = (times[(len(times) - 1) // 2] + times[len(times) // 2]) / 2
        assert row["time_ns"] == round(middle * len(times))
        readers = {f"aten::op{made['reader']}" for made in of_row if made["reader"] is not None}
        reader = json.loads(row["read_by"])
        assert reader is None if not readers else reader["operator"] in readers


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=4,
)


@IN_ONE_FOLDER
@given(data=st.data())
def test_any_other_value_anywhere_is_read_or_refused(tmp_path: Path, data: st.DataObject) -> None:
    lines = recording([dict(kind="call", operator=1, stack=0, ns=5, inputs=0, results=1, read=0.5,
                            reader=2, zeros=[0.5], zero_rows=[None])])  # fmt: skip
    line = data.draw(st.sampled_from(lines))
    line[data.draw(st.sampled_from(sorted(line)))] = data.draw(json_values)
    with suppress(ArtifactUnreadable):
        values, profiles = read_values(written(tmp_path, lines))
        assert len(profiles) == 1
        assert len(values) <= 1


@pytest.mark.parametrize("kept", [0, 1, 40, 0.5, -1])
def test_a_recording_that_is_cut_off_is_refused(tmp_path: Path, kept: float) -> None:
    whole = (RECORDED / "needless.jsonl.gz").read_bytes()
    path = tmp_path / "values.jsonl.gz"
    path.write_bytes(whole[: int(len(whole) * kept) if isinstance(kept, float) else kept])
    with pytest.raises(ArtifactUnreadable, match="cannot be read as recorded values"):
        read_values(path)


def test_a_recording_without_its_end_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArtifactUnreadable, match="its end is missing"):
        read_values(written(tmp_path, recording([])[:-1]))
