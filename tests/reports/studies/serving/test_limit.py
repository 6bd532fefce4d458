"""What limits a recorded server, and what its first line says, worked out by hand."""

from collections.abc import Callable
from dataclasses import replace
from typing import cast

import pytest

from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.page import Finding, Number, Text
from nsight_prof.reports.page.writer import Writer
from nsight_prof.reports.serving.workload import workload
from nsight_prof.reports.studies.serving_load.causes import limit, useful_flop_rate
from nsight_prof.reports.studies.serving_load.points import LoadTest, Point, load_test
from nsight_prof.reports.studies.serving_load.section import section

Recorded = Callable[[str], Run]


@pytest.fixture(scope="module")
def found(recorded_run_of: Recorded) -> LoadTest:
    return load_test(recorded_run_of("h200-vllm-serve"))


def words(finding: Finding | None) -> str:
    assert finding is not None
    return Writer().text(finding.verdict)


def with_best(found: LoadTest, load: float = 128, **changes: float) -> LoadTest:
    """Return the load test with other cells in the load of most throughput, or another one."""

    def changed(point: Point) -> Point:
        if point.load == load:
            return replace(point, row={**point.row, **changes})
        return point

    return replace(found, points=tuple(map(changed, found.points)))


def test_the_flops_of_requests_are_those_of_qwen_by_hand(found: LoadTest) -> None:
    point = found.closed[-1]
    layer = 2 * 3584 * 3584 + 2 * 3584 * 512 + 3 * 3584 * 18944
    tokens = 512 + 128 - 1  # the last one is computed by nobody
    linear = 2 * 28 * layer * tokens
    head = 2 * 3584 * 152064 * 128
    attention = 4 * 128 * 28 * 28 * tokens * (tokens + 1) / 2
    by_hand = (linear + head + attention) * 384 / point.value("duration_s")
    assert useful_flop_rate(found, point) == pytest.approx(by_hand, rel=1e-9)


def test_the_gpu_limits_a_server_that_keeps_it_busy(found: LoadTest) -> None:
    finding = limit(with_best(found, load=1, gpu_util_pct_mean=60.0))
    text = words(finding)
    assert text.startswith("The GPU limits throughput: at 128 clients")
    assert "the KV cache is 4.2 % full" in text
    assert "98 % of the time" in text
    assert "65 % of the measured steady roof (MFU)" in text
    assert finding is not None
    assert finding.action is not None
    assert "fp8" in Writer().text(finding.action)


def test_a_gpu_that_one_client_keeps_as_busy_is_no_limit(found: LoadTest) -> None:
    # One client: 99 % busy; 80 requests/s: 84 %, and tokens come later than the engine makes them.
    finding = limit(found)
    text = words(finding)
    assert text.startswith("With 80 requests/s tokens wait for the server's front end: the engine")
    assert text.endswith(
        "Most is answered at 128 clients, where the front end keeps up, the model's FLOPs are 65 % "
        "of the measured steady roof (MFU) and the KV cache is 4.2 % full."
    )
    assert "limits" not in text
    assert finding is not None
    evidence = map(Writer().text, (one for one in finding.evidence if isinstance(one, Text)))
    assert any("busy for 99 % of the time with 1 client, too" in said for said in evidence)
    assert finding.action is not None
    assert "--api-server-count" in Writer().text(finding.action)
    in_time = with_best(found, load=80, tpot_mean_s=found.opened[-1].server["tpot_mean_s"])
    unknown = words(limit(in_time))
    assert unknown.startswith("What limits throughput is not known. NVML calls the GPU")


def test_where_text_waits_is_said_once(recorded_run_of: Recorded) -> None:
    made = section(recorded_run_of("h200-vllm-serve"))
    assert made is not None
    verdicts = [Writer().text(finding.verdict) for finding in made.findings]
    assert len([verdict for verdict in verdicts if "front end:" in verdict]) == 1
    assert "what limits throughput" in Writer().text(made.basis[-1].text)


@pytest.mark.parametrize(
    ("cells", "verdict"),
    [
        ({"kv_usage_max": 0.99}, "Memory limits throughput"),
        ({"preemptions": 3}, "Memory limits throughput"),
        ({"gpu_util_pct_mean": 60.0}, "The host limits throughput"),
    ],
)
def test_another_limit_is_named(found: LoadTest, cells: dict[str, float], verdict: str) -> None:
    assert words(limit(with_best(found, **cells))).startswith(verdict)


def test_without_utilization_no_limit_is_named(found: LoadTest) -> None:
    assert limit(with_best(found, gpu_util_pct_mean=float("nan"))) is None


def test_a_server_that_was_not_filled_has_no_limit(recorded_run_of: Recorded) -> None:
    few = load_test(recorded_run_of("h200-running-server"))
    assert words(limit(few)).startswith("No limit was reached")
    assert limit(load_test(recorded_run_of("h100-running-server"))) is None  # a single load


@pytest.mark.parametrize(
    ("name", "line"),
    [
        (
            "h200-vllm-serve",
            "qwen2.5-7b, vLLM 0.20.2, 512 prompt and 128 output tokens, 1 to 128 clients, "
            "15 to 80 requests/s",
        ),
        (
            "h200-vllm-kernels",
            "qwen2.5-7b, vLLM 0.20.2, 1,024 prompt and 32 output tokens, batch 8",
        ),
    ],
)
def test_a_run_says_what_was_served(recorded_run_of: Recorded, name: str, line: str) -> None:
    served = workload(recorded_run_of(name))
    assert isinstance(served, Text)
    assert Writer().text(served) == line
    assert workload(recorded_run_of("h200-roofline")) is None


def test_the_share_of_the_roof_leads_to_its_load(found: LoadTest) -> None:
    finding = limit(with_best(found, load=1, gpu_util_pct_mean=60.0))
    assert finding is not None
    facts = cast(list[Text], finding.verdict.values["facts"])
    shares = [v for fact in facts for v in fact.values.values() if isinstance(v, Number)]
    assert len(shares) == 3
    assert {ref.row for share in shares for ref in share.refs} == {"closed/c128/p512/o128"}
