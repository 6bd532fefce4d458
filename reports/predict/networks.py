"""Sections of predicted networks: passes, and which operations take their time."""

from __future__ import annotations

from collections.abc import Sequence

from nsight_prof.parsers.cells import Row, records, text
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.page import Bullets, Column, Figure, Number, Ref, Section, Table, Text
from nsight_prof.reports.page.charts import LineFigure
from nsight_prof.reports.predict.figures import LIMITS, with_band
from nsight_prof.reports.predict.forecast import sources
from nsight_prof.reports.predict.numbers import predicted, with_interval

LAUNCHES = {
    "eager": Text("launched by the host"),
    "graph": Text("in a CUDA graph"),
    "compiled-graph": Text("compiled, in a CUDA graph"),
}
SHOWN = 12
"""Operations with the most time."""
METHOD = (
    Text(
        "The pass is the sum of its operations, each by a smooth roofline fitted to measured cases "
        "of its kind and moved by what near sizes differ from it; nothing overlaps."
    ),
    Text(
        "Activations are taken to be where the operation before left them; weights come from DRAM "
        "unless all weights and the largest activations fit the L2 cache."
    ),
    Text(
        "Compiled: operations between products are one kernel, which moves its inputs and its "
        "output once."
    ),
    Text(
        "Intervals: the 5th and 95th percentile of what held-out cases differed by, all operations "
        "at the same end at once."
    ),
    Text(
        "What the host needs for a pass is moved and bounded by what other networks needed beyond "
        "their operations; these are few, and another host may be faster or slower."
    ),
)


def answer(run: Run) -> list[Text]:
    """Return the first and the last batch in a CUDA graph, and where the host is the limit."""
    points = records(run.predicted_networks)
    graphs = [row for row in points if row["launch"] == "graph"]
    ends = graphs if len(graphs) < 2 else (graphs[0], graphs[-1])
    texts = [
        Text(
            "On {gpu}, a pass of {network} at batch {batch} takes {time} in a CUDA graph.",
            gpu=text(row["gpu"]), network=text(row["network"]), batch=int(row["batch"]),
            time=with_interval(_number(row, "seconds")),
        )
        for row in ends
    ]  # fmt: skip
    waiting = [row for row in points if row["bound_by"] == "host"]
    if waiting:
        texts.append(
            Text(
                "Launched by the host, batches up to {batch} wait for it: it needs {time} per "
                "pass.",
                batch=max(int(row["batch"]) for row in waiting),
                time=_number(waiting[-1], "host_s"),
            )
        )
    return texts


def _number(row: Row, name: str) -> Number:
    return predicted(row, name, "s", Ref("predicted_networks", text(row["case"]), name))


def sections(run: Run) -> tuple[Section, ...]:
    """Return the sections: passes, operations of the largest batch, and sources."""
    points = records(run.predicted_networks)
    passes = Table(
        "predicted-networks",
        Text("Passes of the network"),
        [
            Column(Text("Batch"), lambda row: int(row["batch"])),
            Column(Text("How"), lambda row: LAUNCHES[text(row["launch"])]),
            Column(Text("A pass"), lambda row: _number(row, "seconds")),
            Column(Text("Inputs per second"), lambda row: Number(row["per_second"], "1/s")),
            Column(Text("GPU"), lambda row: _number(row, "gpu_s")),
            Column(Text("Host"), lambda row: _number(row, "host_s")),
            Column(Text("Bound by"), lambda row: LIMITS[text(row["bound_by"])]),
            Column(Text("Tier"), lambda row: text(row["tier"])),
        ],
        points,
        refs=lambda row: [Ref("predicted_networks", text(row["case"]))],
    )
    chart = _chart(points)
    return (
        Section(
            "passes",
            Text("How long a pass takes"),
            (
                passes,
                *([Figure(chart)] if chart else ()),
                Bullets(Text("How it is predicted"), METHOD),
            ),
        ),
        Section("operations", Text("Where the time of a pass goes"), _operations(run, points)),
        sources(run),
    )


def _chart(points: Sequence[Row]) -> LineFigure | None:
    """Return the time of a pass over the batch; None for one batch."""
    lines = []
    for launch in LAUNCHES:
        rows = [row for row in points if row["launch"] == launch]
        batches = tuple(float(row["batch"]) for row in rows)
        lines.append(with_band(launch, batches, rows, "seconds"))
    if max(len(line.x) for line in lines) < 2:
        return None
    return LineFigure(
        "predicted-networks",
        "Time of a pass over the batch",
        "Lines with bands: predicted time of a pass over the batch, by how it is launched",
        "Batch",
        "ms per pass",
        tuple(line for line in lines if line.x),
        x_log=True,
        y_log=True,
        subtitle="Bands are intervals: from every operation at its lower to every one at its upper "
        "end.",
    )


def _operations(run: Run, points: Sequence[Row]) -> tuple[Table[Row], ...]:
    """Return the operations with the most time, of the largest batch in a CUDA graph."""
    graphs = [row for row in points if row["launch"] == "graph"]
    if not graphs:
        return ()
    case = text(graphs[-1]["case"])
    rows = run.predicted_operators[run.predicted_operators["case"].eq(case)]
    longest = records(rows.sort_values("seconds", ascending=False).head(SHOWN))
    return (
        Table(
            "predicted-network-operations",
            Text("Operations of {case} with the most time", case=case),
            [
                Column(Text("Operation"), lambda row: text(row["operator"])),
                Column(Text("Calls"), lambda row: int(row["calls"])),
                Column(Text("All calls"), lambda row: predicted(row, "seconds", "s")),
                Column(Text("Share"), lambda row: Number(row["share"], "fraction")),
                Column(
                    Text("Of the datasheet's roof"),
                    lambda row: Number(row["roofline_s"] / row["seconds"], "fraction"),
                ),
                Column(Text("Bound by"), lambda row: LIMITS[text(row["bound_by"])]),
                Column(Text("Tier"), lambda row: text(row["tier"])),
            ],
            longest,
        ),
    )
