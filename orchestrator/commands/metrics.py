"""`prof metrics`: shows the metric catalogue: what each column means, and what a set costs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from nsight_prof.orchestrator.commands import shared_options
from nsight_prof.orchestrator.terminal import completion

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

    from nsight_prof.parsers.metrics.catalogue import Catalogue, MetricColumn, StallReason

PIPE_WIDTH = 200  # columns where stdout is no terminal, so that names stay whole
DEFAULT_DTYPES = ("bf16",)


@click.command("metrics")
@click.option(
    "--chip",
    default="GH100",
    show_default=True,
    help="For this chip or GPU.",
    shell_complete=completion.chips,
)
@click.option(
    "--set",
    "sets",
    multiple=True,
    metavar="NAME",
    help="Only this set; repeatable.",
    shell_complete=completion.metric_sets,
)
@click.option(
    "--dtype",
    "dtypes",
    multiple=True,
    metavar="TYPE",
    help="Tensor Core input type to count, bf16 by default; repeatable.",
)
@click.option("--names", is_flag=True, help="Print the names for `ncu --metrics` alone.")
@shared_options.as_json
def command(
    chip: str, sets: tuple[str, ...], dtypes: tuple[str, ...], names: bool, as_json: bool
) -> None:
    """Show the metric catalogue: what each column means and what it costs.

    A set is a named group of columns of the counters table; a recipe chooses sets. Passes are how
    often ncu runs each kernel for the set alone, and for all sets that are shown, as NVIDIA's CUPTI
    library plans them; ncu adds about one.

    \b
    Examples:
      prof metrics
      prof metrics --chip gb202 --set roofline --set stalls
      prof metrics --chip 'RTX 4090' --dtype fp8
      ncu --metrics $(prof metrics --names) ./my_app
    """
    from nsight_prof.parsers.metrics.catalogue import catalogue

    known = catalogue()
    chosen, chip = list(sets or known.sets), known.chip_of(chip)
    given, dtypes = dtypes, dtypes or DEFAULT_DTYPES
    tool_metrics = known.tool_metrics(chosen, chip, dtypes)
    _check_dtypes(known, chip, given)
    if names:
        click.echo(",".join(tool_metrics))
    elif as_json:
        shared_options.say_json(_as_data(known, chosen, chip, dtypes))
    else:
        _print_tables(known, chosen, chip, dtypes)


def _check_dtypes(known: Catalogue, chip: str, dtypes: tuple[str, ...]) -> None:
    from nsight_prof.parsers.errors import UsageError

    counted = known.tensor[known.family(chip)]
    for dtype in dtypes:
        if dtype not in counted:
            raise UsageError(
                f"{chip.upper()} has no counter for Tensor Core operations on {dtype}",
                f"input types that it counts: {', '.join(counted) or 'none'}",
            )


def _as_data(
    known: Catalogue, sets: list[str], chip: str, dtypes: tuple[str, ...]
) -> dict[str, Any]:
    family = known.family(chip)
    return {
        "chip": chip.upper(),
        "like": family,
        "chips": sorted(known.families),
        "tensor_dtypes": list(known.tensor[family]),
        "passes": known.passes(sets, chip, dtypes),
        "sets": {
            name: {
                "meaning": known.sets[name].meaning,
                "passes": known.passes([name], chip, dtypes),
                "columns": list(known.sets[name].columns),
                "tool_metrics": known.tool_metrics([name], chip, dtypes),
            }
            for name in sets
        },
        "columns": [_column_data(known, c, family, dtypes) for c in _columns(known, sets)],
        "stalls": {s.reason: s.label for s in _stalls(known, sets, family)},
        "tool_metrics": known.tool_metrics(sets, chip, dtypes),
    }


def _column_data(
    known: Catalogue, column: MetricColumn, family: str, dtypes: tuple[str, ...]
) -> dict[str, Any]:
    source = known.source(column.name, family)
    counters = [known.tensor[family][d] for d in dtypes if d in known.tensor[family]]
    operations = [name for counter in counters for name in counter.operations]
    inputs: list[str] = []
    for name in source.of if source else ():
        inputs += operations if name.startswith("tensor_operations") else [name]
    return {
        "column": column.name,
        "label": column.label,
        "unit": column.unit,
        "meaning": column.meaning,
        "formula": source.formula if source else None,
        "from": inputs,
        "source": column.literature,
    }


def _stalls(known: Catalogue, sets: list[str], family: str) -> list[StallReason]:
    if not any(known.sets[name].stalls for name in sets):
        return []
    return [s for s in known.stalls if not s.chips or family in s.chips]


def _columns(known: Catalogue, sets: list[str]) -> list[MetricColumn]:
    """Columns of the sets that a table shows, in the order of the catalogue."""
    asked = {name for chosen in sets for name in known.sets[chosen].columns}
    return [c for c in known.columns.values() if c.name in asked and not c.helper]


def _print_tables(known: Catalogue, sets: list[str], chip: str, dtypes: tuple[str, ...]) -> None:
    from nsight_prof.orchestrator.terminal.console import make_console

    family = known.family(chip)
    console = make_console(PIPE_WIDTH)
    rows = [(name, known.passes([name], chip, dtypes), known.sets[name].meaning) for name in sets]
    if len(sets) > 1:
        rows.append(("together", known.passes(sets, chip, dtypes), ""))
    console.print(_table("Metric sets", ("set", "passes", "meaning"), rows), "")
    columns = [_column_data(known, c, family, dtypes) for c in _columns(known, sets)]
    lines = [
        (c["column"], c["unit"], c["meaning"], c["formula"], "\n".join(c["from"])) for c in columns
    ]
    title = f"Columns on {chip.upper()} ({known.products[family]})"
    heads = ("column", "unit", "meaning", "formula", "from")
    console.print(_table(title, heads, lines), "")
    if stalls := _stalls(known, sets, family):
        reasons = [(stall.reason, stall.label, stall.metric) for stall in stalls]
        console.print(_table("Stall reasons", ("reason", "meaning", "from"), reasons), "")
    console.print(f"Chips: {', '.join(sorted(known.families))}", soft_wrap=True)


def _table(title: str, heads: Sequence[str], rows: Sequence[Sequence[object]]) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    for head in heads:
        table.add_column(head, overflow="fold")
    for row in rows:
        table.add_row(*("" if cell is None else str(cell) for cell in row))
    return table
