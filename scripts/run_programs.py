"""Runs the whole programs of tests/proof_programs with prof on a GPU.

    python scripts/run_programs.py DIR                  all: slow, without profiler, repaired
    python scripts/run_programs.py DIR loader casts     only these
    python scripts/run_programs.py DIR --steps slow     only the slow programs under prof
    python scripts/run_programs.py DIR --within 480     begin nothing after 480 s
    python scripts/run_programs.py DIR --steps actions  do what findings of repaired ones say
    python scripts/run_programs.py DIR --steps report   by the rules of now, again; needs no GPU
    python scripts/run_programs.py DIR --set third.yaml the third set, or fresh.yaml ...

Into DIR/NAME go the runs `slow` and `repaired`, and `times.jsonl` with milliseconds of both
variants without a profiler. What is there already is not run again, so that a run that was cut off
goes on. Programs start side by side (--jobs), but take turns on the GPU: a lock lets only one at a
time be there. `scripts/score_programs.py DIR` says how prof did.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import yaml

PROGRAMS = Path(__file__).resolve().parent.parent / "tests" / "proof_programs"
OWN, FRESH, THIRD = "programs.yaml", "fresh.yaml", "third.yaml"
FOURTH, FIFTH, SIXTH, SEVENTH = "fourth.yaml", "fifth.yaml", "sixth.yaml", "seventh.yaml"
EIGHTH, NINTH, TENTH, ELEVENTH = "eighth.yaml", "ninth.yaml", "tenth.yaml", "eleventh.yaml"
TWELFTH, THIRTEENTH, FOURTEENTH = "twelfth.yaml", "thirteenth.yaml", "fourteenth.yaml"
FIFTEENTH, SIXTEENTH, SEVENTEENTH = "fifteenth.yaml", "sixteenth.yaml", "seventeenth.yaml"
EIGHTEENTH, NINETEENTH, TWENTIETH = "eighteenth.yaml", "nineteenth.yaml", "twentieth.yaml"
SETS = (
    *(OWN, FRESH, THIRD, FOURTH, FIFTH, SIXTH, SEVENTH, EIGHTH, NINTH, TENTH),
    *(ELEVENTH, TWELFTH, THIRTEENTH, FOURTEENTH, FIFTEENTH, SIXTEENTH, SEVENTEENTH),
    *(EIGHTEENTH, NINETEENTH, TWENTIETH),
)
"""Sets of programs that were written to be run by this script."""
STEPS = ("slow", "times", "repaired", "choices", "actions", "report")
CHOICES = ("graph", "tf32")
"""What the owner of a program may choose, and common.py can measure of the repaired one."""
Program = Mapping[str, Any]


def programs(names: Sequence[str] = (), listed_in: str = OWN) -> list[Program]:
    """Return the programs of these names, or all, in the order of the file that lists them.

    Raises:
        SystemExit: a name is of no program.
    """
    listed = yaml.safe_load((PROGRAMS / listed_in).read_text(encoding="utf-8"))["programs"]
    if unknown := set(names) - {program["name"] for program in listed}:
        raise SystemExit(
            f"error: no program is called {', '.join(sorted(unknown))}\n\n"
            f"hint: names stand in {PROGRAMS / listed_in}"
        )
    return [program for program in listed if not names or program["name"] in names]


def source(program: Program) -> Path:
    """Return the file of a program, Python or CUDA."""
    file = PROGRAMS / f"{program['name']}.py"
    return file if file.is_file() else file.with_suffix(".cu")


def recipe(program: Program, binary: Path, repaired: bool) -> dict[str, Any]:
    """Return the recipe that profiles a program; `binary` is what a CUDA one was compiled to."""
    file = source(program)
    python = file.suffix == ".py"
    target: dict[str, Any] = {"args": {"repaired": True} if repaired else {}}
    target |= {"file": str(file)} if python else {"command": [str(binary)]}
    counters: dict[str, Any] = {"enabled": program["level"] == "kernel"}
    if counters["enabled"]:
        counters |= {"source": True, "clock_control": "none", "timeout": "120s"}
    return {
        "name": "program",
        "question": "What does this program lose its time in?",
        "target": target,
        "capture": "profiler-api",
        "stages": [],
        "trace": {"timeout": "100s", "python_sampling": python, "launch_lines": True},
        "select": {"top_k": 3},
        "counters": counters,
        "values": {"enabled": python, "seconds": 5, "timeout": "60s"},
    }


def run_step(program: Program, step: str, out: Path, limit: float) -> str:
    """Run one step of a program unless its result is there; return how it ended.

    `limit` is in seconds, for each process that is started.
    """
    folder = out / program["name"]
    folder.mkdir(parents=True, exist_ok=True)
    binary = folder / program["name"]
    if step == "build":
        return build(source(program), binary, limit)
    if step == "times":
        return times(program, binary, limit)
    if step == "choices":
        return choices(program, folder, limit)
    if step == "actions":
        return actions(program, folder, limit)
    if step == "report":
        return report(folder, limit)
    return profile(program, step, binary, limit)


def build(file: Path, binary: Path, limit: float) -> str:
    """Compile a CUDA program, with its lines, for the GPU of this machine."""
    if binary.is_file():
        return "there already"
    nvcc = ["nvcc", "-O3", "-std=c++17", "-arch=native", "-g", "-lineinfo", "-I", str(PROGRAMS)]
    return call([*nvcc, "-o", str(binary), str(file)], binary.parent, "build", limit) or "done"


def times(program: Program, binary: Path, limit: float) -> str:
    """Time both variants without a profiler: in turns in one process, or each in a fresh one."""
    to = binary.parent / "times.jsonl"
    if to.is_file():
        return "there already"
    file = source(program)
    start = [sys.executable, str(file)] if file.suffix == ".py" else [str(binary)]
    options = [[], ["--repaired"]] if program.get("fresh") else [["--both", "--repeats", "2"]]
    for at, option in enumerate(options):
        if failed := call([*start, *option], to.parent, f"times{at}", limit):
            return failed
    to.write_text(
        "".join((to.parent / f"times{at}.out").read_text("utf-8") for at in range(len(options))),
        encoding="utf-8",
    )
    return "done"


def choices(program: Program, folder: Path, limit: float) -> str:
    """Time the repaired variant of a torch program with choices of its owner.

    What a program cannot do, as one whose steps wait for results in a CUDA graph, has no time.
    """
    to, file = folder / "choices.jsonl", source(program)
    if to.is_file() or file.suffix != ".py":
        return "there already"
    options = ["--repaired", "--repeats", "2"]
    done = {
        name: call([sys.executable, str(file), *options, "--choice", name], folder, name, limit)
        for name in CHOICES
    }
    rows = [(folder / f"{name}.out").read_text("utf-8") for name in CHOICES if not done[name]]
    to.write_text("".join(rows), encoding="utf-8")
    return "done"


def listed_actions(name: str) -> list[Mapping[str, Any]]:
    """Return what findings of the repaired variant of a program say to do (`actions.yaml`)."""
    return _actions_by_program().get(name, [])


@cache
def _actions_by_program() -> dict[str, list[Mapping[str, Any]]]:
    text = (PROGRAMS / "actions.yaml").read_text(encoding="utf-8")
    found: dict[str, list[Mapping[str, Any]]] = yaml.safe_load(text)["programs"]
    return found


def changed(file: Path, action: Mapping[str, Any], folder: Path) -> Path:
    """Write a program with an action done into a folder.

    Raises:
        SystemExit: what is to be replaced does not stand in the program just once.
    """
    text = file.read_text(encoding="utf-8")
    for edit in action["edits"]:
        if text.count(edit["from"]) != 1:
            raise SystemExit(
                f"error: actions.yaml: {file.name} holds {text.count(edit['from'])} times what is "
                f"to be replaced: {edit['from']!r}\n\nhint: it must stand there once"
            )
        text = text.replace(edit["from"], edit["to"])
    to = folder / f"{file.stem}-{'-'.join(action['causes'])}{file.suffix}"
    to.write_text(text, encoding="utf-8")
    return to


def actions(program: Program, folder: Path, limit: float) -> str:
    """Time the repaired variant with and without what its findings say to do, in turns."""
    to, file = folder / "actions.jsonl", source(program)
    if to.is_file():
        return "there already"
    rows, said = [], []
    for action in listed_actions(program["name"]):
        if "cannot" in action:
            continue
        variant = changed(file, action, folder)
        try:
            done, without = time_action(file, variant, bool(action.get("fresh")), limit)
        except ActionFailed as error:
            said.append(f"{variant.name} {error}")
        else:
            rows.append({"causes": action["causes"], "done": done, "without": without})
    to.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return "; ".join(said) or "done"


class ActionFailed(Exception):
    """A changed program could not be compiled, or did not run."""


def time_action(file: Path, variant: Path, fresh: bool, limit: float) -> list[dict[str, Any]]:
    """Return the rows of a repaired program with an action, which a changed file has, and without.

    Raises:
        ActionFailed: one of them did not run.
    """
    folder, name = variant.parent, variant.stem
    start = [sys.executable, str(file), "--changed", str(variant)]
    if file.suffix == ".cu":
        start = [str(folder / name)]
        (folder / name).unlink(missing_ok=True)
        if (said := build(variant, folder / name, limit)) != "done":
            raise ActionFailed(said)
    options = [[], ["--repaired"]] if fresh else [["--both", "--repeats", "3"]]
    lines: list[str] = []
    for at, option in enumerate(options):
        if failed := call([*start, *option], folder, f"{name}{at}", limit):
            raise ActionFailed(failed)
        lines += (folder / f"{name}{at}.out").read_text("utf-8").splitlines()
    return sorted(map(json.loads, lines), key=lambda row: bool(row["repaired"]))


def profile(program: Program, step: str, binary: Path, limit: float) -> str:
    """Profile a variant (`slow` or `repaired`) of a program with prof."""
    run = binary.parent / step
    if (run / "report" / "metrics.json").is_file():
        return "there already"
    shutil.rmtree(run, ignore_errors=True)
    file = binary.parent / f"{step}.yaml"
    file.write_text(yaml.safe_dump(recipe(program, binary, step == "repaired")), encoding="utf-8")
    prof = [sys.executable, "-m", "nsight_prof", "run", str(file), "--out", str(run)]
    return call(prof, binary.parent, step, limit) or "done"


def report(folder: Path, limit: float) -> str:
    """Make the reports of the runs of a program again."""
    for run in (folder / "slow", folder / "repaired"):
        if (run / "manifest.json").is_file():
            prof = [sys.executable, "-m", "nsight_prof", "report", str(run)]
            if failed := call(prof, folder, f"{run.name}-report", limit):
                return failed
    return "done"


def call(command: Sequence[str], folder: Path, name: str, limit: float) -> str:
    """Run a command with its output in `folder`; return why it failed, empty if it did not."""
    temporary = folder / "tmp"  # of its own: ncu takes a lock there before the program has its turn
    temporary.mkdir(exist_ok=True)
    environment = os.environ | {"PROGRAMS_LOCK": str(folder.parent / "gpu.lock")}
    environment["TMPDIR"] = str(temporary)
    with (folder / f"{name}.out").open("w") as out, (folder / f"{name}.err").open("w") as err:
        process = subprocess.Popen(command, stdout=out, stderr=err, env=environment)
        try:
            code = process.wait(limit)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)  # prof then ends what it started on the GPU, too
            process.wait()
            return f"took more than {limit:.0f} s"
    return f"failed with exit code {code}: {err.name}" if code else ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is asked for; exit code 1 where a program failed or was not begun."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path, metavar="DIR")
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--set", choices=SETS, default=OWN, help="which programs")
    parser.add_argument("--steps", nargs="+", choices=STEPS, default=STEPS[:3])
    parser.add_argument("--jobs", type=int, default=6, help="processes side by side")
    parser.add_argument("--timeout", type=float, default=300, help="seconds for each process")
    parser.add_argument("--within", type=float, default=float("inf"), help="seconds for all")
    asked = parser.parse_args(arguments)
    chosen, out = programs(asked.names, asked.set), asked.out.resolve()
    started = time.monotonic()

    def one(program: Program, step: str) -> bool:
        left = asked.within - (time.monotonic() - started)
        said = "no time left"
        if left > 0:
            said = run_step(program, step, out, min(asked.timeout, left))
        print(f"{time.monotonic() - started:5.0f} s  {program['name']} {step}: {said}", flush=True)
        return said in {"done", "there already"}

    with ThreadPoolExecutor(asked.jobs) as pool:
        cuda = [program for program in chosen if source(program).suffix == ".cu"]
        compiled = cuda if set(asked.steps) != {"report"} else []
        built = list(pool.map(lambda program: one(program, "build"), compiled))
        waiting = [pool.submit(one, program, step) for step in asked.steps for program in chosen]
    return 0 if all([*built, *(job.result() for job in waiting)]) else 1


if __name__ == "__main__":
    sys.exit(main())
