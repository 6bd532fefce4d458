"""The plan of a load, and what is read of the answers."""

import json
import math
from argparse import ArgumentParser
from collections.abc import Iterable
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsight_prof.targets.serving.answers import Answer, events, read, request_fields, spread
from nsight_prof.targets.serving.load import bodies
from nsight_prof.targets.serving.load_points import (
    STEPS,
    Point,
    add_load_arguments,
    arrivals,
    closed_points,
    open_points,
    shares_of,
)


def stream(tokens: Iterable[int], *, usage: bool = True, done: bool = True) -> bytes:
    """Return a stream whose events bring it to these numbers of tokens."""
    text = b""
    last = 0
    for last in tokens:
        event: dict[str, object] = {"choices": [{"text": " t1"}]}
        if usage:
            event["usage"] = {"prompt_tokens": 7, "completion_tokens": last}
        text += f"data: {json.dumps(event)}\n\n".encode()
    final = {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": last}}
    text += f"data: {json.dumps(final)}\n\n".encode()
    return text + (b"data: [DONE]\n\n" if done else b"")


def cut(data: bytes, places: Iterable[int]) -> list[tuple[float, bytes]]:
    """Return the data in pieces that arrive one second after another."""
    ends = [0, *sorted({place % (len(data) + 1) for place in places}), len(data)]
    return [(float(number), data[a:b]) for number, (a, b) in enumerate(pairwise(ends))]


def answer(pieces: list[tuple[float, bytes]], status: int | None = 200, error: str = "") -> Answer:
    return Answer(3, 0.0, 0.0, status, pieces, error)


@given(st.lists(st.integers(0, 2000), max_size=20), st.integers(1, 12))
def test_tokens_are_counted_however_the_stream_is_cut(places: list[int], tokens: int) -> None:
    reading = read(answer(cut(stream(range(1, tokens + 1)), places)))
    assert reading.reason == ""
    assert (reading.output_tokens, reading.prompt_tokens) == (tokens, 7)
    assert reading.times is not None
    assert len(reading.times) == tokens
    assert list(reading.times) == sorted(reading.times)
    assert (reading.first, reading.last) == (reading.times[0], reading.times[-1])


def test_an_event_counts_when_its_last_byte_arrives() -> None:
    first, second = stream([1, 2]).split(b"\n\n")[:2]
    pieces = [(1.0, first[:9]), (2.0, first[9:] + b"\n"), (3.0, b"\n" + second + b"\n\n")]
    reading = read(answer(pieces))
    assert reading.times == (3.0, 3.0)
    assert reading.reason == "the answer ended before its end"


def test_an_event_may_bring_several_tokens() -> None:
    data = stream([1, 4, 4])  # the third brings none
    parts = [part + b"\n\n" for part in data.split(b"\n\n")[:-1]]
    reading = read(answer([(float(i), part) for i, part in enumerate(parts)]))
    assert reading.times == (0.0, 1.0, 1.0, 1.0)
    assert reading.last == 1.0


def test_without_counts_the_times_of_tokens_are_unknown() -> None:
    reading = read(answer([(1.0, stream([1, 2, 6], usage=False))]))
    assert reading.times is None
    assert (reading.first, reading.last, reading.output_tokens) == (1.0, 1.0, 6)


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (answer([], None, "no connection: refused"), "no connection: refused"),
        (answer([(1.0, b'{"error": {"message": "too long"}}')], 400), "HTTP 400: too long"),
        (answer([(1.0, b"<html>bad gateway</html>")], 502), "HTTP 502: <html>bad"),
        (answer([(1.0, b'data: {"error": {"message": "engine died"}}\n\n')]), "engine died"),
        (answer([(1.0, stream([1], done=False))]), "ended before its end"),
        (answer([(1.0, b"data: [DONE]\n\n")]), "holds no token"),
        (answer([(1.0, stream([1], done=False))], 200, "not answered within 9 s"), "within 9 s"),
    ],
)
def test_an_answer_that_failed_says_why(found: Answer, reason: str) -> None:
    reading = read(found)
    assert reason in reading.reason
    fields = request_fields(found, reading, 0.0)
    assert (fields["status"], fields["finish_s"]) == ("failed", None)


