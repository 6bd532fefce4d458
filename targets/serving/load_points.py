"""The points of a load test: how many requests, and when each of them is sent."""

from __future__ import annotations

import math
import random
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from nsight_prof.targets.harness.options import not_negative, positive, seconds, whole
from nsight_prof.targets.serving.request_list import RequestList

CONCURRENCIES = (1, 4, 8, 16, 32, 64, 128)
SHARES = (0.3, 0.6, 0.9, 1.5)
"""Of the highest rate that a closed loop reached: two that the server should keep up with, one
near its limit, one beyond."""
STEPS = (1.0, 1.2, 1.5, 1.8, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0)


@dataclass(frozen=True)
class Point:
    """One load on the server.

    Attributes:
        concurrency: clients of a closed loop, each of which sends its next request when the one
            before has been answered; None for an open loop.
        request_rate: requests in a second of an open loop, sent whether or not others have been
            answered; None for a closed loop.
        prompt_tokens: of each request.
        output_tokens: of each request; generation goes on after an end-of-sequence token.
        requests: in all.
        listed: name of the file that the requests are from; "": their prompts are made up.
        due: when each request arrives, in seconds from the first, of a trace; () otherwise.
    """

    concurrency: int | None
    request_rate: float | None
    prompt_tokens: int
    output_tokens: int
    requests: int
    listed: str = ""
    due: tuple[float, ...] = ()

    @property
    def experiment(self) -> str:
        """Which loop: "closed" or "open"."""
        return "open" if self.concurrency is None else "closed"

    @property
    def name(self) -> str:
        """The case's name."""
        load = f"r{self.request_rate:g}" if self.concurrency is None else f"c{self.concurrency}"
        if self.due:
            return f"{self.experiment}/trace/{self.listed}"
        size = self.listed or f"p{self.prompt_tokens}/o{self.output_tokens}"
        return f"{self.experiment}/{load}/{size}"

    def params(self, **shared: Any) -> dict[str, Any]:
        """Return the `params` of the case's record; what the other loop has is None."""
        return {
            "experiment": self.experiment,
            "concurrency": self.concurrency,
            "request_rate": self.request_rate,
            "prompt_tokens": self.prompt_tokens,
            "output_tokens": self.output_tokens,
            "requests": self.requests,
            "requests_of": self.listed or None,
            "arrivals": "trace" if self.due else None,
            **shared,
        }


def add_load_arguments(parser: ArgumentParser) -> None:
    """Add the options of the load."""
    group = parser.add_argument_group("load")
    add = group.add_argument
    add("--prompt-tokens", type=positive, default=512, metavar="N", help="of a request (512)")
    add("--output-tokens", type=positive, default=128, metavar="N", help="of a request (128)")
    levels = " ".join(map(str, CONCURRENCIES))
    add(
        "--concurrency",
        type=whole,
        nargs="*",
        default=list(CONCURRENCIES),
        metavar="N",
        help=f"clients of the closed loops; 0 leaves them out ({levels})",
    )
    add("--rounds", type=positive, default=3, metavar="N", help="requests of each client (3)")
    add(
        "--min-requests",
        type=positive,
        default=20,
        metavar="N",
        help="least requests of a closed loop (20)",
    )
    add(
        "--rate",
        type=not_negative,
        nargs="*",
        metavar="R",
        help="requests per second of the open loops; 0 leaves them out (shares of the highest rate "
        "that a closed loop reached)",
    )
    add(
        "--rate-share",
        type=not_negative,
        nargs="+",
        default=list(SHARES),
        metavar="X",
        help=f"those shares ({' '.join(map(str, SHARES))})",
    )
    add("--open-time", type=seconds, default=10.0, help="s of arrivals of an open loop (10)")
    add("--point-time", type=seconds, default=20.0, help="no request starts after these (20)")
    add("--request-timeout", type=seconds, default=60.0, help="seconds of one request (60)")
    add("--slo-ttft", type=seconds, default=0.5, help="target of the time to first token (0.5)")
    add("--slo-tpot", type=seconds, default=0.03, help="of the time per output token (0.03)")


def closed_points(args: Namespace, listed: RequestList | None = None) -> Iterator[Point]:
    """Give the closed loops in the order of their load; none beside a trace."""
    for clients in sorted(set(args.concurrency)):
        if clients and not (listed and listed.is_trace):
            requests = max(args.min_requests, args.rounds * clients)
            yield Point(clients, None, *_shape(args, listed), requests, _name(listed))


def open_points(
    args: Namespace, highest: float | None, listed: RequestList | None = None
) -> Iterator[Point]:
    """Give the open loops in the order of their load; of a trace it alone.

    Args:
        args: of `add_load_arguments`.
        highest: requests per second that the best closed loop reached; None: unknown, then only
            rates that are given make points.
        listed: the requests of a file.
    """
    if listed and listed.is_trace:
        due = tuple(listed.due())
        rate = float(f"{len(due) / due[-1]:.4g}") if due[-1] > 0 else float(len(due))
        yield Point(None, rate, *_shape(args, listed), len(due), listed.name, due)
        return
    rates = set(args.rate) if args.rate is not None else shares_of(highest, args.rate_share)
    for rate in sorted(rates):
        if rate:
            requests = max(1, round(rate * args.open_time))
            yield Point(None, rate, *_shape(args, listed), requests, _name(listed))


def _shape(args: Namespace, listed: RequestList | None) -> tuple[int, int]:
    """Return the tokens of prompt and output, of the requests of a file their means."""
    if listed is None:
        return args.prompt_tokens, args.output_tokens
    return (
        listed.mean("prompt_tokens", args.prompt_tokens),
        listed.mean("output_tokens", args.output_tokens),
    )


def _name(listed: RequestList | None) -> str:
    return "" if listed is None else listed.name


def shares_of(highest: float | None, shares: list[float]) -> set[float]:
    """Return shares of a rate as round numbers (`STEPS` times a power of ten).

    Runs of one server differ by some per cent; round numbers give their points the same names.
    """
    if highest is None or not highest > 0:
        return set()
    return {_round(share * highest) for share in shares if share}


def _round(value: float) -> float:
    """Return the step that is the nearest by ratio."""
    unit = 10.0 ** math.floor(math.log10(value))
    nearest = min(STEPS, key=lambda step: abs(math.log(value / unit / step)))
    return float(f"{nearest * unit:g}")


def arrivals(count: int, seconds: float, seed: int) -> list[float]:
    """Return when `count` requests arrive in a time, in seconds from its begin, sorted.

    A Poisson process of which the number of arrivals is known has them at independent uniform
    times (Ross, Stochastic Processes, 2nd ed., theorem 2.3.1): the gaps are exponential, and the
    rate is exactly the one asked for, which gaps drawn one after another give only on average.

    Raises:
        ValueError: a size below 1, or no time.
    """
    if count < 1 or not seconds > 0:
        raise ValueError(f"no arrivals: {count} in {seconds} s")
    source = random.Random(seed)
    return sorted(source.uniform(0.0, seconds) for _ in range(count))
