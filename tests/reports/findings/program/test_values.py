"""What the values of operators tell of work that need not be done, on made-up tables."""

import json
from typing import Any

import pytest

from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.analysis.profiled import kernel_time
from nsight_prof.reports.findings.model import Finding
from nsight_prof.reports.findings.values.findings import value_findings
from nsight_prof.reports.verdicts.ranking import findings
from tests.reports.findings.program.test_host_work import MS, line
from tests.reports.programs import english, write

LOOP, BLOCK, LAYER, WAVES = 80, 40, 25, 12
"""Lines of a model: the loop calls blocks one after another, each a layer, which makes waves."""
FUNCTIONS = {LOOP: "run", BLOCK: "forward", LAYER: "attend", WAVES: "waves", WAVES + 1: "waves"}
AROUND = {LOOP: [], BLOCK: [LOOP], 60: [LOOP], LAYER: [BLOCK, LOOP],
          **dict.fromkeys((WAVES, WAVES + 1), [LAYER, BLOCK, LOOP])}  # fmt: skip
"""The lines that call each."""
CALLS = 144
"""Calls in 12 steps of 12 layers."""


def operator(name: str, *stack: int, calls: int = CALLS, **more: Any) -> dict[str, Any]:
    """An operator on new inputs in each call, by its lines from the outermost to its own."""
    frames = [{"file": "/a/model.py", "function": FUNCTIONS.get(n, "f"), "line": n} for n in stack]
    return {
        "process": 1,
        "operator": f"aten::{name}",
        "direction": "forward",
        **frames[-1],
        "callers": json.dumps(frames[-2::-1]),
        "input_shapes": "[[64, 64]]",
        "input_dtypes": '["float32"]',
        "result_shapes": "[[64, 64]]",
        "result_dtypes": '["float32"]',
        "calls": calls,
        "distinct_inputs": calls,
        "distinct_results": calls,
        "elsewhere": 0,
        "random": False,
        "sampled": False,
        "zeros": "[0.0]",
        "results_read": 1.0,
        "time_ns": MS,
    } | more


def same(name: str, *stack: int, distinct: int | None = 12, **more: Any) -> dict[str, Any]:
    """An operator on inputs that come again, those of a layer in the layers behind it."""
    repeats = {"distinct_inputs": distinct, "distinct_results": distinct, "apart": 1.0}
    return operator(name, *stack, **repeats | more)


MODEL = [
    operator("mm", LOOP, BLOCK),
    operator("mul", LOOP, BLOCK, LAYER),
    operator("_softmax", LOOP, BLOCK, LAYER),
    operator("add_", LOOP, calls=12),
]
"""What the model has to compute: three milliseconds, and a sum of all steps."""
WHOLE = [same("cos", LOOP, BLOCK, LAYER, WAVES), same("mul", LOOP, BLOCK, LAYER, WAVES + 1)]


def launched(run: Run, values: list[dict[str, Any]], at: dict[int, int]) -> Run:
    """A run whose longest kernel is launched at lines, each with some of its samples."""
    rows = [
        {
            "kernel_id": run.kernels["kernel_id"].iloc[0],
            "call": "",
            "file": "/a/model.py",
            "line": n,
            "function": FUNCTIONS.get(n, "f"),
            "inner": "",
            "callers": " < ".join(
                f"/a/model.py:{outer} {FUNCTIONS[outer]}"
                for outer in sorted(FUNCTIONS)
                if outer > n
            ),
            "samples": samples,
            "time_ns": samples * MS / 10,
        }
        for n, samples in at.items()
    ]
    run = write(run, "host_lines", [line("", 5)])
    return write(write(run, "launch_lines", rows), "operator_values", values)


def told(run: Run) -> list[Finding]:
    return value_findings(run)


