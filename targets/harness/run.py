"""The command line of a benchmark target: cases in, one JSON line a case out."""

from __future__ import annotations

import contextlib
import re
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, TextIO

from targets.harness.api import Case, case_id
from targets.harness.records import Records, outcome
from targets.harness.session import ContextLost, Session
from targets.harness.show import line

Cases = Callable[[Namespace], Iterable[Case]]


def run_target(
    target: str,
    cases: Cases,
    argv: Sequence[str] | None = None,
    *,
    description: str,
    add_arguments: Callable[[ArgumentParser], None] | None = None,
) -> int:
    """Measure the cases of a target and write a record of each.

    Args:
        target: its name in the records.
        cases: returns the cases for the parsed arguments; may look at the device.
        argv: command line without the program; sys.argv's where None.
        description: of the target, for --help.
        add_arguments: adds the target's own options.

    Returns:
        The exit code: 0, also where single cases could not run; 1 where there is no device, no
        case was chosen, or the CUDA context was lost.
    """
    args = _parser(description, add_arguments).parse_args(argv)
    args.argv = list(sys.argv[1:] if argv is None else argv)
    problem = _no_device(args)
    if problem:
        return _fail(*problem)
    try:
        chosen = _chosen(cases, args)
        if args.list:
            for case, mode, data in chosen:
                print(case_id(case, mode, data))
            return 0
        with _output(args.out) as stream:
            return _run(target, chosen, args, stream)
    except KeyboardInterrupt:
        print("interrupted; the records until here are complete", file=sys.stderr)
        return 130
    except (OSError, ValueError) as error:
        return _fail(str(error), "see --help")


def _parser(
    description: str, add_arguments: Callable[[ArgumentParser], None] | None
) -> ArgumentParser:
    parser = ArgumentParser(description=description, allow_abbrev=False)
    if add_arguments is not None:
        add_arguments(parser)
    group = parser.add_argument_group("measurement")
    group.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    group.add_argument("--seed", type=int, default=0, help="of the random data (0)")
    group.add_argument("--out", metavar="FILE", help="records go there, not to stdout")
    group.add_argument("--only", type=_regex, metavar="REGEX", help="cases whose id it is found in")
    group.add_argument("--list", action="store_true", help="print the ids of the cases and end")
    group.add_argument(
        "--count", action="store_true", help="run each case once for a profiler; no times"
    )
    group.add_argument("--launches", type=int, default=1, help="calls of a case in --count (1)")
    group.add_argument("--min-samples", type=int, default=10, help="least samples of a case (10)")
    group.add_argument(
        "--max-noise", type=float, default=0.005, help="relative std to stop at (0.005)"
    )
    group.add_argument("--case-time", type=float, default=1.0, help="seconds of sampling (1.0)")
    group.add_argument("--process", type=int, default=1, help="number of this process (1)")
    group.add_argument("--repeat", type=int, default=1, help="number of this repeat (1)")
    return parser


def _regex(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise ArgumentTypeError(f"{text!r} is not a regular expression: {error}") from error


def _no_device(args: Namespace) -> tuple[str, str] | None:
    try:
        import torch
    except ImportError:
        return "this interpreter has no module torch", "name one that has it, or pip install torch"
    if args.device == "cuda" and not torch.cuda.is_available():
        return "torch sees no CUDA device", "check nvidia-smi; --device cpu runs tiny sizes"
    return None


def _fail(message: str, hint: str) -> int:
    print(f"error: {message}\n\nhint: {hint}", file=sys.stderr)
    return 1


@contextlib.contextmanager
def _output(path: str | None) -> Iterator[TextIO]:
    if path is None or path == "-":
        yield sys.stdout
        return
    with open(path, "w", encoding="utf-8") as stream:
        yield stream


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
    started = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
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
        return _fail("no case was chosen", "see --list; --only is searched in the case ids")
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
