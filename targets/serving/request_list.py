"""Requests of a file: prompts, lengths and arrivals, as load generators and traces have them.

Read are, by what the rows hold:
    GuideLLM: text (a prompt a line), CSV, JSON and JSON lines with `prompt` (or `instruction`,
        `question`, `input`, `text`, …), `prompt_tokens_count`, `output_tokens_count`; traces
        with `timestamp` in seconds, `input_length`, `output_length`;
    AIPerf: JSON lines with `text`, `text_input` or `messages` and `output_length`, of `turns` the
        first; traces of Mooncake with `timestamp` in ms, `input_length`, `output_length`,
        `hash_ids`;
    Azure's traces (CSV: TIMESTAMP, ContextTokens, GeneratedTokens) and BurstGPT's (CSV: Timestamp
        in seconds, Request tokens, Response tokens); ShareGPT's conversations, the first turn.
A file may be packed (.gz). Where a row has no text, its prompt is made up, of its length; equal
`hash_ids` give equal blocks of tokens, so that a server's prefix cache finds what the trace shared.
"""

from __future__ import annotations

import csv
import gzip
import json
import random
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from nsight_prof.targets.harness.options import not_negative
from nsight_prof.targets.inference.dataset import add_dataset_arguments
from nsight_prof.targets.serving.failures import EngineFailure
from nsight_prof.targets.serving.inputs import random_prompts

TEXTS = (
    *("prompt", "text", "text_input", "instruction", "question", "input", "context", "content"),
)
PROMPT_TOKENS = (
    *("input_length", "prompt_tokens_count", "input_tokens_count", "ContextTokens"),
    *("Request tokens", "prompt_tokens"),
)
OUTPUT_TOKENS = (
    *("output_length", "output_tokens_count", "completion_tokens_count", "GeneratedTokens"),
    *("Response tokens", "output_tokens"),
)
TIMES = {"timestamp": 1e-3, "Timestamp": 1.0, "TIMESTAMP": 1.0}
"""Names of the time of arrival, and the seconds of its unit: Mooncake's ms, BurstGPT's s."""
UNITS = {"auto": None, "ms": 1e-3, "s": 1.0}
BLOCK = 512
"""Tokens of a block that `hash_ids` names (Mooncake, FAST '25)."""
MESSAGES, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
KNOWN = (
    "a line needs a prompt (prompt, text, messages) or lengths (input_length, output_length); "
    "formats: docs/vllm.md of prof, Data sets and arrival traces"
)


@dataclass(frozen=True)
class Listed:
    """A request of a file; what the file does not say is None.

    `at_s` is when it arrives, in seconds from the first of the file. `content` is the text of a
    prompt, or messages of a chat; `blocks` are the ids of the blocks that its prompt begins with.
    """

    content: str | Sequence[Mapping[str, Any]] | None = None
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    at_s: float | None = None
    blocks: tuple[int, ...] = ()


