"""The harness on a CPU: records, statuses, modes, choices, counting, and what a kill leaves."""

import gc
import json
import weakref
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from nsight_prof.targets.harness import Case, Roof, Setup, Unsupported, Work, positive, run_target
from nsight_prof.targets.harness.api import Call
from nsight_prof.targets.harness.failures import classify
from nsight_prof.targets.harness.session import Session

torch = pytest.importorskip("torch", reason="torch is not installed (pip install torch==2.13.0)")

Run = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def valid(root: Path) -> Callable[[dict[str, Any]], None]:
    schema = json.loads((root / "parsers" / "bench.schema.json").read_text(encoding="utf-8"))
    validator = jsonschema.Draft202012Validator(schema)
    return lambda record: validator.validate(record)


@pytest.fixture
def run(tmp_path: Path, valid: Callable[[dict[str, Any]], None]) -> Run:
    """Runs cases on the CPU; returns their records, which fit the schema."""

    def go(*cases: Case, options: Sequence[str] = (), code: int = 0) -> list[dict[str, Any]]:
        out = tmp_path / "records.jsonl"
        argv = ["--device", "cpu", "--case-time", "0.02", "--out", str(out), *options]
        assert run_target("test", lambda args: iter(cases), argv, description="test") == code
        records = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
        for record in records:
            valid(record)
        assert records[0]["record"] == "conditions"
        return records[1:]

    return go


def add(setup: Setup) -> list[Call]:
    ones = [torch.ones(64, device=setup.device) for _ in range(setup.copies)]
    return [lambda x=x: x.add_(1) for x in ones]  # type: ignore[misc]


def case(name: str = "a/add", prepare: Any = add, **fields: Any) -> Case:
    return Case(
        **{"name": name, "operation": "addition", "prepare": prepare, "work": Work(flops=64.0)}
        | fields
    )


def raises(error: Exception) -> Callable[[Setup], list[Call]]:
    def prepare(setup: Setup) -> list[Call]:
        raise error

    return prepare


def test_a_case_is_timed_in_each_mode_on_each_kind_of_data(run: Run) -> None:
    both = case(modes=("cold", "hot"), data=("normal", "zeros"), footprint_bytes=256)
    records = run(both, options=("--process", "2", "--repeat", "3", "--seed", "7"))
    assert [(r["mode"], r["data"]) for r in records] == [
        ("cold", "normal"),
        ("hot", "normal"),
        ("cold", "zeros"),
        ("hot", "zeros"),
    ]
    for record in records:
        time = record["time"]
        assert record["status"] == "ok"
        assert (record["process"], record["repeat"]) == (2, 3)
        assert time["n"] == len(time["samples_s"]) >= 10
        assert time["min_s"] <= time["p5_s"] <= time["median_s"] <= time["p95_s"] <= time["max_s"]
        assert not time["captured"]
        assert record["clock"] is record["throttle"] is record["memory"] is None
    # 3 x 64 KiB of other buffers between two uses of one of 256 B.
    assert [r["time"]["copies"] for r in records] == [769, 1, 769, 1]


def test_prepare_is_told_what_to_make(run: Run) -> None:
    seen: list[Setup] = []

    def prepare(setup: Setup) -> list[Call]:
        seen.append(setup)
        return add(setup)

    run(case(prepare=prepare, data=("zeros",), footprint_bytes=64 << 10), options=("--seed", "5"))
    (setup,) = seen
    assert (setup.copies, setup.data, setup.seed) == (4, "zeros", 5)
    assert setup.device.type == "cpu"


def test_data_do_not_depend_on_the_cases_before(run: Run) -> None:
    drawn: list[float] = []

    def prepare(setup: Setup) -> list[Call]:
        drawn.append(float(torch.randn(1)))
        return add(setup)

    run(case("a", prepare), case("b", prepare))
    assert drawn[0] == drawn[1]


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (Unsupported("needs a GPU of compute capability 9"), "unsupported"),
        (NotImplementedError("not for this type"), "unsupported"),
        (RuntimeError("\"addmm\" not implemented for 'Half'"), "unsupported"),
        (RuntimeError("mat2 shape (3x5 must be divisible by 16)"), "unsupported"),
        (RuntimeError("CUDA out of memory. Tried to allocate 20 GiB"), "out-of-memory"),
        (torch.OutOfMemoryError("CUDA out of memory."), "out-of-memory"),
        (MemoryError(), "out-of-memory"),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), "failed"),
        (ZeroDivisionError("division by zero"), "failed"),
    ],
)
def test_what_cannot_run_is_a_row_and_the_sweep_goes_on(
    run: Run, error: Exception, status: str
) -> None:
    records = run(case("a", raises(error)), case("b"))
    assert [r["status"] for r in records] == [status, "ok"]
    assert records[0]["reason"]
    assert str(error) in records[0]["reason"]


