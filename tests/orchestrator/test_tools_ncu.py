import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nsight_prof.orchestrator.tools import ncu
from nsight_prof.parsers.errors import PermissionRefused, StepFailed, ToolMissing, UsageError

HELP = (Path(__file__).resolve().parent.parent / "fakes/ncu-help.txt").read_text()
FEATURES = ncu.parse_features(HELP)
REQUEST = ncu.CountersRequest(
    program="ncu",
    output=Path("out/counters"),
    log=Path("out/ncu.log"),
    target=("./app", "-k", "3"),
    kernels=("_Z4axpyfPfS_i", "nvjet_tst", "_Z4axpyfPfS_i"),
    metrics=("sm__cycles_active.avg", "dram__bytes.sum"),
    skip=2,
    count=3,
)
PERMISSION = (
    "==PROF== Connected to process 3486469 (/home/u/train)\n"
    "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU "
    "Performance Counters on the target device 0. For instructions see …\n"
    "==PROF== Trying to shutdown target application\n"
    "==WARNING== No kernels were profiled.\n"
)


def value(argv: Any, option: Any) -> Any:
    return argv[argv.index(option) + 1]


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("Copyright (c) 2018-2024\nVersion 2024.1.1.0 (build 33998838)\n", "2024.1.1.0"),
        ("Version 2025.3.1.0 (build 36398880) (public-release)", "2025.3.1.0"),
        ("ncu: command not found", ""),
    ],
)
def test_the_version_is_read(text: str, version: str) -> None:
    assert ncu.parse_version(text) == version


def test_one_run_takes_the_chosen_launches_of_each_kernel() -> None:
    argv = ncu.counters_argv(REQUEST, FEATURES)
    assert value(argv, "--filter-mode") == "per-launch-config"
    assert value(argv, "--kernel-name-base") == "mangled"
    assert value(argv, "--launch-skip") == "2"
    assert value(argv, "--launch-count") == "3"
    assert value(argv, "--kernel-name") == "regex:^(_Z4axpyfPfS_i|nvjet_tst)$"
    assert value(argv, "--metrics") == "sm__cycles_active.avg,dram__bytes.sum"
    assert argv[-3:] == ["./app", "-k", "3"]


def test_conditions_are_those_of_the_real_run() -> None:
    argv = ncu.counters_argv(REQUEST, FEATURES)
    assert value(argv, "--clock-control") == "none"
    assert value(argv, "--cache-control") == "none"
    assert value(argv, "--replay-mode") == "kernel"
    assert value(argv, "--graph-profiling") == "node"
    assert value(argv, "--target-processes") == "all"
    assert value(argv, "--config-file") == "off"
    assert value(argv, "--log-file") == "out/ncu.log"
    assert "--force-overwrite" in argv


def test_the_recipe_may_lock_clocks_and_flush_caches() -> None:
    request = replace(REQUEST, clock_control="base", cache_control="all")
    argv = ncu.counters_argv(request, FEATURES)
    assert value(argv, "--clock-control") == "base"
    assert value(argv, "--cache-control") == "all"


def test_options_that_this_version_lacks_are_left_out() -> None:
    argv = ncu.counters_argv(REQUEST, FEATURES - {"--graph-profiling"})
    assert "--graph-profiling" not in argv
    assert "node" not in argv


def test_without_per_launch_config_invocations_of_each_function_are_counted() -> None:
    argv = ncu.counters_argv(REQUEST, FEATURES - {"per-launch-config"})
    assert value(argv, "--kernel-id") == "::regex:^(_Z4axpyfPfS_i|nvjet_tst)$:3|4|5"
    assert "--filter-mode" not in argv


def test_the_profiler_api_bounds_the_capture() -> None:
    argv = ncu.counters_argv(replace(REQUEST, capture="profiler-api"), FEATURES)
    assert value(argv, "--profile-from-start") == "off"


