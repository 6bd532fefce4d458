"""The options that all benchmark targets have, and how their values are read."""

from __future__ import annotations

import re
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Iterable, Sequence
from typing import NoReturn

from nsight_prof.targets.standalone import complain

AddArguments = Callable[[ArgumentParser], None]


class Parser(ArgumentParser):
    """Tells what is wrong with a command line as all other errors are told."""

    def error(self, message: str) -> NoReturn:
        """Print the message and end the program with code 2."""
        complain(message, f"{self.prog} --help lists the options and their values")
        raise SystemExit(2)


def make_parser(description: str, add_arguments: AddArguments | None) -> ArgumentParser:
    """Return the parser of a target: its own options, then those of the measurement."""
    parser = Parser(description=description, allow_abbrev=False)
    if add_arguments is not None:
        add_arguments(parser)
    group = parser.add_argument_group("measurement")
    add = group.add_argument
    add("--device", choices=("cuda", "cpu"), default="cuda", help="cpu runs tiny sizes (cuda)")
    add("--seed", type=int, default=0, help="of the random data (0)")
    add("--out", metavar="FILE", help="records go there, not to stdout")
    add("--only", type=regex, metavar="REGEX", help="cases whose id it is found in")
    add("--list", action="store_true", help="print the ids of the cases and end")
    add("--count", action="store_true", help="run each case once for a profiler; no times")
    add("--launches", type=positive, default=1, help="calls of a case in --count (1)")
    add("--min-samples", type=positive, default=10, help="least samples of a case (10)")
    add("--max-noise", type=not_negative, default=0.005, help="relative std to stop at (0.005)")
    add("--case-time", type=seconds, default=1.0, help="seconds of sampling (1.0)")
    add("--process", type=positive, default=1, help="number of this process (1)")
    add("--repeat", type=positive, default=1, help="number of this repeat (1)")
    return parser


def add_words(
    parser: ArgumentParser, option: str, known: Iterable[str], usual: str = "all"
) -> None:
    """Add an option of one or more known words; `usual` says which are taken without it."""
    parser.add_argument(f"--{option}", nargs="+", choices=tuple(known), help=f"({usual})")


def parse(parser: ArgumentParser, argv: Sequence[str]) -> Namespace:
    """Return the parsed options and, as `argv`, their words.

    What a list names twice counts once, or two cases would have one name.
    """
    args = parser.parse_args(argv)
    for name, value in vars(args).items():
        if isinstance(value, list):
            setattr(args, name, list(dict.fromkeys(value)))
    args.argv = list(argv)
    return args


def positive(text: str) -> int:
    """Read a whole number from 1 on, as the type of an option.

    Raises:
        ArgumentTypeError: it is none.
    """
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError(f"{text!r} is not a whole number from 1 on")
    return int(text)


def whole(text: str) -> int:
    """Read a whole number from 0 on, as the type of an option.

    Raises:
        ArgumentTypeError: it is none.
    """
    if not text.isdecimal():
        raise ArgumentTypeError(f"{text!r} is not a whole number from 0 on")
    return int(text)


def seconds(text: str) -> float:
    """Read a number of seconds above 0, as the type of an option.

    Raises:
        ArgumentTypeError: it is none.
    """
    value = _number(text)
    if not 0 < value < float("inf"):
        raise ArgumentTypeError(f"{text!r} is not a number of seconds above 0")
    return value


def not_negative(text: str) -> float:
    """Read a number from 0 on, as the type of an option.

    Raises:
        ArgumentTypeError: it is none.
    """
    value = _number(text)
    if not 0 <= value < float("inf"):
        raise ArgumentTypeError(f"{text!r} is not a number from 0 on")
    return value


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return float("nan")  # which is in no range


def regex(text: str) -> re.Pattern[str]:
    """Read a regular expression, as the type of an option.

    Raises:
        ArgumentTypeError: it is none.
    """
    try:
        return re.compile(text)
    except re.error as error:
        raise ArgumentTypeError(f"{text!r} is not a regular expression: {error}") from error


def image_size(text: str) -> tuple[int, int]:
    """Read a height and a width in pixels: 1024x768."""
    sides = re.fullmatch(r"([1-9]\d*)x([1-9]\d*)", text)
    if sides is None:
        raise ArgumentTypeError(f"{text!r} is not a height and a width: 1024x768")
    return int(sides[1]), int(sides[2])
