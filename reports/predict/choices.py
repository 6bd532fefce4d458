"""What the owner of a service may choose otherwise, and what is predicted for it then."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from nsight_prof.parsers.cells import Row, grouped, known, number, records, text
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.page import Column, Name, Number, Table, Text
from nsight_prof.reports.predict.numbers import (
    THROUGHPUT,
    TOKEN_RATE,
    asked_for,
    predicted,
)

AS_ASKED = "as asked"
CHOICES: Mapping[str, Callable[[str], Text]] = {
    AS_ASKED: lambda _: Text("as asked"),
    "gpu": lambda value: Text("GPU: {name}", name=value),
    "tensor_parallel": lambda value: Text("tensor parallel: {n} GPU", "tensor parallel: {n} GPUs",
                                          n=int(value)),
    "speculative_tokens": lambda _: Text("without speculative decoding"),
    "graphs": lambda _: Text("without CUDA graphs"),
    "host": lambda value: Text("host time per step {n}", n=f"{float(value):g}x"),
    "load": lambda value: Text("twice the load: {case}", case=Name(value)),
    "max_batched_tokens": lambda value: Text("steps of at most {n} tokens", n=int(value)),
    "max_num_seqs": lambda value: Text("at most {n} requests at a time", n=int(value)),
    "dtype": lambda value: Text("weights in {type}", type=value),
    "kv_cache_dtype": lambda value: Text("KV cache in {type}", type=value),
}  # fmt: skip


def answer(run: Run, loads: Mapping[str, Text]) -> Text | None:
    """Return which choice makes decode fastest at the same load; None where none does.

    One whose first token comes later is none: it but moves the time that a request waits. Where the
    point as asked has an upper bound, so must the choice. `loads`: how the requests of a
    point come, where that tells which point is meant.
    """
    rows = _of_cases(run)
    if not rows:
        return None
    asked, *others = list(rows.values())[-1]
    if asked["status"] != "ok":
        return None
    bounded = known(asked["tpot_p50_s_high"]) is not None
    others = [
        row
        for row in others
        if row["status"] == "ok"
        and row["change"] not in ("load", "host")
        and not number(row["ttft_p50_s"]) > number(asked["ttft_p50_s"])
        and not (bounded and known(row["tpot_p50_s_high"]) is None)
    ]
    best = min(others, key=lambda row: number(row["tpot_p50_s"]), default=asked)
    if not number(best["tpot_p50_s"]) < number(asked["tpot_p50_s"]):
        return None
    case = text(best["case"])
    # Of a long load a choice is held against its first requests: only the ratio is that of all.
    return Text(
        'Of all choices, "{choice}" shortens the TPOT of {case} most, by {part}.',
        case=loads.get(case, Name(case)), choice=_choice(best),
        part=Number(1 - number(best["tpot_p50_s"]) / number(asked["tpot_p50_s"]), "fraction"),
    )  # fmt: skip


def blocks(run: Run) -> Iterator[Text | Table[Row]]:
    """Yield a table of the choices at each load, and one of what cannot be predicted."""
    rows = _of_cases(run)
    yield Text(
        "Each row is the same load with one thing chosen otherwise, predicted like the points "
        "above. Of long loads the first requests are served, so that a row is held against the "
        "first row of its table."
    )
    for index, (case, choices) in enumerate(rows.items(), 1):
        good = [row for row in choices if row["status"] == "ok"]
        if good:
            yield _table(case, good, choices[0], f"predicted-choices-{index}")
    refused = [row for choices in rows.values() for row in choices if row["status"] != "ok"]
    if refused:
        yield _refused(refused)


def _of_cases(run: Run) -> dict[str, list[Row]]:
    return grouped(records(run.predicted_changes), lambda row: text(row["case"]))


def _choice(row: Row) -> Text:
    return CHOICES[text(row["change"])](text(row["value"]))


def _per_gpu(row: Row) -> Number:
    rate = number(row[THROUGHPUT]) / number(row["tensor_parallel"])
    return Number(rate, TOKEN_RATE, missing="the point as asked is not predicted")


def _table(case: str, rows: Sequence[Row], as_asked: Row, key: str) -> Table[Row]:
    columns = [
        Column[Row](Text("Choice"), _choice),
        Column[Row](Text("TTFT, median"), lambda row: predicted(row, "ttft_p50_s", "s")),
        Column[Row](Text("TPOT, median"), lambda row: predicted(row, "tpot_p50_s", "s")),
        Column[Row](Text("Output"), lambda row: predicted(row, THROUGHPUT, TOKEN_RATE), TOKEN_RATE),
        Column[Row](Text("Output per GPU"), lambda row: _per_gpu(row).times(_per_gpu(as_asked))),
    ]
    columns += asked_for(rows)
    columns.append(Column[Row](Text("Tier"), lambda row: text(row["tier"])))
    return Table(key, Text("{case} with other choices", case=Name(case)), columns, rows)


def _refused(rows: Sequence[Row]) -> Table[Row]:
    different = {(row["change"], row["value"], row["reason"]): row for row in rows}
    return Table(
        "predicted-not",
        Text("Choices that are not predicted"),
        [Column(Text("Choice"), _choice), Column(Text("Why not"), lambda row: text(row["reason"]))],
        list(different.values()),
    )
