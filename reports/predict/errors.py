"""Sections of a validation: how far predictions lay from what recorded engines took."""

from __future__ import annotations

import pandas as pd

from nsight_prof.parsers.cells import Row, number, records, text
from nsight_prof.parsers.predict.validation import (
    HELD_OUT,
    IN_SAMPLE,
    KERNEL,
    NETWORK,
    POINT,
    summary,
)
from nsight_prof.reports.page import Column, Number, Section, Table, Text, Value

QUANTITIES = {
    "tpot": Text("TPOT"),
    "ttft": Text("TTFT"),
    "throughput": Text("throughput"),
    "eager": Text("passes launched by the host"),
    "graph": Text("passes in a CUDA graph"),
    "compiled-graph": Text("compiled passes in a CUDA graph"),
}
SAMPLES = {HELD_OUT: Text("Held out"), IN_SAMPLE: Text("In sample")}
SHOWN = 12
"""Points with the largest error."""


def answer(errors: pd.DataFrame) -> list[Text]:
    """Return the error of each quantity of held-out points and steps."""
    held_out = errors[errors["sample"].eq(HELD_OUT) & ~errors["scope"].eq(KERNEL)]
    return [
        Text(
            "Held out, {what}: off by {mape} on average (90th percentile {p90}, bias {bias}); "
            "{coverage} of {n} within the interval.",
            what=_quantity(row), mape=_share(row, "mape"), p90=_share(row, "p90"),
            bias=_share(row, "bias"), coverage=_share(row, "coverage"), n=int(row["n"]),
        )
        for row in records(summary(held_out, ["scope", "name"]))
    ]  # fmt: skip


def _quantity(row: Row) -> Value:
    name = text(row["name"])
    return QUANTITIES.get(name, name)


def _share(row: Row, name: str) -> Number:
    return Number(number(row[name]), "fraction")


def _column(heading: Text, name: str) -> Column[Row]:
    return Column(heading, lambda row: _share(row, name))


def _text(heading: Text, name: str) -> Column[Row]:
    return Column(heading, lambda row: text(row[name]))


def sections(errors: pd.DataFrame) -> tuple[Section, ...]:
    """Return the sections: sums, operators, and the points with the largest error."""
    held_out = errors[errors["sample"].eq(HELD_OUT)]
    kernels = held_out[held_out["scope"].eq(KERNEL)]
    points = held_out[held_out["scope"].isin((POINT, NETWORK))]
    points = points.reindex(points["error"].abs().sort_values(ascending=False).index)
    return (
        Section(
            "errors",
            Text("How far predictions lay from what was measured"),
            (
                Text(
                    "Held out: the run is no source, and measured products of this model's outputs "
                    "and inputs are in no fit; another recorded engine may have served the model "
                    "(tier T3). In sample: all that the given runs have is used. Errors of kernels "
                    "are weighted by time."
                ),
                *(_sums(errors, sample) for sample in SAMPLES),
            ),
        ),
        Section(
            "operators",
            Text("Operators of the recorded steps, held out"),
            (_operators(kernels),),
        ),
        Section(
            "points",
            Text("Points with the largest error, held out"),
            (
                Table(
                    "prediction-points",
                    Text("Points"),
                    [
                        _text(Text("Point"), "case"),
                        Column(Text("What"), _quantity),
                        _column(Text("Error"), "error"),
                        Column(
                            Text("Within interval"),
                            lambda row: Text("yes") if row["covered"] else Text("no"),
                        ),
                        _text(Text("Tier"), "tier"),
                    ],
                    records(points.head(SHOWN)),
                ),
            ),
        ),
    )


def _sums(errors: pd.DataFrame, sample: str) -> Table[Row]:
    """Return the errors summed up: those of kernels and networks by their kind, others by name."""
    errors = errors[errors["sample"].eq(sample)]
    networks = errors["group"] + ", " + errors["name"]
    names = errors["name"].where(~errors["scope"].eq(KERNEL), errors["group"])
    names = names.where(~errors["scope"].eq(NETWORK), networks)
    return Table(
        f"prediction-{sample.replace(' ', '-')}",
        SAMPLES[sample],
        [
            _text(Text("Of"), "scope"),
            Column(Text("What"), _quantity),
            _text(Text("Tier"), "tier"),
            Column(Text("n"), lambda row: int(row["n"])),
            _column(Text("MAPE"), "mape"),
            _column(Text("90th percentile"), "p90"),
            _column(Text("Bias"), "bias"),
            _column(Text("Within interval"), "coverage"),
        ],
        records(summary(errors.assign(name=names), ["scope", "group", "name", "tier"])),
    )


def _operators(held_out: pd.DataFrame) -> Table[Row]:
    steps = held_out.groupby("kind")["measured"].transform("sum")
    rows = held_out.assign(
        share=held_out["measured"] / steps,
        of_step=(held_out["predicted"] - held_out["measured"]) / steps,
    )
    return Table(
        "prediction-operators",
        Text("Operators"),
        [
            _text(Text("Operator"), "name"),
            _text(Text("Step"), "kind"),
            _column(Text("Of the kernel time"), "share"),
            _column(Text("Error"), "error"),
            _column(Text("Of the step"), "of_step"),
            _text(Text("Tier"), "tier"),
        ],
        records(rows),
        note=Text("Of the step: how much of the step's kernel time the error is."),
    )