def test_one_nvtx_range_bounds_the_capture_whatever_its_name() -> None:
    request = replace(REQUEST, capture="nvtx", nvtx_ranges=("decode[0]/a@b",))
    argv = ncu.counters_argv(request, FEATURES)
    assert "--nvtx" in argv
    assert value(argv, "--nvtx-include") == r"decode\[0\]\/a\@b/"
    several = ncu.counters_argv(replace(request, nvtx_ranges=("a", "b")), FEATURES)
    given = [several[at + 1] for at, word in enumerate(several) if word == "--nvtx-include"]
    assert given == ["a/", "b/"]


def test_one_occurrence_of_a_range_is_profiled_where_ncu_counts_them() -> None:
    request = replace(REQUEST, capture="nvtx", nvtx_ranges=("a", "b"), range_numbers=(3, 6))
    assert value(ncu.counters_argv(request, FEATURES), "--range-filter") == "::3|6"
    older = FEATURES - {"--range-filter"}
    assert "--range-filter" not in ncu.counters_argv(request, older)


def test_names_are_matched_literally_and_whole() -> None:
    names = ("void f<int>(T*)", "k.1$", "a|b")
    regex = ncu.kernel_regex(names)
    assert all(re.match(regex, name) for name in names)
    assert not re.match(regex, "kx1$")
    assert not re.match(regex, "a")
    assert not re.match(regex, "k.1$tail")


def test_more_names_than_one_argument_holds_are_refused_with_the_remedy() -> None:
    many = replace(REQUEST, kernels=tuple(f"_Z{i:0200d}" for i in range(1000)))
    with pytest.raises(UsageError, match="kernel names need") as caught:
        ncu.counters_argv(many, FEATURES)
    assert "top_k" in caught.value.hint


def test_extra_arguments_come_after_ours_and_before_the_program() -> None:
    argv = ncu.counters_argv(replace(REQUEST, extra_args=("--replay-mode", "range")), FEATURES)
    last = len(argv) - 1 - argv[::-1].index("--replay-mode")
    assert argv[last + 1] == "range"
    assert last < argv.index("./app")


def test_rules_are_asked_for_with_their_sections_and_beside_the_metrics() -> None:
    assert "--section" not in ncu.counters_argv(REQUEST, FEATURES)
    argv = ncu.counters_argv(replace(REQUEST, rules=True), FEATURES)
    kind, _, regex = value(argv, "--section").partition(":")
    assert kind == "regex"
    assert all(re.match(regex, section) for section in ncu.RULE_SECTIONS)
    # Costs much and carries no rule about a kernel's gain.
    assert not re.match(regex, "PmSampling")
    assert not re.match(regex, "SpeedOfLight_HierarchicalTensorRooflineChart")
    assert value(argv, "--apply-rules") == "yes"
    assert value(argv, "--metrics") == "sm__cycles_active.avg,dram__bytes.sum"


def test_the_pages_of_a_report() -> None:
    assert value(ncu.csv_argv("ncu", Path("a.ncu-rep")), "--page") == "raw"
    assert value(ncu.csv_argv("ncu", Path("a.ncu-rep"), "details"), "--page") == "details"


def test_unknown_metrics_are_named_once() -> None:
    log = (
        "==ERROR== Failed to find metric sm__no_such.sum\n"
        "==ERROR== Failed to find metric l1tex__gone.avg.pct\n"
        "==ERROR== Failed to find metric sm__no_such.sum\n"
    )
    assert ncu.unknown_metrics(log) == ["sm__no_such.sum", "l1tex__gone.avg.pct"]
    assert ncu.unknown_metrics("==PROF== Profiling") == []


