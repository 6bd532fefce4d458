"""The section about a server under load, on made-up records whose answers are known."""

import io
import math
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.cases.serving import sure
from nsight_prof.reports.page import Evidence, Finding, Number, Section, Table, Text, Value
from nsight_prof.reports.page.charts import LineFigure
from nsight_prof.reports.page.frame import rests
from nsight_prof.reports.page.frame import sentence_values as values
from nsight_prof.reports.page.markdown import section_markdown
from nsight_prof.reports.page.writer import Writer
from nsight_prof.reports.serving.scaling_fit import Scaling
from nsight_prof.reports.studies.serving_load.points import (
    Point,
    Slo,
    in_the_long_run,
    keeping,
    load_test,
)
from nsight_prof.reports.studies.serving_load.rates import limits
from nsight_prof.reports.studies.serving_load.section import section
from nsight_prof.targets.serving.load_points import Point as Load
from nsight_prof.targets.serving.load_points import arrivals
from nsight_prof.targets.serving.records import Records

FIXED_S, EACH_S = 0.6, 0.0125
"""Closed loops: n clients get an answer each FIXED_S + n EACH_S; 80 requests/s at most."""
TTFT_S, OUTPUT = 0.05, 11
SLO_TTFT_S, SLO_TPOT_S = 0.5, 0.2
QUEUE_S, FRONT_S, CLIENT_S = 0.01, 0.01, 0.01


def write_load(
    path: Path,
    *,
    clients: tuple[int, ...] = (1, 4, 16, 64),
    rates: tuple[float, ...] = (20.0, 100.0),
    metrics: bool = True,
    late_s: float = 1e-3,
    failed: int = 0,
    off: float = 1.0,
) -> None:
    """Write the records of one load test."""
    stream = io.StringIO()
    writer = _Writer(Records(stream, "vllm-serve", begin=0.0), metrics, late_s, failed, off)
    writer.records.conditions(
        {"argv": [], "time": "2026-11-22T10:00:00Z", "seed": 0, "device": "cpu", "gpu": None,
         "software": {"driver": None, "cuda": None, "torch": "2.11", "python": "3.12"}}
    )  # fmt: skip
    writer.records.engine(
        {"version": "0.20.2", "model": "qwen2.5-7b", "mode": "cuda-graphs", "dtype": "bfloat16",
         "tensor_parallel": 1, "engine_process": "server", "dummy_weights": True, "start_s": 60.0}
    )  # fmt: skip
    for n in clients:
        writer.closed(n)
    for rate in rates:
        writer.opened(rate)
    path.write_text(stream.getvalue())


