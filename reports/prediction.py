"""The report of a prediction: points, what each step spends its time on, what would change it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd

from nsight_prof.parsers.cells import Row, known, number, records, text
from nsight_prof.reports import prediction_errors
from nsight_prof.reports.bench.adapter import page_section
from nsight_prof.reports.bench.models import BenchFinding, BenchTable, Section
from nsight_prof.reports.formats import NA, count, data_size, seconds, share, significant
from nsight_prof.reports.load import Run
from nsight_prof.reports.page.markdown import section_markdown

OPEN_STEPS = 2
"""Tables of steps that are open; the others are folded."""
TIERS = {
    "T0": "the roofline of a datasheet: a lower bound of time, or carried over from another GPU",
    "T1": "kernels of other shapes, measured on a GPU of this kind",
    "T2": "products of these very outputs and inputs, measured on a GPU of this kind",
    "T3": "a recorded engine that served this model on a GPU of this kind",
}


@dataclass(frozen=True)
class PredictionView:
    """The whole report: `answer` are sentences, `notes` what was assumed or is not known.

    `sections` are markdown.
    """

    title: str
    question: str
    run_id: str
    created: str
    answer: tuple[str, ...]
    sections: tuple[str, ...]
    notes: tuple[str, ...]


def prediction_view(run: Run) -> PredictionView:
    """Return everything that the report of a predicted run shows."""
    manifest = run.manifest
    request = manifest.recipe.get("predict") or {}
    if not run.prediction_errors.empty:
        return PredictionView(
            title=text(manifest.recipe.get("name")) or manifest.run_id,
            question="How far do predictions lie from what was measured?",
            run_id=manifest.run_id,
            created=manifest.created,
            answer=tuple(prediction_errors.answer(run.prediction_errors)),
            sections=_written(prediction_errors.sections(run.prediction_errors)),
            notes=tuple(manifest.assumptions),
        )
    points = records(run.predicted_points)
    built = (_points(points, request), *_steps(run), _changes(run), _sources(run, request))
    return PredictionView(
        title=text(manifest.recipe.get("name")) or manifest.run_id,
        question=text(manifest.recipe.get("question")),
        run_id=manifest.run_id,
        created=manifest.created,
        answer=tuple(_answer(points)),
        sections=_written(built),
        notes=tuple(manifest.assumptions),
    )


def _written(sections: tuple[Section, ...]) -> tuple[str, ...]:
    return tuple(section_markdown(page_section(section)) for section in sections)


def _answer(points: list[Row]) -> list[str]:
    good = [row for row in points if row["status"] == "ok"]
    found = [_sentence(row) for row in (good if len(good) < 3 else (good[0], good[-1]))]
    bad = len(points) - len(good)
    if bad:
        which = "1 point is" if bad == 1 else f"{bad} points are"
        found.append(f"{which} not predicted: more KV cache is needed than there is.")
    return found


def _sentence(row: Row) -> str:
    how = f"batch {row['batch']}" if known(row["batch"]) else f"{row['concurrency']} clients"
    return (
        f"{text(row['model'])} on {text(row['gpu'])}, {how}, {count(row['prompt_tokens'])} + "
        f"{count(row['output_tokens'])} tokens: TPOT {_range(row, 'tpot_p50_s', seconds)}, TTFT "
        f"{_range(row, 'ttft_p50_s', seconds)}, {_range(row, 'output_tokens_per_s', significant)} "
        f"tokens/s (tier {text(row['tier'])})."
    )


def _range(row: Row, name: str, formatter: object) -> str:
    """Return a value with its interval; an end that nothing bounds is open."""
    show = formatter if callable(formatter) else str
    value, low, high = (known(row[key]) for key in (name, f"{name}_low", f"{name}_high"))
    if value is None:
        return NA
    if low is None and high is None:
        return str(show(value))
    ends = (show(low) if low is not None else "?", show(high) if high is not None else "?")
    return f"{show(value)} ({ends[0]} to {ends[1]})"


def _points(points: list[Row], request: Mapping[str, object]) -> Section:
    rows = tuple(
        (
            text(row["case"]),
            _range(row, "ttft_p50_s", seconds),
            _range(row, "tpot_p50_s", seconds),
            _range(row, "output_tokens_per_s", significant),
            _shown(row["requests_per_s"]),
            share(number(row["kv_needed_tokens"]) / number(row["kv_tokens"]))
            if number(row["kv_tokens"]) > 0
            else NA,
            text(row["tier"]),
        )
        for row in points
    )
    columns = ("Point", "TTFT, median", "TPOT, median", "Tokens/s", "Requests/s",
               "KV cache used", "Tier")  # fmt: skip
    kv = next((row["kv_tokens"] for row in points), None)
    bytes_ = number(request.get("kv_bytes_per_token")) * number(kv)
    return Section(
        "points",
        "How fast it serves",
        f"Each number with its interval in brackets. The KV cache of each GPU holds {count(kv)} "
        f"tokens ({data_size(bytes_)}) beside {data_size(request.get('weight_bytes'))} of weights.",
        tables=(BenchTable("Points", columns, rows, left=("Point", "Tier")),),
    )


def _shown(value: object) -> str:
    found = known(value)
    return NA if found is None else significant(found)


def _steps(run: Run) -> tuple[Section, ...]:
    """Return what each step spends its time on, decode first."""
    operators = records(run.predicted_operators)
    built = []
    order = sorted(records(run.predicted_steps), key=lambda row: row["kind"] != "decode")
    for index, step in enumerate(order):
        of_step = [r for r in operators if (r["case"], r["kind"]) == (step["case"], step["kind"])]
        built.append(_step_table(step, of_step, folded=index >= OPEN_STEPS))
    return (
        Section(
            "steps",
            "What a step spends its time on",
            "Of each operator the time of all its calls in the step, and what the datasheet's "
            "roofline allows: the difference is what a better kernel could gain.",
            tables=tuple(built),
        ),
    )


def _step_table(step: Row, operator_rows: list[Row], folded: bool) -> BenchTable:
    columns = ("Operator", "Calls", "Rows", "Time", "Share", "Roofline", "Bound by", "Tier")
    rows = [
        (
            text(row["operator"]),
            count(row["calls"]),
            count(row["m"]),
            _range(row, "seconds", seconds),
            share(row["share"]),
            seconds(row["roofline_s"]),
            text(row["bound_by"]),
            text(row["tier"]),
        )
        for row in sorted(operator_rows, key=lambda row: -number(row["seconds"]))
    ]
    gap = known(step["gap_s"])
    if gap is not None:
        gap_share = share(gap / number(step["gpu_s"]))
        rows.append(("gaps between kernels", "–", "–", seconds(gap), gap_share, "–", "host", "–"))
    title = f"{text(step['case'])}: {text(step['kind'])}, {_range(step, 'seconds', seconds)}"
    host = known(step["host_s"])
    note = f"The host needs {seconds(host)} at least." if host is not None else ""
    if text(step["bound_by"]) == "host":
        note = f"The step waits for the host, which needs {seconds(host)}."
    left = ("Operator", "Bound by", "Tier")
    return BenchTable(title, columns, tuple(rows), note=note, left=left, folded=folded)


def _changes(run: Run) -> Section:
    """Return what would make a decode step faster, by its operators: upper limits, no forecasts."""
    rows = []
    for step in records(run.predicted_steps):
        if step["kind"] != "decode":
            continue
        of_step = run.predicted_operators[
            run.predicted_operators["case"].eq(step["case"])
            & run.predicted_operators["kind"].eq("decode")
        ]
        total = number(step["gpu_s"])
        rows.append(
            (
                text(step["case"]),
                share(_saved(of_step[of_step["group"].eq("product")]) / total),
                share(_saved(of_step[of_step["group"].eq("decode attention")]) / total),
                share((of_step["seconds"] - of_step["roofline_s"]).clip(lower=0).sum() / total),
                share(number(step["gap_s"]) / total) if known(step["gap_s"]) is not None else NA,
                text(step["bound_by"]),
            )
        )
    columns = ("Point", "Weights of half the bytes", "KV cache of half the bytes",
               "Every kernel at its roofline", "No gaps", "Waits for")  # fmt: skip
    points = records(run.predicted_points[run.predicted_points["status"].eq("ok")])
    findings = []
    for before, after in zip(points, points[1:], strict=False):
        if before["experiment"] != after["experiment"]:
            continue
        rate = number(after["output_tokens_per_s"]) / number(before["output_tokens_per_s"])
        slower = number(after["tpot_p50_s"]) / number(before["tpot_p50_s"])
        findings.append(
            BenchFinding(
                f"{text(after['case'])} instead of {text(before['case'])} gives "
                f"{significant(rate)} times the tokens/s at {significant(slower)} times the TPOT.",
                "both points as predicted above",
            )
        )
    return Section(
        "changes",
        "What would change it",
        "What a decode step could save at most, as part of its GPU time. These are limits by the "
        "datasheet's roofline: kernels for other types were not measured, so no time is predicted "
        "for them.",
        tuple(findings),
        (
            BenchTable(
                "Limits of what a decode step could save",
                columns,
                tuple(rows),
                left=("Point", "Waits for"),
            ),
        ),  # fmt: skip
    )


def _saved(operator_rows: pd.DataFrame) -> float:
    """Return the seconds that half of the bytes would save where moving them takes the time."""
    bound = operator_rows[operator_rows["bound_by"].eq("dram")]
    return float(bound["roofline_s"].sum()) / 2


def _sources(run: Run, request: Mapping[str, object]) -> Section:
    used = dict.fromkeys(run.predicted_operators["tier"].dropna())
    shares = run.predicted_operators.groupby("tier")["seconds"].sum()
    total = float(shares.sum())
    rows = tuple((tier, TIERS[tier], share(shares[tier] / total)) for tier in sorted(used))
    runs = request.get("on")
    run_names = ", ".join(map(str, runs)) if isinstance(runs, list) and runs else "no recorded run"
    return Section(
        "sources",
        "What it rests on",
        f"Measured: {run_names}. Datasheet: {text(request.get('datasheet'))}.",
        tables=(
            BenchTable("Tiers", ("Tier", "Source", "Of the predicted GPU time"), rows,
                       left=("Tier", "Source")),
        ),
        method=(
            "Intervals are the 5th and 95th percentile of what held-out measurements differed from "
            "their prediction: of each measured pair of outputs and inputs all sizes were left out "
            "of the fit. An interval of a step or point has all its operators at the same end.",
            "Points come from a simulation of continuous batching: requests that generate go "
            "first, the rest of a step's tokens goes to prompts, the last of which is cut.",
        ),
    )  # fmt: skip
