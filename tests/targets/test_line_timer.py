"""The timer of lines in programs of their own: what ran how often is known by counting."""

import json
import os
import subprocess
import sys
from array import array
from pathlib import Path
from typing import Any

import pytest

PROGRAM = """
import asyncio
import os
import sys
import threading
import time


def hot(count):
    known = {1, 2, 3}
    found = 0
    for number in range(count):
        if number in known:
            found += 1
    return found


def numbers(count):
    for number in range(count):
        time.sleep(0.002)
        yield number


async def rest():
    for _ in range(3):
        await asyncio.sleep(0.001)


def fail(depth):
    if not depth:
        raise ValueError
    fail(depth - 1)


def main():
    other = threading.Thread(target=hot, args=(100,))
    other.start()
    other.join()
    hot(1000)
    sum(numbers(5))
    asyncio.run(rest())
    try:
        fail(3)
    except ValueError:
        time.sleep(0.02)
    child = os.fork()
    if not child:
        hot(50)
        os._exit(0)
    os.waitpid(child, 0)
    sys.exit(7)


main()
"""


def lines(text: str) -> dict[str, int]:
    return {line.strip(): at for at, line in enumerate(text.splitlines(), 1)}


def recorded(path: Path) -> tuple[dict[int, list[int]], dict[str, Any]]:
    """Return hits, time and time in other lines of each line, and the last block."""
    data, at = path.read_bytes(), 0
    places: dict[int, int] = {}
    sums: dict[int, list[int]] = {}
    head: dict[str, Any] = {}
    while at < len(data):
        end = data.index(b"\n", at)
        head, at = json.loads(data[at:end]), end + 1
        if head["kind"] == "lines":
            places |= {row[0]: row[3] for row in head["rows"]}
        width = {"totals": 4, "spans": 3}.get(head["kind"], 0)
        size = 8 * width * head.get("count", 0)
        if head["kind"] == "totals":
            values = array("q", data[at : at + size])
            for number, *more in zip(*[iter(values)] * 4, strict=True):
                before = sums.get(places[number], [0, 0, 0])
                sums[places[number]] = [a + b for a, b in zip(before, more, strict=True)]
        at += size
    return sums, head


@pytest.fixture
def run(tmp_path: Path, root: Path) -> Any:
    def start(text: str, **variables: str) -> subprocess.CompletedProcess[str]:
        (tmp_path / "program.py").write_text(text)
        timer = str(root / "targets/line_timer")
        environment = os.environ | {"PROF_LINES": str(tmp_path), "PYTHONPATH": timer} | variables
        command = [sys.executable, str(tmp_path / "program.py")]
        return subprocess.run(command, capture_output=True, text=True, env=environment)

    return start


def test_each_line_has_its_hits_and_its_time(run: Any, tmp_path: Path) -> None:
    assert run(PROGRAM).returncode == 7
    (file,) = tmp_path.glob("lines-*.bin")  # what forked does not write
    (sums, end), at = recorded(file), lines(PROGRAM)
    assert (end["kind"], end["reason"]) == ("end", "")
    assert sums[at["if number in known:"]][0] == 1000 + 100
    assert sums[at["found += 1"]][0] == 3 + 3
    assert sums[at["fail(depth - 1)"]][0] == 3
    hits, time_ns, _ = sums[at["time.sleep(0.002)"]]
    assert hits == 5
    assert time_ns >= 5 * 2_000_000
    # A line that calls one of the program holds its time, as time in other lines.
    _, time_ns, inner_ns = sums[at["sum(numbers(5))"]]
    assert 5 * 2_000_000 <= inner_ns <= time_ns
    _, time_ns, inner_ns = sums[at["time.sleep(0.02)"]]
    assert (inner_ns, time_ns >= 20_000_000) == (0, True)


def test_code_of_libraries_is_not_timed(run: Any, tmp_path: Path) -> None:
    run("import json\nfor number in range(10):\n    json.dumps({number: str(number)})\n")
    (file,) = tmp_path.glob("lines-*.bin")
    assert set(recorded(file)[0]) == {1, 2, 3}


def test_without_code_of_its_own_a_process_leaves_nothing(run: Any, tmp_path: Path) -> None:
    text = "import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'import json'])\n"
    assert run(text).returncode == 0
    assert len(list(tmp_path.glob("lines-*.bin"))) == 1


def test_another_module_of_this_name_is_run_as_well(run: Any, tmp_path: Path, root: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/sitecustomize.py").write_text("import sys\nsys.mine = 1\n")
    paths = os.pathsep.join((str(root / "targets/line_timer"), str(tmp_path / "mine")))
    text = "import sys\nprint(sys.mine, sys.modules['sitecustomize'].__file__)"
    done = run(text, PYTHONPATH=paths)
    assert done.stdout.split() == ["1", str(tmp_path / "mine/sitecustomize.py")]


def test_where_it_cannot_write_the_program_goes_on(run: Any, tmp_path: Path) -> None:
    done = run(PROGRAM, PROF_LINES=str(tmp_path / "nowhere"))
    assert (done.returncode, done.stderr) == (7, "")


TRACED = """
import sys
sys.settrace(lambda *_: None)
"""
MONITORED = """
import sys
for number in (3, 4):
    sys.monitoring.use_tool_id(number, "another")
"""


def test_where_another_tool_watches_it_says_so(run: Any, tmp_path: Path, root: Path) -> None:
    (tmp_path / "mine").mkdir()
    busy = MONITORED if hasattr(sys, "monitoring") else TRACED
    (tmp_path / "mine/sitecustomize.py").write_text(busy)
    paths = os.pathsep.join((str(root / "targets/line_timer"), str(tmp_path / "mine")))
    assert run(PROGRAM, PYTHONPATH=paths).returncode == 7
    (file,) = tmp_path.glob("lines-*.bin")
    assert recorded(file)[1]["reason"].endswith("the program already")


def test_a_profiler_that_the_program_starts_works_as_without_it(run: Any) -> None:
    text = "import cProfile\nwith cProfile.Profile():\n    sum(range(9))\nprint('ended')\n"
    done = run(text)
    assert (done.stdout, done.stderr) == ("ended\n", "")
