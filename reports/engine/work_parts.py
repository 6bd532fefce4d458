"""Tables of a model's parts: which modules and which operators its FLOPs go to."""

from __future__ import annotations

from dataclasses import dataclass

from nsight_prof.parsers.cells import Row, grouped, known, records, text
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.page import Column, Number, Ref, Table, Text, Value, Verbatim

SHOWN = 12
"""Rows of each table before the rest."""


@dataclass(frozen=True)
class Modules:
    """Modules that differ in numbers of their names alone, as those of all layers of a stack."""

    name: str
    rows: tuple[Row, ...]

    def sum(self, column: str, unit: str) -> Number:
        """Return the sum of a column."""
        refs = tuple(Ref("module_work", text(row["module"]), column) for row in self.rows)
        values = [known(row[column]) for row in self.rows]
        if None in values:
            return Number(None, unit, refs, missing="the target did not count it")
        return Number(sum(filter(None, values)), unit, refs)


def tables(run: Run, source: str) -> list[Table[Modules] | Table[Row]]:
    """Return the tables of what a step counted; none where it named no modules or operators."""
    modules = _modules([row for row in records(run.module_work) if row["source"] == source])
    operators = [row for row in records(run.operator_work) if row["source"] == source]
    found: list[Table[Modules] | Table[Row]] = []
    if modules:
        found.append(_module_table(modules))
    if operators:
        found.append(_operator_table(operators))
    return found


def _modules(rows: list[Row]) -> list[Modules]:
    """Return the modules that multiply, most FLOPs first; outer ones before those inside."""
    groups = grouped(rows, lambda row: _of_any_layer(text(row["module"])))
    busy = [Modules(n, tuple(of)) for n, of in groups.items() if any(row["flops"] for row in of)]
    return sorted(busy, key=lambda m: m.sum("flops", "FLOP").value or 0, reverse=True)


def _of_any_layer(name: str) -> str:
    """Return the name of a module with * for the number of its layer."""
    return ".".join("*" if word.isdecimal() else word for word in name.split("."))


def _module_table(modules: list[Modules]) -> Table[Modules]:
    total = modules[0].sum("flops", "FLOP")
    return Table(
        "module-work",
        Text("Modules"),
        [
            Column(Text("Module"), _name),
            Column(Text("Class"), lambda m: Verbatim(text(m.rows[0]["kind"]))),
            Column(Text("Modules"), lambda m: Number(len(m.rows), "count")),
            Column(Text("Parameters"), lambda m: m.sum("parameters", "count")),
            Column(Text("FLOPs"), lambda m: m.sum("flops", "FLOP")),
            Column(Text("Share"), lambda m: m.sum("flops", "FLOP").share_of(total)),
            Column(Text("Activations"), lambda m: m.sum("activation_bytes", "B")),
        ],
        modules,
        note=Text(
            "A module counts what is inside of it too; * are all layers of a stack. Activations: "
            "the tensors that it returned, over all of its calls."
        ),
        preview=SHOWN,
    )


def _name(modules: Modules) -> Value:
    return Verbatim(modules.name) if modules.name else Text("the whole model")


def _operator_table(rows: list[Row]) -> Table[Row]:
    stages: dict[str, Number] = {}
    for row in rows:
        stage = text(row["stage"])
        stages[stage] = _flops(row) + stages[stage] if stage in stages else _flops(row)

    def share(row: Row) -> Number:
        return _flops(row).share_of(stages[text(row["stage"])])

    ordered = sorted(rows, key=lambda row: row["flops"], reverse=True)
    return Table(
        "operator-work",
        Text("Operators that multiply"),
        [
            Column(Text("Stage"), lambda row: Verbatim(text(row["stage"]))),
            Column(Text("Operator"), lambda row: Verbatim(text(row["operator"]))),
            Column(Text("FLOPs"), _flops),
            Column(Text("Of its stage"), share),
        ],
        ordered,
        preview=SHOWN,
    )


def _flops(row: Row) -> Number:
    key = f"{text(row['stage'])}/{text(row['operator'])}"
    return Number(known(row["flops"]), "FLOP", (Ref("operator_work", key, "flops"),))
