"""Runs cases under limits of time and memory, and judges how each ended."""

from __future__ import annotations

import contextlib
import faulthandler
import io
import random
import shutil
import signal
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from scripts.fuzzing.case import Case, Inputs, Wrong
from scripts.fuzzing.exports import csv_case, sqlite_case
from scripts.fuzzing.recipes import recipe_case
from scripts.fuzzing.runs import manifest_case, parquet_case

SECONDS = 20  # CPU time of one case; most take 0.02

KINDS: dict[str, Callable[[Inputs, Path, random.Random], Case]] = {
    "sqlite": sqlite_case,
    "csv": csv_case,
    "parquet": parquet_case,
    "manifest": manifest_case,
    "recipe": recipe_case,
}


class TooLong(BaseException):
    """A case ran into its time limit."""


@contextlib.contextmanager
def time_limit(seconds: int) -> Iterator[None]:
    """Raise TooLong in this thread after so many seconds."""

    def stop(_number: int, _frame: object) -> None:
        raise TooLong

    old = {n: signal.signal(n, stop) for n in (signal.SIGPROF, signal.SIGALRM)}
    signal.setitimer(signal.ITIMER_PROF, seconds)  # does not count what other processes take
    signal.setitimer(signal.ITIMER_REAL, 6 * seconds)  # for what waits
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in old.items():
            signal.signal(number, handler)


def run_case(
    inputs: Inputs, seed: int, number: int, kinds: Sequence[str], keep: Path | None
) -> str:
    """Do one case; return what is wrong with its end, "" where it ended as it should."""
    kind = kinds[number % len(kinds)]
    rng = random.Random(f"{seed}:{number}:{kind}")
    folder = Path(tempfile.mkdtemp(prefix="fuzz-", dir=keep or inputs.folder))
    try:
        case = KINDS[kind](inputs, folder, rng)
        out, err = io.StringIO(), io.StringIO()
        faulthandler.dump_traceback_later(6 * SECONDS, exit=True)  # in code that heeds no signal
        with time_limit(SECONDS):
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                code = case.call(case.argv)
            return _judge(case, code, err.getvalue())
    except TooLong:
        return f"{kind}: more than {SECONDS} s: {' '.join(case.argv)}"
    except Wrong as error:
        return f"{kind}: wrong value: {error}"
    except Exception:
        return f"{kind}: an error of its own: {traceback.format_exc()}"
    finally:
        faulthandler.cancel_dump_traceback_later()
        if keep is None:
            shutil.rmtree(folder)


def _judge(case: Case, code: int, err: str) -> str:
    if "Traceback" in err or "defect of prof" in err:
        return f"{case.argv[0]}: {code}: {err[-600:]}"
    if code == 0:
        case.check()
        return ""
    if code not in (2, 4) or not err.strip():
        return f"{case.argv[0]}: exit {code}: {err[-600:]}"
    if "error: " not in err.lower() or "hint:" not in err and "Usage:" not in err:
        return f"{case.argv[0]}: exit {code} without a sentence: {err[-600:]}"
    return ""
