"""`prof report`: renders a run, and every variant of a sweep, again."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from nsight_prof.orchestrator.cli import main
from nsight_prof.orchestrator.report import reporting
from nsight_prof.orchestrator.system.run_lock import new_folder
from nsight_prof.orchestrator.terminal import display
from nsight_prof.parsers.errors import ArtifactUnreadable, UsageError
from nsight_prof.parsers.run.directory import Manifest, RunDir, write_manifest
from nsight_prof.reports.render.style import Style


@pytest.fixture
def rendered(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the runs that were rendered; a run called `broken` cannot be."""
    names: list[str] = []

    def make_report(run: RunDir) -> tuple[tuple[str, ...], Path]:
        if run.path.name == "broken":
            raise ArtifactUnreadable("trace.sqlite is cut", "record it again")
        names.append(run.path.name)
        return ("copies take the time",), run.report / "report.md"

    def compare_variants(run: RunDir) -> tuple[tuple[str, ...], Path]:
        names.append(f"comparison of {run.path.name}")
        return (), run.report / "report.md"

    monkeypatch.setattr(reporting, "make_report", make_report)
    monkeypatch.setattr(reporting, "compare_variants", compare_variants)
    return names


def make_run(path: Path, *variants: str) -> Path:
    path.mkdir(parents=True)
    write_manifest(RunDir(path), Manifest(path.name, "2026-01-01", {}, variants=list(variants)))
    return path


def test_a_run_is_rendered(
    tmp_path: Path, rendered: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    run = make_run(tmp_path / "mine")
    assert main(["report", str(run)]) == 0
    assert capsys.readouterr().out == (
        f"1. copies take the time\n\nreport: {run}/report/report.md\n"
    )
    assert rendered == ["mine"]


def test_a_sweep_is_compared_even_where_a_variant_is_broken(
    tmp_path: Path, rendered: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    run = make_run(tmp_path / "sweep", "a", "broken", "b")
    assert main(["report", str(run)]) == 0
    assert rendered == ["a", "b", "comparison of sweep"]
    assert capsys.readouterr().err == "warning: broken: trace.sqlite is cut\n"


def test_a_terminal_shows_that_the_report_is_being_made(
    tmp_path: Path,
    rendered: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = str(make_run(tmp_path / "sweep", "broken", "a"))
    seen = io.StringIO()
    console = Console(file=seen, force_terminal=True, width=300, color_system=None)
    assert main(["report", run]) == 0
    plain = capsys.readouterr()
    monkeypatch.setattr(display, "make_display", lambda quiet: display.Display(console, live=True))
    assert main(["report", run]) == 0
    assert capsys.readouterr().out == plain.out
    assert "report: broken" in seen.getvalue()
    assert "report: a" in seen.getvalue()
    assert "warning: broken: trace.sqlite is cut" in seen.getvalue()
    assert plain.err == "warning: broken: trace.sqlite is cut\n"


def test_a_folder_that_is_no_run_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(tmp_path)]) == 2
    assert "is not a run directory" in capsys.readouterr().err


def test_a_folder_whose_name_is_not_utf_8_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Arrow cannot open such a path, which looked like a defect of prof."""
    folder = tmp_path / "r\udcff"
    assert main(["report", str(folder)]) == 2
    said = capsys.readouterr().err
    assert "is not UTF-8" in said
    assert "a name in UTF-8" in said
    with pytest.raises(UsageError, match="is not UTF-8"):
        new_folder("top-kernels", folder, force=False)


def test_pages_of_one_format(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[tuple[str, ...] | None] = []

    def make_report(run: RunDir, style: Style | None = None) -> tuple[tuple[str, ...], Path]:
        asked.append(style.formats if style is not None else None)
        return (), run.report / "report.html"

    monkeypatch.setattr(reporting, "make_report", make_report)
    run = str(make_run(tmp_path / "mine"))
    for kind in ("all", "md", "html"):
        assert main(["report", run, "--format", kind]) == 0
    assert asked == [None, ("md",), ("html",)]
    assert main(["report", run, "--format", "pdf"]) == 2
    capsys.readouterr()
    assert main(["report", run, "--format", "md", "--open", "yes"]) == 2
    assert "--open shows report.html, and --format md writes none" in capsys.readouterr().err
    assert len(asked) == 3
