"""The report of a validation: how far predictions lay from what recorded engines took."""

from __future__ import annotations

import pandas as pd

from nsight_prof.parsers.cells import Row, records, text
from nsight_prof.parsers.predict.validation import HELD_OUT, IN_SAMPLE, POINT, summary
from nsight_prof.reports.bench.models import BenchTable, Section
from nsight_prof.reports.formats import count, difference, share

WHAT = {"tpot": "TPOT", "ttft": "TTFT", "throughput": "throughput"}


def answer(errors: pd.DataFrame) -> list[str]:
    """Return one sentence for each quantity that was predicted without having been seen."""
    points = errors[errors["sample"].eq(HELD_OUT)]
    found = []
    for row in records(summary(points, ["scope", "name"])):
        name = WHAT.get(text(row["name"]), text(row["name"]))
        if row["scope"] != "kernel":
            found.append(
                f"{name}, held out: mean absolute error {share(row['mape'])}, 90th percentile "
                f"{share(row['p90'])}, bias {difference(row['bias'])}, {share(row['coverage'])} of "
                f"{count(row['n'])} within the interval."
            )
    return found


def sections(errors: pd.DataFrame) -> tuple[Section, ...]:
    """Return the tables: sums, operators, and the points with the largest error."""
    worst = errors[errors["scope"].eq(POINT)]
    worst = worst.reindex(worst["error"].abs().sort_values(ascending=False).index)
    return (
        Section(
            "errors",
            "How far predictions lay from what was measured",
            "Held out: the run is no source, and measured products of this model's outputs and "
            "inputs are in no fit; another recorded engine may have served the model (tier T3). "
            "In sample: all that the given runs have is used. Errors of kernels are weighted by "
            "time.",
            tables=(
                _sums(errors[errors["sample"].eq(HELD_OUT)], HELD_OUT),
                _sums(errors[errors["sample"].eq(IN_SAMPLE)], IN_SAMPLE),
            ),
        ),
        Section(
            "operators",
            "Operators of the recorded steps, held out",
            "",
            tables=(_operators(errors[errors["scope"].eq("kernel")]),),
        ),
        Section(
            "points",
            "Points with the largest error, held out",
            "",
            tables=(_worst(records(worst[worst["sample"].eq(HELD_OUT)].head(12))),),
        ),
    )


def _sums(errors: pd.DataFrame, sample: str) -> BenchTable:
    columns = ("Of", "What", "Tier", "n", "MAPE", "90th percentile", "Bias", "Within interval")
    rows = [
        (
            text(row["scope"]),
            text(row["group"]) if row["scope"] == "kernel" else text(row["name"]),
            text(row["tier"]),
            count(row["n"]),
            share(row["mape"]),
            share(row["p90"]),
            difference(row["bias"]),
            share(row["coverage"]),
        )
        for row in records(
            summary(errors.assign(name=_names(errors)), ["scope", "group", "name", "tier"])
        )
    ]
    return BenchTable(
        sample.capitalize(), columns, tuple(rows), left=("Of", "What", "Tier"),
    )  # fmt: skip


def _names(errors: pd.DataFrame) -> pd.Series:
    """Return what is summed together: kernels by their kind, all else by name."""
    return errors["name"].where(~errors["scope"].eq("kernel"), errors["group"])


def _operators(errors: pd.DataFrame) -> BenchTable:
    held_out = errors[errors["sample"].eq(HELD_OUT)]
    steps = held_out.groupby("kind")["measured"].transform("sum")
    rows = [
        (
            text(row["name"]),
            text(row["kind"]),
            share(row["part"]),
            difference(row["error"]),
            difference(row["moved"]),
            text(row["tier"]),
        )
        for row in records(
            held_out.assign(
                part=held_out["measured"] / steps,
                moved=(held_out["predicted"] - held_out["measured"]) / steps,
            )
        )
    ]
    columns = ("Operator", "Step", "Of the kernel time", "Error", "Of the step", "Tier")
    return BenchTable(
        "Operators", columns, tuple(rows), left=("Operator", "Step", "Tier"),
        note="`Of the step`: how much of the step's kernel time the error is.",
    )  # fmt: skip


def _worst(rows: list[Row]) -> BenchTable:
    return BenchTable(
        "Points",
        ("Point", "What", "Error", "Within interval", "Tier"),
        tuple(
            (
                text(row["case"]),
                WHAT.get(text(row["name"]), text(row["name"])),
                difference(row["error"]),
                "yes" if row["covered"] else "no",
                text(row["tier"]),
            )
            for row in rows
        ),
        left=("Point", "What", "Within interval", "Tier"),
    )
