"""Tools that hang, crash, flood, refuse, or say that all went well: what a run makes of them."""

import ast
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from nsight_prof.orchestrator.run import doctor, machine, steps
from nsight_prof.orchestrator.system import discover, process
from nsight_prof.orchestrator.system.permission import ask_counters
from nsight_prof.orchestrator.tools import ncu, nsys, target
from nsight_prof.parsers.errors import (
    ArtifactUnreadable,
    PermissionRefused,
    ProfError,
    StepFailed,
    ToolMissing,
    UsageError,
)
from tests.fakes import faulty


@pytest.fixture(autouse=True)
def _ask_anew() -> Any:
    """A process asks each tool once; a test may have made another tool of it."""
    discover._answers.cache_clear()
    yield
    discover._answers.cache_clear()


WHAT = {
    "hangs": "did not end within 20 s",
    "crashes": r"was killed \(SIGSEGV\)",
    "floods": "printed more than 1 MiB and was ended",
    "mute": "says nothing that nsys says",
    "no-library": "ended with exit code 127: error while loading shared libraries",
}


@pytest.mark.parametrize("mode", faulty.MODES)
def test_an_nsys_that_does_not_answer_is_not_called_absent(
    lab: Any, mode: str, timeout_when: Any
) -> None:
    lab.fake(FAKE_NSYS=mode)
    lab.monkeypatch.setattr(process, "LONGEST_ANSWER", 1 << 20)
    if mode == "hangs":
        timeout_when(lab.log.is_file)
    with pytest.raises(ToolMissing, match=f"nsys is here and does not work: .*{WHAT[mode]}") as no:
        lab.run()
    assert no.value.exit_code == 3
    assert "not on PATH" not in no.value.message
    assert not lab.out.exists()


def test_an_ncu_that_crashes_leaves_the_report_of_the_trace(lab: Any) -> None:
    lab.fake(FAKE_NCU="crashes")
    outcome = lab.run()
    assert outcome.exit_code == 3
    assert "ncu is here and does not work" in outcome.errors[0].message
    assert (lab.state("trace"), lab.state("counters")) == ("done", "unsupported")


def test_a_tool_that_hangs_is_asked_one_question(lab: Any, timeout_when: Any) -> None:
    """Each costs its whole time: `prof doctor` waited for four minutes."""
    lab.fake(FAKE_NSYS="hangs", FAKE_NCU="hangs")
    lab.monkeypatch.setattr(doctor, "has_gpu", lambda: True)
    lab.monkeypatch.setattr(doctor, "read_interpreter", lambda *_: {})
    timeout_when(lambda: lab.log.read_text().count("\n") if lab.log.is_file() else 0)
    checks = {check.name: check for check in doctor.examine()}
    asked = [ast.literal_eval(line)[1:] for line in lab.log.read_text().splitlines()]
    assert asked == [["--version"], ["--version"]]
    for name in ("nsys", "ncu"):
        assert checks[name].state == "missing"
        assert "did not end within" in checks[name].detail


def test_a_probe_that_fails_for_no_known_reason_is_no_permission(lab: Any) -> None:
    lab.fake(FAKE_NCU="probe-says", FAKE_WORDS="a segmentation of the moon")
    lab.monkeypatch.setattr(doctor, "has_gpu", lambda: True)
    lab.monkeypatch.setattr(doctor, "read_interpreter", lambda *_: {})
    check = {check.name: check for check in doctor.examine()}["counters"]
    assert check.state == "warning"
    assert "a segmentation of the moon" in check.detail
    # It forbids nothing: the real run will tell.
    assert lab.run().exit_code == 0