def test_work_of_each_layer_is_told_once_at_the_call_that_can_be_hoisted(run: Run) -> None:
    run = launched(run, [*MODEL, *WHOLE], {WAVES: 20, WAVES + 1: 10, BLOCK: 30})
    (found,) = told(run)
    assert found.rule == "repeated_work"
    verdict = english(found.verdict)
    assert verdict.startswith("At model.py:25 the program computes again what it has")
    assert "12 of 144 calls of aten::cos have new inputs, where 100 % of those" in verdict
    assert "called from model.py:40 and model.py:80" in verdict
    # half of the samples are within the call, whose operators repeat 11 of 12 calls: two of four
    first = run.kernels["total_ns"].iloc[0]
    assert found.share == pytest.approx(first / 2 / kernel_time(run))
    assert found.gain_ns == pytest.approx(11 / 12 * 2 / 4 * first / 2)


def test_an_operator_whose_inputs_nobody_compared_changes_no_verdict(run: Run) -> None:
    reader = json.dumps({"operator": "aten::cos", "file": "/a/model.py", "line": WAVES})
    lacks = {"distinct_inputs": None, "distinct_results": None, "read_by": reader}
    unknown = operator("exp", LOOP, BLOCK, calls=4 * CALLS, **lacks)
    at = {WAVES: 20, WAVES + 1: 10, BLOCK: 30}
    (found,) = told(launched(run, [*MODEL, unknown, *WHOLE], at))
    assert found.rule == "repeated_work"


@pytest.mark.parametrize(
    "values",
    [
        pytest.param([same("mm", LOOP), same("cos", LOOP, BLOCK)], id="one batch in all steps"),
        pytest.param([operator("mm", LOOP), same("cos", LOOP, random=True,
                     distinct_results=144)], id="drawn"),
        pytest.param([operator("mm", LOOP), same("mul_", LOOP)], id="in place"),
        pytest.param([operator("mm", LOOP), same("zeros", LOOP)], id="memory to write into"),
        pytest.param([operator("mm", LOOP), same("view", LOOP)], id="no work"),
        pytest.param([operator("mm", LOOP), same("mm", LOOP, direction="backward")], id="derived"),
        pytest.param([operator("mm", LOOP), same("mm", LOOP, distinct=100)], id="new enough"),
        pytest.param([operator("mm", LOOP), same("mm", LOOP, distinct=None)], id="unknown"),
        pytest.param([operator("mm", LOOP, calls=12), same("mm", LOOP, calls=12, distinct=4,
                     apart=4.0)],
                     id="batches of a frozen network, in turn"),
    ],
)  # fmt: skip
def test_work_on_new_inputs_is_no_repetition(run: Run, values: list[dict[str, Any]]) -> None:
    assert not told(launched(run, values, {LOOP: 30, BLOCK: 30}))


def test_what_is_launched_beside_recorded_operators_stays(run: Run) -> None:
    """A call whose operators all repeat cannot go where it launches what nobody recorded."""
    values = [operator("mm", LOOP, 60), operator("add_", LOOP, calls=12), *WHOLE]
    for at, samples in ((LOOP, {WAVES: 30, 60: 30}), (LAYER, {WAVES: 20, LAYER: 20, 60: 30})):
        (found,) = told(launched(run, values, samples))
        assert english(found.verdict).startswith(f"At model.py:{at} the program")


def test_equal_inputs_by_chance_are_no_repetition(run: Run) -> None:
    """A comparison gives the same for other inputs, as what follows shows."""
    by = {"operator": "aten::mean", "file": "/a/model.py", "function": "run", "line": LOOP}
    chance = operator("lt", LOOP, distinct_results=1, read_by=json.dumps(by), calls=12)
    values = [operator("mm", LOOP, calls=12), chance, same("mean", LOOP, distinct=1, calls=12)]
    assert not told(launched(run, values, {LOOP: 30}))
    assert told(launched(run, [values[0], values[2]], {LOOP: 30}))