class _Writer:
    def __init__(
        self, records: Records, metrics: bool, late_s: float, failed: int, off: float
    ) -> None:
        self.records, self.metrics, self.late_s, self.failed = records, metrics, late_s, failed
        self.off, self.now = off, 0.0

    def closed(self, clients: int) -> None:
        took = FIXED_S + EACH_S * clients
        # The last of the three rounds is slow until its first token.
        times = [
            (round_ * took, 0.6 * took if round_ == 2 else TTFT_S, took)
            for round_ in range(3)
            for _ in range(clients)
        ]
        self.point(Load(clients, None, 512, OUTPUT, 3 * clients), times)

    def opened(self, rate: float) -> None:
        """A server with a law: n requests in it take FIXED_S + n EACH_S each."""
        came = arrivals(round(rate * 10), 10.0, seed=1)
        # Below 80 requests/s all take as long as in the long run; beyond each longer than before.
        limit = 1 / EACH_S
        steady = FIXED_S / max(1e-9, 1 - rate * EACH_S)
        times = [
            (at, TTFT_S, steady if rate < limit else FIXED_S + at * (rate / limit - 1) + 1.0)
            for at in came
        ]
        self.point(Load(None, rate, 512, OUTPUT, len(times)), times)

    def point(self, load: Load, times: list[tuple[float, float, float]]) -> None:
        begin, name = self.now, load.name
        for number, (at, ttft, took) in enumerate(times):
            gap = (took - ttft) / (OUTPUT - 1)
            bad = number < self.failed
            self.records.request(
                name, 1,
                {"request": number, "prompt_tokens": 512, "output_tokens": 0 if bad else OUTPUT,
                 "arrival_s": begin + at, "first_token_s": None if bad else begin + at + ttft,
                 "finish_s": None if bad else begin + at + took,
                 "token_times_s": None if bad else [ttft + gap * n for n in range(OUTPUT)],
                 "status": "failed" if bad else "ok", "reason": "HTTP 500: x" if bad else ""},
            )  # fmt: skip
        seconds = max(at + took for at, _, took in times)
        totals: dict[str, Any] = {"seconds": seconds, "client_late_s": self.late_s,
                                  "client_cpu": 0.1}  # fmt: skip
        if self.metrics:
            done = len(times) - self.failed
            first = fmean(ttft for _, ttft, _ in times)
            totals |= {
                "prompt_tokens": 512 * done, "generation_tokens": OUTPUT * done, "requests": done,
                "preemptions": 0, "prefix_hit_tokens": 0, "ttft_mean_s": first - CLIENT_S,
                "queue_mean_s": QUEUE_S, "prefill_mean_s": first - CLIENT_S - QUEUE_S - FRONT_S,
                "tpot_mean_s": self.off * fmean((took - ttft) / (OUTPUT - 1)
                                                for _, ttft, took in times),
                "e2e_mean_s": fmean(took for *_, took in times),
            }  # fmt: skip
        self.records.vllm_totals(name, 1, totals)
        self.now += seconds
        self.records.phase(name, "measure", begin, self.now)
        params = load.params(engine="cuda-graphs", model="qwen2.5-7b", tensor_parallel=1,
                             slo_ttft_s=SLO_TTFT_S, slo_tpot_s=SLO_TPOT_S)  # fmt: skip
        self.records.case(name, params, [seconds], dtype="bfloat16", eager=False)


MakeRun = Callable[..., Run]


