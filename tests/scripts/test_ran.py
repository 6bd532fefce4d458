"""The second run of .ci/run leaves out what the first one showed, and nothing else."""

import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from xml.etree import ElementTree

import pytest

SUITE = {
    "test_plain.py": """
        import pytest

        @pytest.fixture
        def broken():
            yield
            raise OSError

        @pytest.mark.parametrize("word", ["a@b", "two words"])
        def test_passes(word): pass
        def test_is_skipped(): pytest.skip("not here")
        def test_fails(): assert False
        def test_leaves_a_mess(broken): pass
        """,
    "test_other.py": "def test_of_another_file(): pass",
    "test_with_torch.py": """
        import pytest

        def test_asks_for_torch(): pytest.importorskip("torch")
        def test_does_without():
            try:
                import torch
            except ImportError:
                pass
        def test_beside_it(): pass
        """,
    "targets/test_target.py": "def test_of_a_target(): pass",
}
SHOWN = {"test_passes[a@b]", "test_passes[two words]", "test_of_another_file", "test_beside_it"}


@pytest.fixture
def suite(tmp_path: Path, root: Path) -> Path:
    """Some tests, with the options."""
    for name, text in SUITE.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(dedent(text), encoding="utf-8")
    (tmp_path / "conftest.py").write_text((root / "tests" / "ran.py").read_text(encoding="utf-8"))
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    return tmp_path


def run(suite: Path, *options: str) -> set[str]:
    """Run the suite as scripts/test does; return the names of its tests."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST")}
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # each of the processes would load all
    command = [sys.executable, "-m", "pytest", "-p", "xdist", "-n", "1", "--dist", "loadfile"]
    done = subprocess.run(
        [*command, "--junitxml=all.xml", *options],
        cwd=suite, env=environment, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 1, done.stdout + done.stderr  # one test fails
    cases = ElementTree.parse(suite / "all.xml").iter("testcase")
    return {case.attrib["name"] for case in cases}


def test_a_second_run_leaves_out_what_passed_before(suite: Path) -> None:
    # There is no such file yet, and all tests run.
    first = run(suite, "--leave-out", "ran", "--write-ran", "ran")
    assert len(first) == 10
    assert first > SHOWN
    assert run(suite, "--leave-out", "ran") == first - SHOWN
