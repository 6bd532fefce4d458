"""The command line of a benchmark target: cases in, one JSON line per case out."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TextIO

from nsight_prof.targets.harness.api import Case, case_id
from nsight_prof.targets.harness.options import AddArguments, make_parser, parse
from nsight_prof.targets.harness.output import output
from nsight_prof.targets.harness.records import Records, outcome
from nsight_prof.targets.harness.session import ContextLost, Session
from nsight_prof.targets.harness.show import line
from nsight_prof.targets.standalone import complain, need

Cases = Callable[[Namespace], Iterable[Case]]
NONE_CHOSEN = (
    "no case was chosen",
    "--only is searched in the case ids; --list shows those of the other options",
)


def run_target(
    target: str,
    cases: Cases,
    argv: Sequence[str] | None = None,
    *,
    description: str | None,
    add_arguments: AddArguments | None = None,
) -> int:
    """Measure the cases of a target and write a record of each.

    Args:
        target: its name in the records.
        cases: returns the cases for the parsed arguments; may look at the device.
        argv: command line without the program; sys.argv's where None.
        description: of the target; --help has its first paragraph.
        add_arguments: adds the target's own options.

    Returns:
        The exit code: 0, also where single cases could not run; 1 where there is no device, no
        case was chosen, or the CUDA context was lost; 130 after an interrupt, 141 where nobody
        reads stdout any more.

    Raises:
        SystemExit: with code 2 for a wrong command line, 3 without torch, 0 for --help.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    args = parse(make_parser((description or "").split("\n\n")[0], add_arguments), words)
    need("torch")
    try:
        problem = _no_device(args)
        if problem:
            return _fail(*problem)
        chosen = _chosen(cases, args)
        if args.list:
            return _list(chosen)
        with output(args.out) as stream:
            return _run(target, chosen, args, stream)
    except KeyboardInterrupt:
        print("interrupted; the records until here are complete", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # Who read stdout has seen enough. What is still buffered must not fail at exit as well.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except ValueError as error:
        return _fail(str(error), "see --help")
    except OSError as error:
        return _fail(str(error), "--out needs a folder that exists and may be written to")


def _no_device(args: Namespace) -> tuple[str, str] | None:
    import torch

    if args.device == "cuda" and not torch.cuda.is_available():
        return "torch sees no CUDA device", "check nvidia-smi; --device cpu runs tiny sizes"
    return None


def _fail(message: str, hint: str) -> int:
    complain(message, hint)
    return 1


def _list(chosen: Iterator[tuple[Case, str, str]]) -> int:
    seen = 0
    for case, mode, data in chosen:
        seen += 1
        print(case_id(case, mode, data))
    return 0 if seen else _fail(*NONE_CHOSEN)


def _chosen(cases: Cases, args: Namespace) -> Iterator[tuple[Case, str, str]]:
    """Give the chosen cases in each of their modes and kinds of data.

    Raises:
        ValueError: two cases have one name.
    """
    names: set[str] = set()
    for case in cases(args):
        if case.name in names:
            raise ValueError(f"two cases are named {case.name}")
        names.add(case.name)
        if args.count and not case.counted:
            continue
        for data in case.data:
            for mode in case.modes:
                if args.only is None or args.only.search(case_id(case, mode, data)):
                    yield case, mode, data


def _run(
    target: str, chosen: Iterator[tuple[Case, str, str]], args: Namespace, stream: TextIO
) -> int:
    with contextlib.closing(Session(args)) as session:
        return _records(session, target, chosen, args, stream)


def _records(
    session: Session,
    target: str,
    chosen: Iterator[tuple[Case, str, str]],
    args: Namespace,
    stream: TextIO,
) -> int:
    for note in session.notes:
        print(f"note: {note}", file=sys.stderr)
    records = Records(stream, target, args.process, args.repeat)
    started = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    records.conditions(
        {"argv": args.argv, "time": started, "seed": args.seed, "device": args.device}
        | session.conditions()
    )
    lost, seen = "", 0
    for case, mode, data in chosen:
        seen += 1
        if lost:
            result = outcome("failed", f"the CUDA context is lost: {lost}")
        else:
            try:
                result = session.run(case, mode, data)
            except ContextLost as error:
                lost = str(error)
                result = outcome("failed", lost)
        records.case(
            case, mode, data, result, _extra(case, case_id(case, mode, data), args, result)
        )
        print(line(case, mode, data, result), file=sys.stderr, flush=True)
    if lost:
        return _fail(f"the CUDA context was lost: {lost}", "run the cases after it by --only")
    if not seen:
        return _fail(*NONE_CHOSEN)
    return 0


def _extra(case: Case, identity: str, args: Namespace, result: dict[str, Any]) -> dict[str, Any]:
    """Return the case's own fields; GEMMs get their range and the calls that a profiler sees."""
    extra = dict(case.extra)
    if "gemms" in extra:
        calls = args.launches if args.count else _calls(result)
        seen = {"stage": f"case:{identity}", "calls": max(calls, 1)}
        extra["gemms"] = [{**gemm, **seen} for gemm in extra["gemms"]]
    return extra


def _calls(result: dict[str, Any]) -> int:
    timing = result["time"]
    return 1 if timing is None else int(timing["n"] * timing["calls_per_sample"])
