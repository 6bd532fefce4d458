"""Runs a benchmark target, un-profiled, in fresh processes, and keeps the records of each."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from nsight_prof.orchestrator.plan.plan import Step
from nsight_prof.orchestrator.plan.program import Turn, measuring_program
from nsight_prof.orchestrator.run.bench_records import count_cases, cut_half_line
from nsight_prof.orchestrator.run.work import Call, Result, Work, call, full
from nsight_prof.orchestrator.system.discover import Tool
from nsight_prof.orchestrator.system.process import Finished
from nsight_prof.orchestrator.system.secrets import mask_file
from nsight_prof.orchestrator.tools import target
from nsight_prof.parsers.build.telemetry_tables import host_speed_file
from nsight_prof.parsers.errors import ProfError, StepFailed, ToolMissing
from nsight_prof.parsers.run.sentences import stored
from nsight_prof.parsers.whole_file import write_atomic

# What is known of the processes that ended well, so that a resumed run starts only the others.
FINISHED = "finished.json"
# Facts of the machine without which the records of two processes do not belong together.
SAME_SOFTWARE = ("driver", "torch", "triton", "vllm", "sglang")


@dataclass(frozen=True)
class Ended:
    """How one process ended; `error` is None where it went well.

    `hung`: it was ended because its time was over.
    """

    turn: Turn
    cases: int
    error: ProfError | None = None
    hung: bool = False

    @property
    def lasts(self) -> bool:
        """Whether the next process would fail alike: it sees no GPU, or waits for ever."""
        return self.hung or isinstance(self.error, ToolMissing)


def measure(step: Step, folder: Path, work: Work, result: Result) -> None:
    """Start the target once for each process of each repeat; `folder` gets a file of each.

    A process that fails after some cases keeps them, and the others go on; the step is then done
    in part, and the run ends as one of which a step failed.

    Raises:
        StepFailed: no process wrote a case, or the first one hung.
        ToolMissing: the target sees no GPU.
    """
    turns = _turns(work)
    key = _key(step, work)
    ended = _reuse(folder, key, turns, result)
    ended_turns = {ended_turn.turn for ended_turn in ended}
    for number, turn in enumerate(turns, 1):
        if turn in ended_turns:
            continue
        label = f"process {number} of {len(turns)}"
        ended_turn = _run(step, turn, label, folder, work, result)
        ended.append(ended_turn)
        if ended_turn.error is None:
            finished = [done.turn.file for done in ended if done.error is None]
            write_atomic(folder / FINISHED, json.dumps({"key": key, "files": finished}) + "\n")
        elif not any(done.cases for done in ended) and ended_turn.lasts:
            raise ended_turn.error
        else:
            result.warnings.append(_failure_text(ended_turn, label))
    errors = [ended_turn.error for ended_turn in ended if ended_turn.error is not None]
    if not any(ended_turn.cases for ended_turn in ended):
        result.warnings.clear()
        raise errors[0]
    if errors:
        result.error = type(errors[0])(
            stored(
                "{errors} of {turns} processes of the benchmark failed; the report holds what "
                "was measured; the first one: {message}",
                errors=len(errors),
                turns=len(turns),
                message=errors[0].message,
            ),
            errors[0].hint,
        )


def _turns(work: Work) -> list[Turn]:
    bench = work.recipe.bench
    assert bench is not None
    processes, repeats = range(1, bench.processes + 1), range(1, bench.repeat + 1)
    return [Turn(repeat, process) for repeat in repeats for process in processes]


def _run(step: Step, turn: Turn, label: str, folder: Path, work: Work, result: Result) -> Ended:
    """Run one process to its end; its logs are appended to those of the step."""
    out = folder / turn.file
    program = measuring_program(work.program, out, turn)
    tool = Tool("target", program.argv[0], "", frozenset())
    argv, logs = list(program.argv), _logs(turn)
    what = Call(step.name, tool, argv, folder, step.timeout_s, substep=label, logs=logs)
    result.argv = result.argv or what.argv

    try:
        finished = call(work, what)
    finally:
        _append(what.stdout, folder / "stdout.log", label)
        _append(what.stderr, folder / "stderr.log", label)
        if out.is_symlink():  # what it points to is not ours
            out.unlink()
        mask_file(out, work.machine.environment.secrets)
    if result.exit_code in (None, 0):
        result.exit_code = finished.exit_code
    cut_half_line(out)
    cases = count_cases(out)
    return Ended(turn, cases, _error(finished, what, cases), finished.timed_out)


def _logs(turn: Turn) -> str:
    """Return what is in the names of a process's logs."""
    return f"-{turn.repeat}-{turn.process}"


