"""Turns an Nsight Systems report into SQLite, and an Nsight Compute report into CSV."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path

from nsight_prof.orchestrator.system.discover import Tool, find_nsys
from nsight_prof.orchestrator.system.process import Command, Finished, run
from nsight_prof.orchestrator.system.recorded_environment import drop_environments
from nsight_prof.orchestrator.tools import ncu, nsys, target
from nsight_prof.parsers.errors import ArtifactUnreadable, ProfError, SchemaTooNew, ToolMissing

EXPORT_SECONDS = 3600.0


def export_sqlite(report: Path, sqlite: Path, original: Path | None = None) -> Path:
    """Export `report` (.nsys-rep, .qdrep) to `sqlite` with this machine's nsys.

    `original` is the file that `report` is a copy of: an export may lie beside it. The
    environments that nsys recorded are deleted from the SQLite file.

    Raises:
        ToolMissing: no nsys here, or one that cannot import.
        ArtifactUnreadable: the report is damaged, or newer than this nsys.
    """
    try:
        tool = find_nsys(os.environ)
    except ToolMissing as error:
        exported = (original or report).with_suffix(".sqlite")
        raise ToolMissing(
            f"{report} must be exported to SQLite, and {error.message}",
            f"{exported} lies beside it: use that"
            if exported.is_file()
            else f"export it where nsys is: nsys export --type=sqlite {report}; then use the "
            ".sqlite file",
        ) from error
    export_with(tool, report, sqlite, os.environ)
    return sqlite


def export_with(tool: Tool, report: Path, sqlite: Path, environment: Mapping[str, str]) -> None:
    """Export `report` to `sqlite` with `tool`; see `export_sqlite`."""
    sqlite.unlink(missing_ok=True)
    argv = nsys.export_argv(tool.program, report, sqlite, tool.features)
    with tempfile.TemporaryDirectory(prefix="prof-export-") as folder:
        finished = _run(argv, environment, Path(folder) / "stdout")
    if not finished.ok or not sqlite.is_file() or sqlite.stat().st_size == 0:
        sqlite.unlink(missing_ok=True)
        raise _export_error(tool, report, finished)
    try:
        drop_environments(sqlite)
    except BaseException:
        sqlite.unlink(missing_ok=True)  # it still holds them
        raise


def export_csv(
    tool: Tool, report: Path, csv: Path, environment: Mapping[str, str], page: str = "raw"
) -> None:
    """Print a page of `report` into `csv`, base units, mangled names: raw (counters), details.

    Raises:
        ArtifactUnreadable: ncu cannot read the report, or it holds no kernel.
    """
    argv = ncu.csv_argv(tool.program, report, page)
    finished = _run(argv, {**environment, **ncu.ENVIRONMENT}, csv)
    # An import that matches nothing exits 0 and prints nothing; errors go to stdout.
    if not finished.ok or csv.stat().st_size == 0:
        csv.unlink(missing_ok=True)
        raise ArtifactUnreadable(
            f"ncu cannot print {report}: {_first_line(finished.tail) or 'it holds no kernel'}",
            "read it with ncu-report instead: pip install ncu-report",
        )


def _run(argv: list[str], environment: Mapping[str, str], stdout: Path) -> Finished:
    with tempfile.TemporaryDirectory(prefix="prof-export-") as folder:
        stderr = Path(folder) / "stderr"
        return run(Command(tuple(argv), environment, Path.cwd(), stdout, stderr, EXPORT_SECONDS))


def _export_error(tool: Tool, report: Path, finished: Finished) -> ProfError:
    made_by = _made_by(report)
    if made_by > tuple(int(number) for number in tool.version.split(".")[:3] if number.isdigit()):
        return SchemaTooNew(
            f"{report} was made by nsys {'.'.join(map(str, made_by))}, and nsys {tool.version}, "
            "which is here, cannot export it",
            "install that nsys or a newer one, or export it where it was made: nsys export "
            f"--type=sqlite {report}; then: prof import FILE.sqlite",
        )
    if finished.timed_out:
        return ArtifactUnreadable(
            f"nsys did not export {report} within {EXPORT_SECONDS:.0f} s",
            "export it by hand: nsys export --type=sqlite; then: prof import FILE.sqlite",
        )
    known = target.explain(finished.tail) or nsys.explain(finished.tail)
    if known is not None:
        return type(known)(f"{report} cannot be exported: {known.message}", known.hint)
    reason = _first_line(finished.tail) or finished.signal or f"exit code {finished.exit_code}"
    return ArtifactUnreadable(
        f"nsys cannot export {report} to SQLite: {reason}",
        "the report is kept; export it with the nsys that made it: nsys export --type=sqlite, "
        "then: prof import FILE.sqlite",
    )


def _made_by(report: Path) -> tuple[int, ...]:
    """Version of the nsys that made a report; empty where it does not tell (before 2023.4)."""
    with report.open("rb") as stream:
        found = re.match(rb"NVIDIA Tegra Profiler Report (\d+)@(\d+)@(\d+)@", stream.read(100))
    return tuple(map(int, found.groups())) if found else ()


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "")[:300]