@pytest.mark.parametrize(
    ("log", "kind", "words"),
    [
        (PERMISSION, PermissionRefused, "ERR_NVGPUCTRPERM"),
        ("==ERROR== unrecognised option '--bogus'. Use --help", UsageError, "--bogus"),
        (
            "==ERROR== Option '--section Foo' did not match any section.",
            UsageError,
            "the section Foo",
        ),
        ("==ERROR== '/x' does not exist or is not an executable.", StepFailed, "/x"),
        ("==ERROR== Failed to find metric sm__x.sum", StepFailed, "sm__x.sum"),
        (
            "==ERROR== An error was reported by the driver:\n"
            "==ERROR== Cuda driver is not compatible with Nsight Compute.",
            ToolMissing,
            "not compatible",
        ),
        (
            "==ERROR== Nsight Compute failed to connect to the CUDA driver (stub libcuda.so[.1] "
            "on path?).",
            ToolMissing,
            "failed to connect to the CUDA driver",
        ),
        ("==ERROR== Failed to connect to process 7.", StepFailed, "lost the program"),
        (
            "==ERROR== Profiling failed because a driver resource was unavailable. Ensure that no "
            "other tool (like DCGM) is concurrently collecting profiling data.",
            ncu.CountersInUse,
            "in use",
        ),
        (
            "==ERROR== Failed to prepare kernel for profiling\n"
            "==ERROR== Unknown Error on device 0.",
            StepFailed,
            "while it profiled",
        ),
        ("==ERROR== LibraryNotFound", ToolMissing, "LibraryNotFound"),
        ("==ERROR== The application returned an error code (9).", StepFailed, "exit code 9"),
        ("==WARNING== No kernels were profiled.", StepFailed, "profiled no kernel"),
    ],
)
def test_known_failures_are_explained_with_a_remedy(log: str, kind: Any, words: str) -> None:
    error = ncu.explain(log)
    assert error is not None
    assert type(error) is kind
    assert words in error.message
    assert error.hint


def test_how_it_ended_is_no_cause() -> None:
    assert ncu.explain_tool("==WARNING== No kernels were profiled.") is None
    assert ncu.explain_tool("==ERROR== The application returned an error code (1).") is None


def test_the_kernels_that_ncu_saw_instead_are_named() -> None:
    log = "==WARNING== No kernels were profiled.\nAvailable Kernels:\n1. bfma2\n2. copy_kernel\n"
    error = ncu.explain(log)
    assert error is not None
    assert (
        error.message == "ncu profiled no kernel; ncu saw 2 others, for example bfma2, copy_kernel"
    )


def test_normal_output_is_not_explained() -> None:
    assert ncu.explain('==PROF== Profiling "k" - 0: 0%....100% - 4 passes') is None


def test_the_log_of_a_real_refusal_is_explained(real_exports: Path) -> None:
    log = real_exports / "ncu/Mlightsnow+DD2360-llm.c/fp32_ncu.txt"
    assert isinstance(ncu.explain(log.read_text()), PermissionRefused)


def test_the_installed_ncu_has_every_option_that_the_commands_use(nsight: Path) -> None:
    from nsight_prof.orchestrator.system.process import ask

    answer = ask([str(nsight / "ncu"), "--help"])
    offered = ncu.parse_features(answer.stdout)
    request = replace(REQUEST, capture="nvtx", nvtx_ranges=("x", "y"))
    argvs = [
        ncu.counters_argv(request, offered),
        ncu.counters_argv(replace(REQUEST, capture="profiler-api"), offered),
        ncu.csv_argv("ncu", Path("r")),
    ]
    used = {word for argv in argvs for word in argv if word.startswith("--")}
    assert used <= offered
    assert "--filter-mode" in used


def test_the_csv_command_prints_mangled_names_of_a_real_report(
    nsight: Path, real_exports: Path
) -> None:
    from nsight_prof.orchestrator.system.process import ask

    report = real_exports / "ncu/SebastianKuckuk+ihpcss-gpu-perf/stream-cuda.ncu-rep"
    answer = ask(ncu.csv_argv(str(nsight / "ncu"), report))
    assert answer.exit_code == 0
    assert '"_Z6streammPKdPd"' in answer.stdout


def test_without_kernels_all_launches_between_the_marks_are_profiled() -> None:
    argv = ncu.counters_argv(replace(REQUEST, kernels=(), capture="profiler-api"), FEATURES)
    assert value(argv, "--profile-from-start") == "off"
    assert "--nvtx" in argv
    for option in ("--kernel-name", "--launch-skip", "--launch-count", "--nvtx-include"):
        assert option not in argv