@pytest.fixture(scope="module")
def run(make_run: MakeRun, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return make_run(tmp_path_factory.mktemp("load"), write=write_load, name="vllm-serve")


@pytest.fixture(scope="module")
def told(run: Run) -> Section:
    made = section(run)
    assert made is not None
    return made


def finding(made: Section, rule: str) -> Finding:
    (found,) = (one for one in made.findings if one.rule == rule)
    return found


def rules(made: Section) -> list[str]:
    return [one.rule for one in made.findings]


def number(value: Value | None) -> float | None:
    assert isinstance(value, Number)
    return value.value


def shown(value: Value | None) -> str:
    return Writer().value(value)


def cells(made: Section, key: str) -> list[dict[str, Value | None]]:
    table: Table[Any] = next(table for table in made.tables if table.key == key)
    heads = [Writer().text(column.heading) for column in table.columns]
    return [dict(zip(heads, row, strict=True)) for row in table.cells]


def test_the_law_of_the_closed_loops_is_found(run: Run) -> None:
    law = load_test(run).law
    assert law is not None
    assert law.fixed_s == pytest.approx(FIXED_S, rel=1e-4)
    assert law.each_s == pytest.approx(EACH_S, rel=1e-4)
    assert law.limit == pytest.approx(80, rel=1e-4)


def test_the_server_keeps_up_below_the_limit_of_the_law(run: Run, told: Section) -> None:
    found = load_test(run)
    slow, fast = (keeping(point, found.law) for point in found.opened)
    assert slow is not None
    assert fast is not None
    # Little: 20 requests/s that take 0.8 s each are 16 in the server.
    assert slow.expected == pytest.approx(16, rel=1e-3)
    assert slow.in_flight == pytest.approx(16, rel=0.2)
    assert (slow.verdict, fast.verdict) == ("yes", "no")
    assert fast.expected == math.inf
    best = finding(told, "run_at").verdict.values
    assert shown(best["rate"]) == "20 requests/s"
    assert shown(best["most"]) == "71 requests/s that it answered at most (100 requests/s, 14 s)"
    assert number(best["ttft"]) == pytest.approx(TTFT_S)
    assert shown(finding(told, "falls_behind").verdict.values["load"]) == "100 requests/s"
    assert [shown(row["Keeps up"]) for row in cells(told, "serving-open")] == ["yes", "no"]
    numbers = told.numbers["points"]["open/r20/p512/o11"]
    assert numbers["keeps_up"] == "yes"


def test_the_capacity_is_what_was_answered_not_what_the_law_extrapolates(
    run: Run, told: Section
) -> None:
    found = load_test(run)
    assert found.law is not None
    assert found.law.limit == pytest.approx(80, rel=1e-3)
    answered = {point.row["case"]: point.value("requests_per_s") for point in found.points}
    assert found.capacity is not None
    assert found.capacity.value("requests_per_s") == max(answered.values()) < 80
    words = section_markdown(told)
    assert "80 requests/s" not in words
    assert "more than 64" in words  # clients, the most that the law was measured with
    assert shown(finding(told, "run_at").action) == (
        "Plan one server per 20 requests/s until rates of up to 57 requests/s are measured."
    )


@pytest.mark.parametrize(
    ("rates", "most", "planned", "says"),
    [
        ((20.0, 100.0), 71, 20, "20 requests/s, 28 % of the 71 requests/s that it answered at mos"),
        ((10.0, 20.0, 100.0), 22, 17.6, "as measured at 10 requests/s and 20 requests/s."),
        ((20.0, 100.0), 22, 17.6, "18 requests/s, 80 % of the 22 requests/s that it answered at"),
        ((20.0, 100.0), 15, 16, "16 requests/s, 80 % of the 20 requests/s that it kept up with at"),
    ],
)
def test_a_server_is_planned_with_a_reserve(
    make_run: MakeRun, tmp_path: Path, rates: tuple[float, ...], most: float, planned: float,
    says: str,
) -> None:  # fmt: skip
    run = make_run(tmp_path, write=write_load, name="vllm-serve", rates=rates)
    found = load_test(run)
    assert found.capacity is not None
    part = most / found.capacity.value("requests_per_s")
    closed = [
        replace(p, row=p.row | {"requests_per_s": p.value("requests_per_s") * part})
        for p in found.closed
    ]
    # What was answered in an open loop ends with its last request: it is no capacity.
    opened = [replace(p, row=p.row | {"requests_per_s": min(p.load, most)}) for p in found.opened]
    found = replace(found, points=(*closed, *opened))
    assert found.planned is not None
    assert found.planned.rate == pytest.approx(planned, rel=5e-3)
    assert says in shown(limits(found)[0].verdict)


@pytest.mark.parametrize(
    ("processes", "requests", "level"), [(1, 100, "medium"), (3, 100, "high"), (3, 99, "low")]
)
def test_latencies_are_as_sure_as_starts_and_requests_are_many(
    make_run: MakeRun, tmp_path: Path, processes: int, requests: int, level: str
) -> None:
    run = make_run(tmp_path, write=write_load, name="vllm-serve")
    run.serving_points["requests"] = requests
    run.bench["processes"], run.bench["relative_std"] = processes, 0.01
    assert sure(run) == level


def test_the_first_screen_says_where_requests_wait(told: Section) -> None:
    first_token = finding(told, "first_token")
    assert "waiting in the queue" in shown(first_token.verdict)
    assert shown(first_token.verdict).endswith("of it waiting in the queue.")
    plain = shown(first_token.lay_verdict)
    assert plain.endswith("of it in a queue.")
    # Where it goes, not only how little of it is the queue.
    assert re.search(
        r"on average, of which [\d.]+ % in a queue and [\d.]+ % to read the prompt\.", plain
    )


def test_the_first_screen_says_how_sure_it_is(told: Section) -> None:
    timed, planned, agreed, open_ = (Writer().text(item.text) for item in told.basis)
    # All requests of a rate take the same time, so that the intervals have no width.
    assert timed.startswith("At 20 requests/s 200 requests were timed in 11 s, once.")
    assert "50 to 50 ms for TTFT (P95)" in timed
    assert "1,000 requests in 14 s): too short to show what minutes would" in planned
    assert agreed.startswith("The client's numbers agree with the server's own")
    assert "rates between 20 requests/s and 100 requests/s, load for longer than 14 s" in open_


def test_options_are_those_of_the_engine(run: Run) -> None:
    found = load_test(run)
    assert found.engine is not None
    assert shown(found.option("step_tokens")) == "--max-num-batched-tokens"
    sglang = replace(found, engine=replace(found.engine, product="SGLang"))
    assert shown(sglang.option("step_tokens")) == "--chunked-prefill-size"
    assert shown(replace(found, engine=None).option("kernels")) == "vllm-kernels"


def test_the_summary_gives_the_latencies_of_the_load_to_run_at(told: Section) -> None:
    facts = {shown(fact.label): shown(fact.value) for fact in told.facts}
    assert facts["20 requests/s: wait for the first word, median"] == "50 ms"
    assert not any(label.startswith("64 clients") for label in facts)  # they stay in step
    assert "step" in Writer().text(finding(told, "client_scaling").disproof or Text(""))


def test_a_rate_beyond_the_targets_is_not_the_one_to_run_at(
    make_run: MakeRun, tmp_path: Path
) -> None:
    # 76 requests/s are below the limit, and take 1.2 s for a token after the first.
    run = make_run(tmp_path, write=write_load, name="vllm-serve", rates=(20.0, 76.0))
    found = load_test(run)
    assert [p.met == 1 for p in found.opened] == [True, False]
    assert found.recommended is found.opened[0]


@pytest.mark.parametrize(
    ("rate", "flat", "expected"),
    [(20, 0, 16), (80, 0, math.inf), (90, 0, math.inf), (10, 8, 6), (40, 8, 40 * 0.5 / 0.5)],
)
def test_little_gives_the_requests_in_the_long_run(
    rate: float, flat: float, expected: float
) -> None:
    law = Scaling(FIXED_S, EACH_S, flat, 0.0, 1.0, 1.0, 1.0, 64.0)
    found = in_the_long_run(rate, law)
    assert found == pytest.approx(expected)
    if math.isfinite(found):
        assert found / law.at(found) == pytest.approx(rate)  # the definition
    assert math.isnan(in_the_long_run(rate, None))


def test_goodput_counts_requests_within_both_targets(run: Run, told: Section) -> None:
    found = load_test(run)
    assert found.slo == Slo(SLO_TTFT_S, SLO_TPOT_S)
    many = found.closed[-1]
    # 64 clients: an answer takes 1.4 s; of the third round the first token takes 0.84 s.
    assert many.met == pytest.approx(2 / 3)
    assert many.goodput == pytest.approx(2 / 3 * 64 / (FIXED_S + 64 * EACH_S), rel=1e-4)
    assert found.closed[0].met == 1
    missed = [one for one in finding(told, "goodput").evidence if isinstance(one, Text)]
    late = {shown(one.values["load"]): one.values["late"] for one in missed}
    assert late["64 clients"] == 64


def test_requests_that_failed_are_not_within_the_targets(make_run: MakeRun, tmp_path: Path) -> None:
    run = make_run(tmp_path, write=write_load, name="vllm-serve", failed=1, rates=())
    first, *_, last = load_test(run).closed
    assert first.met == pytest.approx(2 / 3)
    assert last.met == pytest.approx(2 / 3 - 1 / 192)
    assert last.goodput * last.value("duration_s") == pytest.approx(2 * 64 - 1)


def test_a_first_token_has_parts_that_add_up(run: Run, told: Section) -> None:
    point = load_test(run).opened[0]
    parts = point.first_token_parts()
    assert parts == pytest.approx({"queue": 0.01, "prefill": 0.02, "front": 0.01, "client": 0.01})
    assert sum(parts.values()) == pytest.approx(TTFT_S)
    rows = cells(told, "serving-first-token")
    row = next(row for row in rows if shown(row["Load"]) == "20 requests/s")
    assert number(row["Prefill"]) == pytest.approx(0.02)
    assert number(row["HTTP and client"]) == pytest.approx(0.01)


def test_client_and_server_stand_side_by_side(told: Section) -> None:
    rows = cells(told, "serving-agreement")
    row = next(row for row in rows if shown(row["Load"]) == "20 requests/s")
    # Tokens agree; the client's first token comes 25 % later than the server's.
    assert number(row["Output, difference"]) == pytest.approx(0, abs=1e-3)
    assert number(row["TTFT, client"]) == pytest.approx(0.05)
    assert number(row["TTFT, server"]) == pytest.approx(0.04)
    assert number(row["TTFT, difference"]) == pytest.approx(0.25)
    found = finding(told, "agreement")
    assert "agree with" in found.verdict.message
    later = [one.value for one in found.evidence if isinstance(one, Evidence)][-1]
    assert number(later) == pytest.approx(CLIENT_S, rel=1e-3)


def test_numbers_that_do_not_agree_are_told(make_run: MakeRun, tmp_path: Path) -> None:
    made = section(make_run(tmp_path, write=write_load, name="vllm-serve", off=1.25, rates=()))
    assert made is not None
    found = finding(made, "agreement")
    assert "differ from" in found.verdict.message
    within = found.verdict.values["within"]
    assert "TPOT within 20 %" in shown(within)


def test_tokens_that_wait_in_the_front_end_are_told(make_run: MakeRun, tmp_path: Path) -> None:
    made = section(make_run(tmp_path, write=write_load, name="vllm-serve", off=0.8, rates=()))
    assert made is not None
    found = finding(made, "front_end").verdict.values
    assert (number(found["engine"]) or 0) < (number(found["client"]) or 0)
    # They are no disagreement about the same quantity.
    assert "agree with" in finding(made, "agreement").verdict.message


def test_percentiles_need_values_beyond_them(run: Run, told: Section) -> None:
    found = load_test(run)
    few, many = found.closed[0], found.closed[-1]
    assert few.samples("ttft") == 3
    assert math.isnan(few.percentile("ttft", "p90"))
    assert few.percentile("ttft", "p50") == pytest.approx(TTFT_S)
    assert many.samples("ttft") == 192
    assert not math.isnan(many.percentile("ttft", "p99"))
    assert few.samples("itl") == 3 * (OUTPUT - 1)
    row = cells(told, "serving-percentiles")[0]
    assert (row["Values"], number(row["P99"])) == (3, None)


def test_nothing_is_missing_in_a_finding(told: Section) -> None:
    numbers = [
        v for one in told.findings for v in (*values(one), *rests(one)) if isinstance(v, Number)
    ]
    assert [n for n in numbers if n.value is None] == []
    assert "nan" not in section_markdown(told)


def test_figures_show_all_loads(told: Section) -> None:
    names = [figure.chart.name for figure in told.figures]
    assert names == ["serving-rates", "serving-clients", "serving-trade"]
    clients = told.figures[1].chart
    assert isinstance(clients, LineFigure)
    assert clients.panels[0].series[0].x == (1.0, 4.0, 16.0, 64.0)
    trade = told.figures[2].chart
    assert isinstance(trade, LineFigure)
    assert [len(line.x) for line in trade.series] == [4, 1]  # not the one that falls behind


def test_a_server_without_metrics_is_told_of_by_the_client(
    make_run: MakeRun, tmp_path: Path
) -> None:
    run = make_run(tmp_path, write=write_load, name="vllm-serve", metrics=False)
    made = section(run)
    assert made is not None
    assert {"agreement", "first_token"}.isdisjoint(rules(made))
    assert {table.key for table in made.tables}.isdisjoint({"serving-agreement"})


def test_a_client_that_is_late_is_warned_of(make_run: MakeRun, tmp_path: Path) -> None:
    run = make_run(tmp_path, write=write_load, name="vllm-serve", late_s=0.5)
    made = section(run)
    assert made is not None
    reasons = finding(made, "client").verdict.values["reasons"]
    assert "sent a request 500 ms late" in shown(reasons)


def test_few_loads_and_none_make_no_false_section(make_run: MakeRun, tmp_path: Path) -> None:
    one = section(make_run(tmp_path / "a", write=write_load, clients=(8,), rates=()))
    assert one is not None
    assert one.figures == ()
    open_only = section(make_run(tmp_path / "b", write=write_load, clients=(), rates=(20.0,)))
    assert open_only is not None
    assert shown(finding(open_only, "run_at").verdict.values["load"]) == "20 requests/s"
    assert section(make_run(tmp_path / "c")) is None  # the baseline's records


def test_one_token_has_no_time_between_tokens() -> None:
    request = {"status": "ok", "ttft_s": 0.1, "tpot_s": math.nan}
    assert Slo(0.2, 0.01).met(request)
    assert not Slo(0.05, 0.01).met(request)
    assert not Slo().met({**request, "status": "failed"})
    empty = Point({"experiment": "open", "request_rate": 1.0}, (), {}, Slo())
    assert keeping(empty, None) is None