def test_weights_that_are_cast_in_each_layer_are_told_at_the_call_around(run: Run) -> None:
    casts = [same("_to_copy", LOOP, BLOCK, LAYER + n, time_ns=3 * MS) for n in range(2)]
    (found,) = told(launched(run, [*MODEL, *casts], {BLOCK: 30}))
    assert english(found.verdict).startswith("At model.py:40 the program")
    assert "model.to(torch.bfloat16)" in english(found.action)


def test_what_one_batch_of_a_training_repeats_is_told_with_that_doubt(run: Run) -> None:
    step = operator("_foreach_add_", LOOP, 90, calls=12, direction="optimizer")
    values = [operator("mm", LOOP, calls=12), same("mean", LOOP, distinct=1, calls=12)]
    (found,), (doubted,) = (told(launched(run, v, {LOOP: 9})) for v in (values, [*values, step]))
    assert (found.confidence, doubted.confidence) == ("medium", "low")
    assert "real batches differ" in english(doubted.verdict)


def test_what_another_line_computed_before_is_told_with_that_line(run: Run) -> None:
    first = [{"file": "/a/model.py", "function": name, "line": n}
             for n, name in ((BLOCK, "forward"), (70, "f"), (LOOP, "run"))]  # fmt: skip
    again = operator("mm", LOOP, 60, BLOCK, elsewhere=140, earlier_at=json.dumps(first))
    values = [operator("mm", LOOP, 70, BLOCK), again, operator("argmax", LOOP, 60)]
    (found,) = told(launched(run, values, {60: 30}))
    assert "At model.py:60 the program computes again what it has" in english(found.verdict)
    assert "in 140 of 144 calls aten::mm has the inputs that it had at model.py:70 before" in (
        english(found.verdict)
    )


def of_numbers(*, takes: str = "[[64, 64]]") -> list[dict[str, Any]]:
    """A model on one batch in all steps, each layer of which makes a table of numbers alone."""
    reader = {"operator": "aten::mul", "file": "/a/model.py", "line": WAVES + 1}
    none: dict[str, Any] = {"input_shapes": "[]", "input_dtypes": "[]"}
    at = (LOOP, BLOCK, LAYER)
    return [
        same("mm", LOOP, BLOCK, input_shapes="[[32, 64], [64, 64]]",
             input_dtypes='["float32", "float32"]'),
        same("arange", *at, WAVES, read_by=json.dumps(reader), **none),
        same("mul", *at, WAVES + 1, input_shapes=takes),
    ]  # fmt: skip


def test_what_comes_of_numbers_alone_repeats_whatever_the_batches_are(run: Run) -> None:
    launches = {WAVES: 20, WAVES + 1: 10, BLOCK: 30}
    (found,) = told(launched(run, of_numbers(), launches))
    assert english(found.title) == (
        "The program computes the same again at model.py:25, of numbers alone: 12 distinct inputs "
        "in 144 calls"
    )
    # A tensor of another size comes from outside, where the batch may be what repeats.
    (found,) = told(launched(run, of_numbers(takes="[[32, 64]]"), launches))
    assert " at model.py:12, of numbers alone" in english(found.title)


def test_without_values_or_lines_nothing_is_told(run: Run) -> None:
    assert not told(launched(run, [], {LAYER: 30}))
    assert not told(write(launched(run, [*MODEL, *WHOLE], {LAYER: 30}), "launch_lines", []))