@given(st.binary(max_size=200), st.integers(100, 599))
def test_no_answer_breaks_the_reader(data: bytes, status: int) -> None:
    read(answer([(1.0, data)], status))
    read(answer([(1.0, b"data: " + data + b"\n\n")]))


def test_comments_and_carriage_returns_are_no_data() -> None:
    data = b": ping\r\n\r\ndata: a\r\ndata: b\r\n\r\nevent: x\n\n"
    assert list(events([(1.0, data)])) == [(1.0, "a\nb")]


@given(st.lists(st.integers(1, 50), min_size=1, max_size=60), st.integers(0, 400))
def test_kept_token_times_are_bounded_and_spread(lengths: list[int], most: int) -> None:
    kept = spread(lengths, most)
    assert sum(lengths[place] for place in kept) <= most
    assert kept <= set(range(len(lengths)))
    if kept and len(kept) < len(lengths):
        gaps = np.diff([*sorted(kept), len(lengths)])
        assert max(gaps) <= math.ceil(len(lengths) / len(kept))


def test_arrivals_are_poisson() -> None:
    stats = pytest.importorskip("scipy.stats")
    # Exponential gaps and a uniform phase: the law of a Poisson process, against scipy's.
    times = arrivals(4000, 100.0, seed=1)
    assert times == sorted(times)
    assert 0 <= times[0] <= times[-1] <= 100
    assert stats.kstest(times, "uniform", args=(0, 100)).pvalue > 0.01
    assert stats.kstest(np.diff(times), "expon", args=(0, 100 / 4000)).pvalue > 0.01
    assert arrivals(5, 1.0, seed=2) != arrivals(5, 1.0, seed=3)
    with pytest.raises(ValueError, match="no arrivals"):
        arrivals(0, 1.0, seed=1)


@given(st.floats(1e-3, 1e5), st.floats(0.05, 2.0))
def test_shares_are_round_and_near(highest: float, share: float) -> None:
    (rate,) = shares_of(highest, [share])
    assert 0.89 < rate / (share * highest) < 1.13
    mantissa = rate / 10 ** math.floor(math.log10(rate) + 1e-9)
    assert min(abs(mantissa - step) for step in STEPS) < 1e-6


def test_points_have_names_and_enough_requests() -> None:
    parser = ArgumentParser()
    add_load_arguments(parser)
    words = "--concurrency 32 1 0 --rate 0.5 4 0 --open-time 10"
    args = parser.parse_args(words.split())
    closed, opened = list(closed_points(args)), list(open_points(args, 100.0))
    assert [point.name for point in closed] == ["closed/c1/p512/o128", "closed/c32/p512/o128"]
    assert [point.requests for point in closed] == [20, 96]
    assert [point.name for point in opened] == ["open/r0.5/p512/o128", "open/r4/p512/o128"]
    assert [point.requests for point in opened] == [5, 40]
    assert list(open_points(parser.parse_args([]), None)) == []
    assert len(list(open_points(parser.parse_args([]), 40.0))) == 4


def test_bodies_have_prompts_of_their_own() -> None:
    point = Point(2, None, 16, 8, requests=4)
    sent = [json.loads(body.data) for body in bodies(point, "m", 1000, seed=5)]
    assert [len(one["prompt"]) for one in sent] == [16] * 4
    assert len({tuple(one["prompt"]) for one in sent}) == 4
    assert all(0 <= token < 1000 for one in sent for token in one["prompt"])
    assert sent[0] | {"prompt": 0} == {
        "model": "m",
        "prompt": 0,
        "max_tokens": 8,
        "temperature": 0.0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
    }
