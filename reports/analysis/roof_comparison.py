"""Roofs side by side: measured, from counters and from the datasheet, and who measured them."""

from __future__ import annotations

from nsight_prof.parsers.build.roofline import Ceiling
from nsight_prof.parsers.errors import ProfError
from nsight_prof.parsers.roofs.file import ROOFS_FILE, RoofsFile, read_roofs
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.analysis.models import RoofComparison
from nsight_prof.reports.page import Text, Value
from nsight_prof.reports.page.charts import Roof

ORDER = ("dram", "l2", "l1", "shared", "tensor", "fp16", "fp32", "fp64")


def compare_roofs(roofs: tuple[Roof, ...]) -> tuple[RoofComparison, ...]:
    """Return a row for each level and each pipe with its type: memory first, the fastest types."""
    keys = dict.fromkeys((roof.key, _dtype(roof)) for roof in roofs)
    rows = [_row([r for r in roofs if (r.key, _dtype(r)) == key]) for key in keys]
    return tuple(sorted(rows, key=_sort_key))


def _sort_key(row: RoofComparison) -> tuple[int, float]:
    position = ORDER.index(row.key) if row.key in ORDER else len(ORDER)
    value = row.measured or row.counters or row.datasheet or 0.0
    return position, -value if row.key == "tensor" else 0.0


def _dtype(roof: Roof) -> str:
    """Return the type that tells roofs of one key apart: only the Tensor Cores have several."""
    return roof.dtype if roof.key == "tensor" else ""


def _row(roofs: list[Roof]) -> RoofComparison:
    by_source: dict[str, Roof] = {}
    for roof in roofs:
        by_source.setdefault(roof.source, roof)
    measured, counters, sheet = (
        by_source.get(source) for source in ("measured", "counters", "datasheet")
    )
    first = roofs[0]
    return RoofComparison(
        first.key,
        _dtype(first),
        first.label,
        first.unit,
        measured.value if measured else None,
        # The SM clock of the probe says nothing about DRAM, which has a clock of its own.
        measured.clock_hz if measured and first.key != "dram" else None,
        counters.value if counters else None,
        counters.clock_hz if counters else None,
        sheet.value if sheet else None,
        measured.value / _at(counters, measured.clock_hz) if measured and counters else None,
        measured.value / sheet.value if measured and sheet else None,
    )


def _at(roof: Roof, clock_hz: float | None) -> float:
    ceiling = Ceiling(roof.key, roof.dtype, roof.value, roof.unit, roof.source,
                      roof.clock_hz or 0.0, "")  # fmt: skip
    return ceiling.at_clock(clock_hz or 0.0)


def _roofs_file(run: Run) -> RoofsFile | None:
    """Return the measured roofs that the run uses."""
    path = run.path / ROOFS_FILE
    if not path.is_file() or not (run.roofs["source"] == "measured").any():
        return None
    try:
        return read_roofs(path)
    except ProfError:
        return None  # Table gaps has it.


def roofs_of_another(run: Run) -> Text | None:
    """Return one sentence where another GPU of the same model measured the roofs, else None."""
    file = _roofs_file(run)
    uuid = file.gpu.get("uuid") if file is not None else None
    present = [gpu.get("uuid") for gpu in run.manifest.gpus]
    if file is None or not uuid or not present or not all(present) or uuid in present:
        return None
    return Text("The measured roofs are those of another {gpu}.", gpu=str(file.gpu["name"]))


def roofs_measured_by(run: Run) -> Text | None:
    """Return one sentence: which run measured the roofs, when, on which GPU and driver.

    None where the run uses no measured roofs.
    """
    file = _roofs_file(run)
    if file is None:
        return None
    is_of_run = file.run_id == run.manifest.run_id
    driver = str(file.gpu.get("driver") or "")
    name = str(file.gpu.get("name") or "")
    values: dict[str, Value] = {
        "when": file.measured,
        "gpu": name or Text("a GPU that it does not name"),
        "driver": Text(", driver {version}", version=driver) if driver else "",
    }
    if is_of_run or not file.run_id:
        return Text("Measured roofs are from this run, {when}, on {gpu}{driver}.", **values)
    return Text(
        "Measured roofs are from the run {run}, {when}, on {gpu}{driver}.",
        run=file.run_id,
        **values,
    )
