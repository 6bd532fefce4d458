"""Options for a second run of the tests that leaves out what a first one showed.

`.ci/run` tests a fresh clone without torch and `../shared`, then again with them, and with all
recorded runs. Of a test that passed in the first run, the second one tells nothing new unless torch
makes a difference to it.
"""

import inspect
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the two files."""
    group = parser.getgroup("two runs")
    group.addoption("--write-ran", type=Path, help="write the tests that passed to this file")
    group.addoption(
        "--leave-out",
        type=Path,
        help="do not run the tests of this file again, but for those that may use torch; "
        "where there is no such file, all run",
    )
    group.addoption(
        "--every-run",
        action="store_true",
        help="replay all recorded runs, not only those of CHOSEN in tests/recorded.py",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Write in the process that hears of all tests, which is none of the workers of xdist."""
    path = config.getoption("--write-ran")
    if path and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Ran(path))


class _Ran:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.ids: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and report.passed:
            self.ids.add(report.nodeid)
        elif report.failed:
            self.ids.discard(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        self.path.write_text("".join(f"{name}\n" for name in sorted(self.ids)), encoding="utf-8")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Drop the tests that need no second run."""
    path = config.getoption("--leave-out")
    if not path or not path.is_file():
        return
    ran = set(path.read_text(encoding="utf-8").splitlines())
    left_out: list[pytest.Item] = []
    again: list[pytest.Item] = []
    for item in items:
        needless = item.nodeid in ran and not _may_use_torch(item)
        (left_out if needless else again).append(item)
    config.hook.pytest_deselected(items=left_out)
    items[:] = again


def _may_use_torch(item: pytest.Item) -> bool:
    """Whether what a test shows may be another thing where there is torch."""
    return "targets" in item.path.parts or _names_torch(getattr(item, "function", None))


@cache
def _names_torch(test: Callable[..., object] | None) -> bool:
    text = inspect.getsource(test) if test is not None else ""
    return re.search(r"(import|importorskip|find_spec)\W+torch\b", text) is not None