def _error(finished: Finished, what: Call, cases: int) -> ProfError | None:
    """Return why a process failed, in the target's own words where it says it; None: it did not."""
    if finished.ok and cases:
        return None
    if finished.ok:
        return StepFailed(
            "the target ended well and wrote no case",
            "see what it would measure: the same command with --list; target.args.only may leave "
            "nothing",
        )
    if finished.timed_out:
        return StepFailed(
            f"the target did not end within {what.timeout_s:.0f} s; all of its processes were "
            "ended",
            "if it only needs more time: --set bench.timeout=1h; fewer cases: "
            "--set target.args.only=REGEX",
        )
    if finished.signal:
        return StepFailed(
            f"the target was killed ({finished.signal})",
            "SIGKILL is often too little memory (see dmesg); else run the target by itself",
        )
    known = target.explain_itself(finished.tail) or target.explain(finished.tail) or full(what)
    return known or StepFailed(
        f"the target ended with exit code {finished.exit_code}: {_last_words(finished.tail)}",
        "see stderr.log of the bench step, and run the target by itself: command.json has the "
        "command",
    )


def _last_words(tail: str) -> str:
    lines = [line.strip() for line in tail.splitlines() if line.strip()]
    return lines[-1][:200] if lines else "it printed nothing"


def _failure_text(ended_turn: Ended, label: str) -> str:
    assert ended_turn.error is not None
    when = (
        f"after {ended_turn.cases} cases, which are kept"
        if ended_turn.cases
        else "before its first case"
    )
    return f"{label} failed {when}: {ended_turn.error.message}"


def _append(log: Path, step_log: Path, label: str) -> None:
    """Move the log of one process to the end of that of the step, under a heading."""
    if not log.is_file():
        return
    with step_log.open("ab") as end:
        end.write(f"--- {label}\n".encode())
        with log.open("rb") as begin:
            shutil.copyfileobj(begin, end)
    log.unlink()


def _key(step: Step, work: Work) -> str:
    """Return the hash of all that must be the same for records of two processes to be pooled."""
    numbers = ("bench.processes", "bench.repeat")
    inputs = {name: value for name, value in step.inputs.items() if name not in numbers}
    software = {name: work.machine.software.get(name, "") for name in SAME_SOFTWARE}
    gpus = [gpu.get("uuid", "") for gpu in work.machine.gpus]
    text = json.dumps([inputs, software, gpus], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _reuse(folder: Path, key: str, turns: list[Turn], result: Result) -> list[Ended]:
    """Copy the records of processes which an earlier try of this step finished."""
    found: dict[Turn, Ended] = {}
    for earlier in _earlier(folder):
        try:
            known = json.loads((earlier / FINISHED).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        for turn in turns:
            source = earlier / turn.file
            wanted = turn not in found and known.get("key") == key
            if (
                wanted
                and turn.file in known.get("files", ())
                and source.is_file()
                and not source.is_symlink()
            ):
                shutil.copyfile(source, folder / turn.file)
                speed = earlier / host_speed_file(_logs(turn))
                if speed.is_file() and not speed.is_symlink():
                    shutil.copyfile(speed, folder / speed.name)
                found[turn] = Ended(turn, count_cases(source))
    if found:
        names = sorted(turn.file for turn in found)
        write_atomic(folder / FINISHED, json.dumps({"key": key, "files": names}) + "\n")
        result.warnings.append(
            stored(
                "{found} of {turns} processes were measured before the run was resumed",
                found=len(found),
                turns=len(turns),
            )
        )
    return list(found.values())


def _earlier(folder: Path) -> Iterator[Path]:
    """Give the folders of earlier tries of the step, the newest first."""
    stem = folder.name.removesuffix(".partial")
    tries = [*folder.parent.glob(f"{stem}.failed-*"), *folder.parent.glob(f"{stem}.replaced-*")]
    yield from sorted(tries, key=lambda path: path.stat().st_mtime, reverse=True)