# Words of ncu 2024.1.1, from the program itself.
REFUSALS = (
    "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU "
    "Performance Counters on the target device 0. For instructions on enabling permissions and to "
    "get more information see https://developer.nvidia.com/ERR_NVGPUCTRPERM",
    "==ERROR== The user does not have permission to access NVIDIA GPU Performance Counters on the "
    "target vGPU device 0.",
    "==ERROR== Profiling is not supported on device 0. To find out supported GPUs refer "
    "--list-chips option.",
    "==ERROR== Profiling is not supported on device 0 as it uses the Windows Subsystem for Linux "
    "(WSL).",
    "==ERROR== ERR_NVCMPGPU - Profiling is not supported on the NVIDIA Crypto Mining Processors "
    "(CMP) of the target device 0.",
    "==ERROR== Confidential computing mode detected on device 0. Nsight Compute cannot run in a "
    "secure confidential computing environment.",
    "==ERROR== Profiling failed because a driver resource was unavailable or the user does not "
    "have permission to access NVIDIA GPU Performance Counters.",
)


@pytest.mark.parametrize("words", REFUSALS)
def test_counters_that_a_machine_refuses_are_told_by_what_ncu_says(words: str) -> None:
    error = ncu.explain(words)
    assert isinstance(error, PermissionRefused | ToolMissing)
    assert error.exit_code == 3
    assert words.removeprefix("==ERROR== ")[:60] in error.message


@pytest.mark.parametrize(
    ("mode", "words"), [("says", REFUSALS[0]), ("probe-says", REFUSALS[0]), ("says", REFUSALS[2])]
)
def test_counters_that_this_machine_refuses_are_no_fault_of_the_program(
    lab: Any, words: str, mode: str
) -> None:
    lab.fake(FAKE_NCU=mode, FAKE_WORDS=words)
    outcome = lab.run()
    assert outcome.exit_code == 3
    assert outcome.report_path.is_file()
    error = lab.manifest.step("counters").error
    assert words.removeprefix("==ERROR== ")[:60] in error
    assert "the program ended" not in error


def test_an_error_of_ncu_that_is_not_known_is_quoted(lab: Any) -> None:
    words = (
        "==PROF== Connected to process 7\n==ERROR== The flux capacitor is empty.\n"
        "==ERROR== The application returned an error code (1)."
    )
    lab.fake(FAKE_NCU="says", FAKE_WORDS=words)
    (error,) = lab.run().errors
    assert error.message == "ncu failed: The flux capacitor is empty."
    assert "ncu.log of the counters step" in error.hint


# Words of nsys 2023.4.4, with --gpu-metrics-device in trace.extra_args.
@pytest.mark.parametrize(
    "words",
    [
        "The user running Nsight Systems does not have permission to access NVIDIA GPU Performance "
        "Counters on the target device. For more details, please visit "
        "https://developer.nvidia.com/ERR_NVGPUCTRPERM",
        "GPU Metrics [0]: Profiling permission on a vGPU was not granted",
        "ERROR: --ftrace option requires root privileges.",
    ],
)
def test_what_nsys_is_refused_is_no_fault_of_the_program(lab: Any, words: str) -> None:
    lab.fake(FAKE_NSYS="says", FAKE_WORDS=words)
    with pytest.raises(PermissionRefused) as refused:
        lab.run()
    assert words[:60] in refused.value.message
    assert "trace.extra_args" in refused.value.hint


def test_a_device_that_nsys_does_not_have_was_asked_for_wrongly() -> None:
    words = "Illegal --gpu-metrics-device argument: 0.\nNo such GPU: 0.\n"
    error = nsys.explain(words)
    assert isinstance(error, UsageError)
    assert "--gpu-metrics-device" in error.message


@pytest.mark.parametrize("package", [True, False])
def test_counters_that_nobody_can_read_are_a_failed_step(lab: Any, package: bool) -> None:
    """ncu exits 0, and both its report and what it prints of it are garbage."""
    lab.fake(FAKE_NCU="garbage")
    if not package:
        lab.monkeypatch.setattr(steps, "can_read_rep", lambda: False)
    outcome = lab.run()
    assert outcome.exit_code == 4
    assert isinstance(outcome.errors[0], ArtifactUnreadable)
    assert lab.state("counters") == "failed"
    assert outcome.report_path.is_file()
    lab.fake(FAKE_NCU="")
    assert lab.run(resume=lab.out).exit_code == 0
    assert lab.state("counters") == "done"