def test_a_reason_is_one_line_of_bounded_length() -> None:
    status, reason = classify(RuntimeError("CUDA error\n\n" + "x" * 5000))
    assert status == "failed"
    assert len(reason) < 400
    assert "\n" not in reason


def test_a_call_that_raises_fails_its_case(run: Run) -> None:
    def broken() -> None:
        raise RuntimeError("the call broke")

    (record,) = run(case(prepare=lambda setup: [broken]))
    assert (record["status"], record["reason"]) == ("failed", "RuntimeError: the call broke")


def test_a_case_may_measure_itself(run: Run) -> None:
    own = case(samples=lambda setup: [1e-6, 2e-6, 3e-6], work=Work(launches=1))
    (record,) = run(own)
    assert record["time"]["median_s"] == 2e-6
    assert record["time"]["stop"] == "samples"
    assert record["time"]["ci_low_s"] is None


def test_counting_runs_each_case_once_and_leaves_out_what_has_nothing_to_count(run: Run) -> None:
    calls: list[str] = []
    cases = [
        case("once", lambda setup: [lambda: calls.append("once")]),
        case("never", lambda setup: [lambda: calls.append("never")], counted=False),
    ]
    records = run(*cases, options=("--count",))
    assert [(r["case"], r["status"], r["time"]) for r in records] == [("once", "counted", None)]
    assert calls == ["once", "once"]  # the first of them is the warm-up, outside of the profiler
    calls.clear()
    run(*cases, options=("--count", "--launches", "4"))
    assert len(calls) == 5


def test_gemms_say_how_often_a_profiler_sees_them(run: Run) -> None:
    gemm = {"name": "gemm", "m": 8, "n": 8, "k": 8}
    (record,) = run(case("g", extra={"gemms": [gemm]}), options=("--count", "--launches", "10"))
    assert record["gemms"] == [{**gemm, "stage": "case:g|cold|normal", "calls": 10}]