def test_the_cause_stands_before_what_waits_for_its_launches(run: Run) -> None:
    run = launched(run, [*MODEL, *WHOLE], {WAVES: 20, WAVES + 1: 10, BLOCK: 30})
    waits = {"stage": "decode", "cause": "launches", "waited": "", "call": "", "nvtx_range": "",
             "gaps": 500, "idle_ns": 6 * MS, "longest_ns": MS // 10}  # fmt: skip
    run = write(run, "idle_gaps", [waits])
    callers = "/a/model.py:25 attend < /a/model.py:40 forward < /a/model.py:80 run"
    at = {"activity": "launching", "file": "/a/model.py", "function": "waves", "callers": callers}
    run = write(run, "host_lines", [line("", 50, **at | {"line": WAVES})])
    order = [f.rule for f in findings(run) if f.rule in ("repeated_work", "launch_bound")]
    assert order == ["repeated_work", "launch_bound"]
    (found,) = told(run)
    assert found.gain_of == "wall time"
    assert found.stage == "decode"


def test_rows_of_zeros_whose_products_nothing_reads_are_told_once(run: Run) -> None:
    """Padding: the first product works on it, and of the second nobody reads what comes of it."""
    padded: dict[str, Any] = {"zeros": "[0.7]", "zero_rows": "[0.7]", "calls": 12}
    values = [operator("mul", LOOP, calls=12), operator("bmm", LOOP, 60, **padded),
              operator("bmm", LOOP, 61, results_read=0.3, **padded),
              operator("add", LOOP, calls=12)]  # fmt: skip
    (found,) = told(launched(run, values, {60: 30, 61: 10}))
    assert found.rule == "zeros_multiplied"
    assert "At model.py:60 and model.py:61 aten::bmm multiplies" in english(found.verdict)
    assert found.gain_ns == pytest.approx(0.7 * run.kernels["total_ns"].iloc[0])


def test_a_product_of_which_one_row_is_read_is_told_with_its_reader(run: Run) -> None:
    by = {"operator": "aten::argmax", "file": "/a/model.py", "function": "run", "line": 83}
    head = operator("mm", LOOP, 60, results_read=0.01, read_by=json.dumps(by), calls=12)
    values = [operator("mul", LOOP, calls=12), head, operator("argmax", LOOP, 83, calls=12)]
    (found,) = told(launched(run, values, {60: 30}))
    assert found.rule == "unread_results"
    assert "Of what aten::mm computes at model.py:60, 1.0 % is read" in english(found.title)
    assert "aten::argmax at model.py:83" in english(found.verdict)
    assert "head(x[:, -1])" in english(found.action)
    assert found.gain_ns == pytest.approx(0.99 * run.kernels["total_ns"].iloc[0])


def test_what_nothing_reads_is_told_unless_it_is_what_a_step_ends_with(run: Run) -> None:
    weights = operator("mean", LOOP, 60, results_read=0.0)
    (found,) = told(launched(run, [*MODEL, weights, operator("mm", LOOP, 70)], {60: 30}))
    assert "Nothing reads what aten::mean computes at model.py:60" in english(found.title)
    assert "need_weights=False" in english(found.action)
    assert not told(launched(run, [*MODEL, weights], {60: 30}))


def test_a_sort_of_which_few_are_read_is_to_be_a_choice(run: Run) -> None:
    ranks = operator("sort", LOOP, 60, results_read=0.01)
    (found,) = told(launched(run, [*MODEL, ranks, operator("mm", LOOP, 70)], {60: 30}))
    assert "torch.topk" in english(found.action)
    assert found.gain_ns == pytest.approx(0.7 * run.kernels["total_ns"].iloc[0])


@pytest.mark.parametrize(
    ("zeros", "rows", "title"),
    [
        ("[0.999, 0.0]", "[0.1, 0.0]", "99.9 % of a matrix that aten::mm multiplies"),
        ("[0.6, 0.0]", "[0.6, 0.0]", "60.0 % of the rows that aten::mm multiplies"),
        ("[0.6, 0.0]", "[0.1, 0.0]", ""),
        ("[1.0, 0.0]", "[1.0, 0.0]", ""),
        ("[null, null]", "", ""),
    ],
)
def test_products_with_zeros_are_told(run: Run, zeros: str, rows: str, title: str) -> None:
    product = operator("mm", LOOP, 60, zeros=zeros, zero_rows=rows)
    found = told(launched(run, [*MODEL, product], {60: 30}))
    assert [title in english(f.title) for f in found] == [True] * bool(title)