@dataclass(frozen=True)
class RequestList:
    """The requests of a file in their order; a trace has times for all.

    Attributes:
        name: of the file.
        requests: those that are sent.
        too_long: how many are not, since they are longer than the server takes.
    """

    name: str
    requests: tuple[Listed, ...]
    too_long: int = 0

    @property
    def is_trace(self) -> bool:
        """Whether each request says when it arrives."""
        return all(request.at_s is not None for request in self.requests)

    def due(self) -> list[float]:
        """Return when the requests of a trace arrive, in seconds from the first."""
        return [request.at_s or 0.0 for request in self.requests]

    def mean(self, name: str, otherwise: int) -> int:
        """Return the mean of a length over the requests; `otherwise` for those without."""
        known = [getattr(request, name) for request in self.requests]
        return round(sum(otherwise if n is None else n for n in known) / len(known))

    def within(self, longest: int, prompt: int, output: int) -> RequestList:
        """Return those that fit a sequence of `longest` tokens; a text of unknown length stays.

        Args:
            longest: most tokens of prompt and output together.
            prompt: tokens where a request has neither a text nor a length.
            output: tokens where it does not say how many it asks for.

        Raises:
            EngineFailure: none fits.
        """

        def fits(request: Listed) -> bool:
            known = request.prompt_tokens or (0 if request.content else prompt)
            return known + (request.output_tokens or output) <= longest

        kept = tuple(filter(fits, self.requests))
        if not kept:
            raise EngineFailure(
                f"each request of {self.name} is longer than the {longest} tokens that the "
                "server takes",
                "a server with a longer --max-model-len, or another file",
            )
        return replace(self, requests=kept, too_long=len(self.requests) - len(kept))

    def longest(self, prompt: int, output: int) -> int:
        """Return an upper bound of the tokens of a sequence, with these where a length is unknown.

        A text has at most as many tokens as bytes.
        """

        def tokens(request: Listed) -> int:
            of_text = len(json.dumps(request.content).encode()) if request.content else prompt
            return (request.prompt_tokens or of_text) + (request.output_tokens or output)

        return max(map(tokens, self.requests))


def add_request_list_arguments(parser: ArgumentParser) -> None:
    """Add the options that a recipe's `dataset` becomes, and those of a trace."""
    add_dataset_arguments(parser)
    add = parser.add_argument_group("requests of a file (--filelist)").add_argument
    add(
        "--arrivals",
        choices=("trace", "random"),
        default="trace",
        help="of requests with times: as the trace has them, or by the loops above (trace)",
    )
    add("--timestamp-unit", choices=tuple(UNITS), default="auto",
        help="of numbers named timestamp: ms as Mooncake and AIPerf have them, s as GuideLLM "
        "has them (auto: ms; of CSV headed Timestamp: s)")  # fmt: skip
    add("--time-scale", type=not_negative, default=1.0, metavar="X",
        help="factor of the times between arrivals: 0.5 is twice as fast (1)")  # fmt: skip


def read_request_list(args: Namespace) -> RequestList | None:
    """Return the requests that the command line asks for; None without a file.

    Raises:
        EngineFailure: it cannot be read, holds no request, or is a folder of images.
    """
    path: Path | None = args.filelist
    if path is None:
        if args.dataset_root is None:
            return None
        raise EngineFailure(
            f"the load is sent as text, and {args.dataset_root} is a folder of images",
            "dataset.filelist: a file of prompts or a trace; images: recipes/vllm-pages.yaml",
        )
    try:
        rows = list(_rows(path))
    except (OSError, ValueError, EOFError, csv.Error) as error:
        raise EngineFailure(f"the requests cannot be read: {path}: {error}", KNOWN) from error
    unit = UNITS[args.timestamp_unit]
    found = [_listed(row, f"{path.name}, request {n}", unit) for n, row in enumerate(rows, 1)]
    # BurstGPT lists requests that failed with no tokens.
    found = [one for one in found if 0 not in (one.prompt_tokens, one.output_tokens)]
    if not found:
        raise EngineFailure(f"{path} holds no request", KNOWN)
    if args.shuffle:
        random.Random(args.dataset_seed).shuffle(found)
    found = found[: args.samples]
    times = [one.at_s for one in found if one.at_s is not None]
    if args.arrivals == "random" or len(times) < len(found):
        found = [replace(one, at_s=None) for one in found] * args.epochs
    else:
        found = list(_replayed(found, args.epochs, args.time_scale))
    return RequestList(path.name, tuple(found))


def request_body(listed: Listed, tokens: Sequence[int]) -> tuple[str, dict[str, Any]]:
    """Return path and own fields of a request; `tokens` is the prompt where it has no text."""
    if listed.content is None:
        return COMPLETIONS, {"prompt": list(tokens)}
    if isinstance(listed.content, str):
        return COMPLETIONS, {"prompt": listed.content}
    return MESSAGES, {"messages": listed.content}


