from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nsight_prof.orchestrator.tools import nsys, target
from nsight_prof.parsers.errors import ArtifactUnreadable, StepFailed, ToolMissing, UsageError

HELP = (Path(__file__).resolve().parent.parent / "fakes/nsys-profile-help.txt").read_text()
FEATURES = nsys.parse_features(HELP)
REQUEST = nsys.TraceRequest("nsys", Path("out/trace"), ("./app", "--batch", "4"))


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("NVIDIA Nsight Systems version 2023.4.4.54-234433681190v0\n", "2023.4.4.54"),
        ("NVIDIA Nsight Systems version 2025.3.1.0\n", "2025.3.1.0"),
        ("NVIDIA Nsight Systems version 2021.2.1.58-642947b", "2021.2.1.58"),
        ("bash: nsys: command not found", ""),
        ("", ""),
    ],
)
def test_the_version_is_read(text: str, version: str) -> None:
    assert nsys.parse_version(text) == version


def test_the_command_traces_kernels_and_ranges_and_nothing_that_costs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert nsys.profile_argv(REQUEST, FEATURES) == [
        "nsys",
        "profile",
        "--output=out/trace",
        "--force-overwrite=true",
        "--trace=cuda,nvtx",
        "--sample=none",
        "--cpuctxsw=none",
        "--cuda-graph-trace=node",
        "./app",
        "--batch",
        "4",
    ]


def test_an_option_that_this_version_lacks_is_left_out() -> None:
    argv = nsys.profile_argv(REQUEST, FEATURES - {"--cuda-graph-trace"})
    assert not any("graph" in word for word in argv)
    assert "--discard-environment" not in FEATURES
    assert "--discard-environment=true" in nsys.profile_argv(
        REQUEST, FEATURES | {"--discard-environment"}
    )


def test_the_profiler_api_bounds_the_capture() -> None:
    argv = nsys.profile_argv(replace(REQUEST, capture="profiler-api"), FEATURES)
    assert "--capture-range=cudaProfilerApi" in argv
    assert "--capture-range-end=stop" in argv


def test_one_nvtx_range_is_captured_by_name_also_of_unregistered_strings() -> None:
    request = replace(REQUEST, capture="nvtx", nvtx_range="decode@step")
    argv = nsys.profile_argv(request, FEATURES)
    assert "--capture-range=nvtx" in argv
    assert "--nvtx-capture=decode\\@step" in argv
    assert nsys.environment(request) == {"NSYS_NVTX_PROFILER_REGISTER_ONLY": "0"}
    assert nsys.environment(REQUEST) == {}


@pytest.mark.parametrize(
    ("given", "usual"),
    [
        ("--sample=process-tree", "--sample=none"),
        ("--cuda-graph-trace=graph", "--cuda-graph-trace=node"),
        ("-t", "--trace=cuda,nvtx"),
    ],
)
def test_extra_arguments_win_and_no_option_is_given_twice(given: str, usual: str) -> None:
    """nsys 2025.3.1 ends with "option '--cuda-graph-trace' cannot be specified more than once"."""
    argv = nsys.profile_argv(replace(REQUEST, extra_args=(given,)), FEATURES)
    assert argv.index(given) < argv.index("./app")
    assert usual not in argv
    assert usual in nsys.profile_argv(REQUEST, FEATURES)


def test_the_export_overwrites_a_stale_file() -> None:
    argv = nsys.export_argv("nsys", Path("trace.nsys-rep"), Path("trace.sqlite"))
    assert argv[:2] == ["nsys", "export"]
    assert "--force-overwrite=true" in argv
    assert argv[-1] == "trace.nsys-rep"


def test_payloads_of_nvtx_ranges_are_exported_where_nsys_can() -> None:
    files = ("nsys", Path("trace.nsys-rep"), Path("trace.sqlite"))
    assert "--include-blobs=true" in nsys.export_argv(
        *files, nsys.parse_features("--include-blobs=")
    )
    assert not any("blobs" in word for word in nsys.export_argv(*files))


def test_143_is_a_success_only_where_the_range_shuts_the_program_down() -> None:
    ends = replace(REQUEST, extra_args=("--capture-range-end=stop-shutdown",))
    assert nsys.succeeded(0, REQUEST)
    assert nsys.succeeded(143, ends)
    assert not nsys.succeeded(143, REQUEST)
    assert not nsys.succeeded(1, ends)
    assert not nsys.succeeded(None, REQUEST)


@pytest.mark.parametrize(
    ("log", "kind", "words"),
    [
        ("Unable to retrieve the importer version.", ToolMissing, "cannot import"),
        ("unrecognised option '--bogus=1'\n\nusage: nsys profile", UsageError, "--bogus=1"),
        ("Executable not found in current directory or standard search", StepFailed, "program"),
        ("Executable '/x' not found in current directory or standard", StepFailed, "program"),
        ("Exportation error: Cannot read from stream.", ArtifactUnreadable, "Cannot read from"),
        ("CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED", StepFailed, "another profiler"),
    ],
)
def test_known_failures_are_explained_with_a_remedy(log: str, kind: Any, words: str) -> None:
    error = nsys.explain(f"some line\n{log}\nanother line")
    assert error is not None
    assert type(error) is kind
    assert words in error.message
    assert error.hint


def test_unknown_output_is_not_explained() -> None:
    assert nsys.explain("Generated:\n    trace.nsys-rep") is None
    assert target.explain("step 1 of 3\nlosses went down") is None


def test_the_installed_nsys_has_the_options_that_the_commands_use(nsight: Path) -> None:
    from nsight_prof.orchestrator.system.process import ask

    answer = ask([str(nsight / "nsys"), "profile", "--help"])
    offered = nsys.parse_features(answer.stdout + answer.stderr)
    exports = ask([str(nsight / "nsys"), "export", "--help"])
    # --include-blobs came after nsys 2023.4, and is given where it is offered.
    assert {"--output", "--type"} <= nsys.parse_features(exports.stdout + exports.stderr)
    assert {"--trace", "--sample", "--cpuctxsw", "--cuda-graph-trace", "--nvtx-capture"} <= offered
