"""Output that nobody takes: closed pipes, full devices, closed streams."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

PROF = f"{sys.executable} -m nsight_prof"


def shell(line: str, root: Path) -> subprocess.CompletedProcess[str]:
    argv = ["bash", "-o", "pipefail", "-c", line]
    return subprocess.run(argv, cwd=root, capture_output=True, text=True, check=False)


# `true` ends at once; prof is let go on only when it has: the pipe is closed for sure.
CLOSED = "exec 3> >(exec true); wait $!; {} >&3"


@pytest.mark.parametrize("words", ["--help", "run --help", "recipe schema", "metrics"])
@pytest.mark.parametrize("both", ["", " 2>&1"])
def test_a_reader_that_has_gone_ends_prof_as_sigpipe_does(
    root: Path, words: str, both: str
) -> None:
    done = shell(CLOSED.format(f"{PROF} {words}") + both, root)
    assert (done.returncode, done.stderr) == (141, "")


def test_a_comparison_that_nobody_reads_is_no_broken_rule(
    root: Path, recorded_folder: Callable[[str], Path]
) -> None:
    """It exited with 1, as for a run that got slower."""
    run = recorded_folder("compare/eager")
    assert shell(CLOSED.format(f"{PROF} compare {run} {run}"), root).returncode == 141


@pytest.mark.parametrize("words", ["--help", "recipe list", "metrics"])
def test_output_that_does_not_fit_is_an_error_with_its_reason(root: Path, words: str) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full")
    done = shell(f"{PROF} {words} > /dev/full", root)
    assert done.returncode == 1
    assert "the disk is full" in done.stderr
    assert "write the output elsewhere" in done.stderr
    assert "--resume" not in done.stderr  # none of them makes a run
    assert "Exception ignored" not in done.stderr
    assert shell(f"{PROF} {words} > /dev/full 2>&1", root).returncode == 1


def test_a_closed_stream_is_no_error(root: Path) -> None:
    done = shell(f"{PROF} recipe list >&-", root)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_home_that_is_not_there_is_no_matter(root: Path, tmp_path: Path) -> None:
    code = (
        "from nsight_prof.reports.plots.style import render_svg\n"
        "from matplotlib.figure import Figure\n"
        "print(len(render_svg(Figure())) > 0)"
    )
    line = f"env -i PATH=$PATH HOME=/proc/none TMPDIR={tmp_path} {sys.executable} -c '{code}'"
    done = shell(line.replace("'", '"').replace('"' + code + '"', f"'{code}'"), root)
    assert (done.stdout, done.stderr) == ("True\n", "")
