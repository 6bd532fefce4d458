"""What a server answered to one request, read from the pieces of its stream (server-sent events).

Pieces are kept with the moment of their arrival and read only after the load has ended, so that
reading JSON does not delay what arrives meanwhile.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Answer:
    """One request as it was sent, and the pieces that came back.

    Attributes:
        request: number of the request in its point, from 0.
        arrival: time.monotonic() at which it was due: in an open loop that is the schedule's, so
            that a client that is late makes requests late, not their latency short.
        sent: time.monotonic() at which it was sent.
        status: of HTTP; None where there was no answer.
        pieces: of the body, each with its time.monotonic().
        error: what went wrong on the way, "" for nothing.
    """

    request: int
    arrival: float
    sent: float
    status: int | None = None
    pieces: list[tuple[float, bytes]] = field(default_factory=list)
    error: str = ""


@dataclass(frozen=True)
class Reading:
    """What an answer says.

    Attributes:
        times: time.monotonic() of each token, None where the server does not tell how many
            tokens a piece of its answer has.
        first: of the first token; None where none came.
        last: of the last token.
        prompt_tokens: as the server counts them; None where it does not tell.
        output_tokens: likewise; the number of events with text where it does not tell.
        reason: why it is no complete answer; "" where it is.
    """

    times: tuple[float, ...] | None
    first: float | None
    last: float | None
    prompt_tokens: int | None
    output_tokens: int
    reason: str


def read(answer: Answer) -> Reading:
    """Return what an answer says; it never raises: what cannot be read is the reason."""
    if answer.error and not answer.pieces:
        return _failed(answer.error)
    body = b"".join(piece for _, piece in answer.pieces)
    if answer.status != 200:
        said = _message(body.decode("utf-8", errors="replace"))
        return _failed(f"HTTP {answer.status}: {said}")
    times: list[float] = []
    moments: list[float] = []
    exact, done, prompt, output = True, False, None, None
    reason = answer.error
    for when, data in events(answer.pieces):
        if data == "[DONE]":
            done = True
            continue
        try:
            event = json.loads(data)
        except ValueError:
            reason = reason or f"the answer holds no JSON: {data[:80]}"
            continue
        if not isinstance(event, dict) or "error" in event:
            reason = reason or f"the server says: {_message(data)}"
            continue
        usage = event.get("usage") or {}
        told = usage.get("completion_tokens")
        prompt = usage.get("prompt_tokens", prompt)
        # One event may bring several tokens, where the server was busy with others, or none.
        new = told - len(times) if isinstance(told, int) else 1
        if event.get("choices") and new > 0:
            moments.append(when)
            exact = exact and isinstance(told, int)
            times += [when] * new
        output = told if isinstance(told, int) else output
    if not reason and not done:
        reason = "the answer ended before its end"
    if not reason and not moments:
        reason = "the answer holds no token"
    return Reading(
        times=tuple(times) if exact and times else None,
        first=moments[0] if moments else None,
        last=moments[-1] if moments else None,
        prompt_tokens=prompt,
        output_tokens=output if output is not None else len(moments),
        reason=reason,
    )


def events(pieces: Iterable[tuple[float, bytes]]) -> Iterable[tuple[float, str]]:
    """Give the data of each event with the moment at which its last byte arrived.

    Events end with an empty line; a line ends with LF or CRLF; comments (":") have no data
    (WHATWG HTML, section Server-sent events). A last event without its empty line is no event.
    """
    rest = b""
    for when, piece in pieces:
        rest += piece.replace(b"\r", b"")
        *whole, rest = rest.split(b"\n\n")
        for block in whole:
            lines = [line[5:].strip() for line in block.split(b"\n") if line.startswith(b"data:")]
            if lines:
                yield when, b"\n".join(lines).decode("utf-8", errors="replace")


def request_fields(answer: Answer, reading: Reading, begin: float) -> dict[str, Any]:
    """Return the fields of a `request` record.

    Args:
        answer: of the request.
        reading: of the answer.
        begin: time.monotonic() that moments count from; token times count from the arrival.
    """
    ok = not reading.reason
    return {
        "request": answer.request,
        "prompt_tokens": reading.prompt_tokens,
        "output_tokens": reading.output_tokens,
        "arrival_s": answer.arrival - begin,
        "first_token_s": None if reading.first is None else reading.first - begin,
        "finish_s": reading.last - begin if ok and reading.last is not None else None,
        "token_times_s": [when - answer.arrival for when in reading.times or ()],
        "queue_s": None,
        "engine_ttft_s": None,
        "engine_tpot_s": None,
        "status": "ok" if ok else "failed",
        "reason": reading.reason,
    }


def spread(lengths: Sequence[int], most: int) -> set[int]:
    """Return which of several requests keep their token times, so that at most `most` are kept.

    They are spread evenly over the requests: the first ones alone would tell of the start only.
    """
    total = sum(lengths)
    if total <= most:
        return set(range(len(lengths)))
    longest = max(lengths)
    keep = most // longest if longest else 0
    return {number * len(lengths) // keep for number in range(keep)} if keep else set()


def _failed(reason: str) -> Reading:
    return Reading(None, None, None, None, 0, reason)


def _message(text: str) -> str:
    """Return what an error of the server says: the message of its JSON, else its text."""
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if isinstance(found, dict):
        inner = found.get("error", found)
        text = str(inner.get("message", text) if isinstance(inner, dict) else inner)
    return " ".join(text.split())[:200] or "nothing"
