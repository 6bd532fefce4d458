"""Which measurement would narrow the intervals of a prediction most."""

from __future__ import annotations

from nsight_prof.parsers.cells import Row, known, number, records, text
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.page import Column, Name, Number, Section, Table, Text
from nsight_prof.reports.page.writer import IN_TEXT

QUANTITIES = {"tpot": Text("TPOT"), "ttft": Text("TTFT")}
HOST = {
    "gap_decode_s": Text("the gaps between kernels"),
    "gap_prefill_s": Text("the gaps between kernels"),
    "decode_s": Text("the least time of the host for a step"),
    "overhead_s": Text("what the host adds to the first token"),
    "eager_s": Text("the host's time for prompts outside of CUDA graphs"),
    "graph_s": Text("the host's time for short prompts"),
    "frontend_s": Text("what the server in front of the engine adds"),
}
NOTHING = Text("No measurement that prof knows would tell more of the last load.")


def sentences(run: Run) -> list[Text]:
    """Return what each measurement would tell, the most telling first."""
    return [_sentence(row) for row in records(run.predicted_needs)] or [NOTHING]


def section(run: Run) -> Section:
    """Return the section of measurements."""
    rows = records(run.predicted_needs)
    return Section(
        "needs",
        Text("What would narrow the intervals"),
        (NOTHING,)
        if not rows
        else (
            Text(
                "Of {case}, the last load; the interval of a step stands for that of the quantity. "
                "Times are those of recorded runs of one model on one GPU: with another they "
                "differ. The interval afterwards has the residuals of the given benchmarks.",
                case=Name(text(rows[0]["case"])),
            ),
            Table(
                "predicted-needs",
                Text("Measurements"),
                [
                    Column(Text("Command"), lambda row: Name(text(row["command"]))),
                    Column(Text("Took"), _time),
                    Column(Text("Quantity"), lambda row: QUANTITIES[text(row["quantity"])]),
                    Column(Text("Of its interval"), lambda row: _width(row, "share", "none")),
                    Column(Text("Interval now"), lambda row: _width(row, "width", "no upper end")),
                    Column(
                        Text("Afterwards"),
                        lambda row: _width(row, "width_after", "not known before it is measured"),
                    ),
                    Column(Text("Tells besides"), _host),
                    Column(Text("Tier"), lambda row: text(row["tier"]) or None),
                ],
                rows,
            ),
        ),
    )


def _fraction(row: Row, name: str, missing: str) -> Number:
    return Number(known(row[name]), "fraction", missing=missing)


def _width(row: Row, name: str, missing: str) -> Number | None:
    """Return a width; None where the measurement tells of no operator."""
    return _fraction(row, name, missing) if number(row["share"]) > 0 else None


def _time(row: Row) -> Number:
    return Number(number(row["seconds"]) / 60, "min", digits=IN_TEXT)


def _host(row: Row) -> list[Text] | None:
    return list(dict.fromkeys(HOST[name] for name in text(row["host"]).split())) or None


def _sentence(row: Row) -> Text:
    quantity, host = QUANTITIES[text(row["quantity"])], _host(row)
    command, time = Name(text(row["command"])), _time(row)
    share = _width(row, "share", "")
    if share is None:
        return Text(
            "In {time}, {command} tells what is not in the {quantity} now: {host}.",
            time=time, command=command, quantity=quantity, host=host or [],
        )  # fmt: skip
    before, after = _fraction(row, "width", "open"), _fraction(row, "width_after", "not known")
    effect = Text("gives an upper end to {share} of the {quantity}", share=share, quantity=quantity)
    if known(row["width"]) is not None:
        effect = Text(
            "narrows the interval of the {quantity} from {before} to {after} of its value",
            quantity=quantity, before=before, after=after,
        )  # fmt: skip
    if host is None:
        return Text("In {time}, {command} {told}.", time=time, command=command, told=effect)
    return Text(
        "In {time}, {command} {told}, and tells what is not in it now: {host}.",
        time=time, command=command, told=effect, host=host,
    )  # fmt: skip