LINE = "==PROF== Profiling " + "x" * 100
LONG = [
    "a" * 2_000_000,
    "nsight-compute " * 130_000,
    "Failed to find metric " * 90_000,
    "No kernels were profiled " * 80_000,
    "importer " * 220_000,
    "error: x\n" * 110_000 + " \n" * 400_000,
    "error: x\n" + "y\n" * 900_000,
    "device " * 280_000,
    "(" * 2_000_000,
    f"{LINE}\n" * 17_000,
]


@pytest.mark.parametrize("log", LONG, ids=[text[:12].strip() for text in LONG])
def test_a_log_of_megabytes_is_explained_in_proportion(log: str) -> None:
    """One line of 2 MB took 20 minutes; the limit of a test is two."""
    for explain in (ncu.explain, nsys.explain, target.explain, target.explain_itself):
        error = explain(log)
        assert error is None or len(error.message) < 1000


def test_the_end_of_a_long_log_counts_as_its_begin_does() -> None:
    for text in (f"{REFUSALS[0]}\n{LONG[-1]}", f"{LONG[-1]}\n{REFUSALS[0]}"):
        assert isinstance(ncu.explain(text), PermissionRefused)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("this test shows that we never run out of memory", "exit code 1 under nsys"),
        ("the queue was out of memory slots, see the wiki", "exit code 1 under nsys"),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried 2 GiB", "the GPU has too little"),
        ("GPUassert: out of memory app.cu 33", "the GPU has too little memory"),
        ("cudaMalloc failed: out of memory", "the GPU has too little memory"),
        ("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 9", "the GPU has too little"),
        ("numpy._core._exceptions._ArrayMemoryError: Unable to", "machine's memory, not"),
        ("terminate called: std::bad_alloc", "machine's memory, not of the GPU's"),
    ],
)
def test_out_of_memory_blames_the_gpu_where_it_is_the_gpus(lab: Any, line: str, words: str) -> None:
    with pytest.raises(StepFailed) as caught:
        lab.run(lab.recipe(f"import sys; sys.exit({line!r})"))
    assert words in caught.value.message


@pytest.mark.parametrize("length", [256, 5_000, 100_000])
def test_a_command_may_have_long_arguments(lab: Any, length: int, watcher: Any) -> None:
    watching = watcher()
    words = ["python3", "-c", "import sys; print(len(sys.argv[1]))", "a" * length]
    recipe = lab.recipe(target__file=None, target__command=words, counters__enabled=False)
    assert lab.run(recipe, progress=watching).exit_code == 0
    assert (lab.out / "steps/1-trace/stdout.log").read_text().startswith(f"{length}\n")
    assert max(map(len, watching.waited_for)) < 2_000


def test_an_argument_that_no_program_can_get_is_told_in_short(lab: Any) -> None:
    recipe = lab.recipe(target__file=None, target__command=["true", "a" * 200_000])
    with pytest.raises(StepFailed, match="the longest has 200,000 bytes") as caught:
        lab.run(recipe)
    assert len(caught.value.message) < 500
    assert "into a file" in caught.value.hint


def test_the_output_of_a_program_is_not_read_whole() -> None:
    class Unread:
        def __iter__(self) -> Any:
            raise AssertionError("read")

    request = nsys.TraceRequest("nsys", Path("x"), ("app",), "all")
    assert not nsys.captured_whole(Unread(), request)


def test_a_failed_probe_is_told_with_the_command_to_try(lab: Any) -> None:
    lab.fake(FAKE_NCU="probe-says", FAKE_WORDS="")
    tool = discover.find_ncu(os.environ)
    error = ask_counters(tool, dict(os.environ))
    assert isinstance(error, ProfError)
    assert not isinstance(error, ToolMissing)
    assert f"{tool.program} --config-file off" in error.hint
    assert sys.executable in error.hint


def test_what_a_killed_run_left_is_told_by_the_next(lab: Any, watcher: Any) -> None:
    lab.monkeypatch.setattr(machine, "abandoned", lambda: {4711: "train.py"})
    watching = watcher()
    lab.run(lab.recipe(counters__enabled=False), progress=watching)
    (told,) = (warning for warning in watching.warnings if "4711" in warning)
    assert "process 4711 (train.py) of a run that was killed still runs" in told
    assert told in lab.manifest.assumptions