def test_only_chooses_and_list_names(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    cases = [case("a", modes=("cold", "hot")), case("b")]
    assert [r["case"] for r in run(*cases, options=("--only", r"^b\|"))] == ["b"]
    argv = ["--device", "cpu", "--list"]
    assert run_target("test", lambda args: cases, argv, description="test") == 0
    assert capsys.readouterr().out.split() == ["a|cold|normal", "a|hot|normal", "b|cold|normal"]


@pytest.mark.parametrize("listed", [(), ("--list",)])
def test_choosing_nothing_is_an_error(
    listed: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["--device", "cpu", "--only", "nowhere", *listed]
    assert run_target("test", lambda args: [case()], argv, description="test") == 1
    assert "error: no case was chosen\n\nhint: --only is searched" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ("--launches", "0"),
        ("--min-samples", "-1"),
        ("--case-time", "0"),
        ("--case-time", "nan"),
        ("--max-noise", "much"),
        ("--only", "("),
        ("--size", "0"),
        ("--unknown",),
    ],
)
def test_a_wrong_option_is_an_error_with_a_hint(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    def own(parser: ArgumentParser) -> None:
        parser.add_argument("--size", type=positive, nargs="+")

    with pytest.raises(SystemExit) as ended:
        run_target("test", lambda args: [], words, description="test", add_arguments=own)
    assert ended.value.code == 2
    error, hint = capsys.readouterr().err.split("\n\n")
    assert error.startswith("error: ")
    assert words[0] in error
    assert "--help" in hint


def test_what_a_list_names_twice_is_measured_once(capsys: pytest.CaptureFixture[str]) -> None:
    def own(parser: ArgumentParser) -> None:
        parser.add_argument("--size", type=positive, nargs="+")

    argv = ["--device", "cpu", "--list", "--size", "8", "4", "8"]
    cases = lambda args: [case(f"s{size}") for size in args.size]  # noqa: E731
    assert run_target("test", cases, argv, description="test", add_arguments=own) == 0
    assert capsys.readouterr().out.split() == ["s8|cold|normal", "s4|cold|normal"]


def test_a_file_in_no_folder_is_an_error_with_a_hint(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["--device", "cpu", "--out", str(tmp_path / "missing" / "records.jsonl")]
    assert run_target("test", lambda args: [case()], argv, description="test") == 1
    assert "hint: --out needs a folder" in capsys.readouterr().err


def test_what_a_case_leaves_is_collected_once_and_not_looked_at_again(run: Run) -> None:
    gone: list[weakref.ref[Any]] = []

    def prepare(setup: Setup) -> list[Call]:
        class Cycle:
            def __init__(self) -> None:
                self.itself = self
                self.buffer = torch.ones(8)

            def __call__(self) -> object:
                return self.buffer.add_(1)

        gone.append(weakref.ref(call := Cycle()))
        return [call]

    def look(setup: Setup) -> list[Call]:
        seen.append((gone[0]() is None, gc.get_freeze_count() - started[0]))
        return add(setup)

    kept: list[list[int]] = []

    def keep(setup: Setup) -> list[Call]:
        started.append(gc.get_freeze_count())
        kept.extend([] for _ in range(1000))
        return prepare(setup)

    started: list[int] = []
    seen: list[tuple[bool, int]] = []
    run(case("a", keep), case("b", look))
    ((collected, frozen),) = seen
    assert collected
    assert frozen >= 1000
    assert gc.get_freeze_count() == 0  # the process that ran the target is as it was


def test_two_cases_of_one_name_are_an_error(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    run(case("a"), case("a"), code=1)
    assert "two cases are named a" in capsys.readouterr().err


def test_records_are_complete_before_the_next_case_begins(tmp_path: Path) -> None:
    out = tmp_path / "records.jsonl"
    seen: list[int] = []

    def cases(args: Namespace) -> Iterator[Case]:
        for name in ("a", "b", "c"):
            lines = out.read_text(encoding="utf-8").splitlines()
            seen.append(len([json.loads(line) for line in lines]))
            if name == "c":
                raise KeyboardInterrupt
            yield case(name)

    argv = ["--device", "cpu", "--case-time", "0.01", "--out", str(out)]
    assert run_target("test", cases, argv, description="test") == 130
    assert seen == [1, 2, 3]


def test_without_a_file_records_go_to_stdout_and_lines_to_stderr(
    capsys: pytest.CaptureFixture[str],
) -> None:
    argv = ["--device", "cpu", "--case-time", "0.01"]
    assert run_target("test", lambda args: [case()], argv, description="test") == 0
    captured = capsys.readouterr()
    assert [json.loads(line)["record"] for line in captured.out.splitlines()] == [
        "conditions",
        "case",
    ]
    assert captured.err.startswith("a/add|cold|normal: ")


def test_a_missing_gpu_is_an_error_with_a_hint(capsys: pytest.CaptureFixture[str]) -> None:
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    assert run_target("test", lambda args: [case()], [], description="test") == 1
    error = capsys.readouterr().err
    assert error.startswith("error: torch sees no CUDA device\n\nhint: ")


def test_a_case_is_refused_whose_record_nobody_could_read() -> None:
    with pytest.raises(ValueError, match="characters"):
        case("Has Blanks")
    with pytest.raises(ValueError, match="mode"):
        case(modes=("lukewarm",))
    with pytest.raises(ValueError, match="duration"):
        case(duration="long")


def test_a_roof_is_written_with_its_case(run: Run) -> None:
    (record,) = run(case(roof=Roof("tensor", "burst", "bf16"), duration="burst"))
    assert record["roof"] == {"level_or_pipe": "tensor", "kind": "burst", "dtype": "bf16"}
    assert record["duration"] == "burst"


def test_a_lost_context_fails_the_rest_and_the_process(
    run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Session, "_lost", lambda self: "an illegal memory access")
    broken = case("b", raises(RuntimeError("CUDA error")))
    records = run(case("a"), broken, case("c"), case("d"), code=1)
    assert [r["status"] for r in records] == ["ok", "failed", "failed", "failed"]
    assert "illegal memory access" in records[1]["reason"]
    assert all("the CUDA context is lost" in r["reason"] for r in records[2:])
    assert "error: the CUDA context was lost" in capsys.readouterr().err
