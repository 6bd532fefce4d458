"""The recorded server of SGLang: what it says of itself against what its client saw."""

from collections.abc import Callable

import pytest

from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.page import Section
from nsight_prof.reports.studies.serving_load.points import load_test
from nsight_prof.reports.studies.serving_load.section import section
from tests.sections import evidence, finding, rows, table, told

LATER_S = 1e-3


@pytest.fixture(scope="module")
def run(recorded_run_of: Callable[[str], Run]) -> Run:
    return recorded_run_of("h100-sglang-serve")


@pytest.fixture(scope="module")
def made(run: Run) -> Section:
    found = section(run)
    assert found is not None
    return found


def test_the_client_and_the_server_count_the_same(run: Run) -> None:
    requests = run.requests
    for point in load_test(run).loads:
        sent = requests[requests["case"] == point.row["case"]]
        assert point.server["requests"] == len(sent)
        assert point.server["generation_tokens"] == sent["output_tokens"].sum()
        assert point.server["prompt_tokens"] == sent["prompt_tokens"].sum()


def test_the_client_is_later_than_the_server_by_the_same_at_first_and_last_token(run: Run) -> None:
    for point in load_test(run).loads:
        first, last = (
            point.value(f"{name}_mean_s") - point.server[f"{name}_mean_s"]
            for name in ("ttft", "e2e")
        )
        assert first > 0
        assert last == pytest.approx(first, abs=LATER_S)


def test_the_parts_of_a_first_token_are_all_of_it(run: Run) -> None:
    for point in load_test(run).loads:
        parts = point.first_token_parts()
        assert set(parts) == {"queue", "server", "client"}  # it does not tell prefill apart
        assert sum(parts.values()) == pytest.approx(point.value("ttft_mean_s"), rel=1e-4)


def test_the_report_names_the_engine_and_what_it_does_not_count(made: Section) -> None:
    text = told(made)
    assert "behind the OpenAI-compatible server of SGLang 0.5.11 on 1 GPU" in text
    assert "vLLM" not in text
    assert "preemptions" not in evidence(finding(made, "first_token"))
    waiting = rows(table(made, "serving-first-token"))
    assert all(row["Prefill and front end"] > row["HTTP and client"] > 0 for row in waiting)
    assert "Prefill" not in waiting[0]


def test_steps_of_its_scheduler_are_read_as_those_of_vllm_are(
    recorded_run_of: Callable[[str], Run],
) -> None:
    traced = recorded_run_of("h100-sglang-kernels")
    steps = traced.engine_steps
    assert set(steps["kind"]) == {"prefill", "decode"}
    assert (steps.loc[steps["kind"] == "prefill", "prefill_tokens"] > 0).all()
    assert steps.loc[steps["kind"] == "decode", "decode_requests"].max() == 8  # its clients
    libraries = traced.kernels.set_index("short_name")["library"]
    assert set(libraries) & {"cuBLAS", "Triton"} == {"cuBLAS", "Triton"}
    assert "vLLM" not in set(libraries)