def made_up(listed: Listed, length: int, vocabulary: int, seed: int) -> list[int]:
    """Return a prompt of `length` random tokens, which begins with the blocks that it shares."""
    shared = [t for block in listed.blocks for t in random_prompts(1, BLOCK, vocabulary, block)[0]]
    rest = length - len(shared)
    return (shared + (random_prompts(1, rest, vocabulary, seed)[0] if rest > 0 else []))[:length]


def _replayed(found: Sequence[Listed], epochs: int, scale: float) -> Iterator[Listed]:
    """Give the requests of a trace by their time from its first; epochs follow one another."""
    timed = sorted(((one.at_s or 0.0, n, one) for n, one in enumerate(found)), key=lambda x: x[:2])
    first, last = timed[0][0], timed[-1][0]
    length = (last - first) * len(timed) / max(len(timed) - 1, 1)
    for epoch in range(epochs):
        for at, _, one in timed:
            yield replace(one, at_s=(at - first + epoch * length) * scale)


def _rows(path: Path) -> Iterator[Any]:
    """Give the rows of a file: mappings, and texts of a file of lines."""
    opener = gzip.open if path.suffix == ".gz" else open
    kind = Path(path.stem).suffix if path.suffix == ".gz" else path.suffix
    with opener(path, "rt", encoding="utf-8", newline="") as stream:
        if kind == ".csv":
            yield from csv.DictReader(stream)
        elif kind == ".json":
            found = json.load(stream)
            lists = found.values() if isinstance(found, dict) else (found,)
            yield from next((one for one in lists if isinstance(one, list)), [found])
        else:
            lines = (line.strip() for line in stream)
            yield from (json.loads(line) if kind == ".jsonl" else line for line in lines if line)


def _listed(row: Any, where: str, unit: float | None) -> Listed:
    if isinstance(row, str):
        return Listed(row)
    if not isinstance(row, dict):
        raise EngineFailure(f"{where} is no JSON object", KNOWN)
    content = _content(row)
    try:
        prompt, output = (_length(row, names) for names in (PROMPT_TOKENS, OUTPUT_TOKENS))
        at = _time(row, unit)
        blocks = tuple(int(block) for block in row.get("hash_ids") or ())
    except (ValueError, TypeError) as error:
        raise EngineFailure(f"{where} cannot be read: {error}", KNOWN) from error
    if content is None and prompt is None:
        raise EngineFailure(f"{where} has no prompt and no length", KNOWN)
    return Listed(content, prompt, output, at, blocks)


def _content(row: Mapping[str, Any]) -> str | Sequence[Mapping[str, Any]] | None:
    """Return the text of a row, or its messages; of several turns the first."""
    turns = row.get("turns")
    if isinstance(turns, list) and turns:
        first = turns[0]
        return first if isinstance(first, str) else _content(first)
    if isinstance(row.get("messages"), list) and row["messages"]:
        return list(row["messages"])
    asked = row.get("conversations")
    if isinstance(asked, list):
        people = [one for one in asked if isinstance(one, dict) and one.get("from") in PEOPLE]
        return str(people[0].get("value", "")) if people else None
    return next((row[name] for name in TEXTS if isinstance(row.get(name), str)), None)


PEOPLE = ("human", "user")


def _length(row: Mapping[str, Any], names: Iterable[str]) -> int | None:
    given = next((row[name] for name in names if row.get(name) not in (None, "")), None)
    if given is None:
        return None
    length = int(float(given))
    if length < 0:
        raise ValueError(f"{given} is no length")
    return length


def _time(row: Mapping[str, Any], unit: float | None) -> float | None:
    """Return the time of arrival in seconds, from any zero; None for a row without."""
    name = next((name for name in TIMES if row.get(name) not in (None, "")), None)
    if name is None:
        return None
    given = row[name]
    try:
        return float(given) * (TIMES[name] if unit is None else unit)
    except ValueError:
        return datetime.fromisoformat(str(given)).timestamp()  # Azure's
