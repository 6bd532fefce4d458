"""What the names of NVTX ranges mean: stages of a program, modules of a model, steps of vLLM."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from nsight_prof.parsers.names.matching import matching

Stages = Sequence[str] | Mapping[str, str]  # patterns of range names, or stage -> pattern
LONGEST_LABEL = 100
"""Characters of a label; DLProf names a range by a record of 600 and more."""
OF_LIBRARIES = ("CCCL",)
"""NVTX domains of libraries that mark each call: CUB 2.7 and Thrust, which PyTorch's sort uses."""
_RECORD = re.compile(r"""['"](Module|mod|op)['"]:\s*['"]([^'"]+)['"]""")
_CALL = re.compile(r", (?:seq|op_id) = \d+")
"""The number of the call in a name of torch.autograd.profiler.emit_nvtx: each call has its own."""
_NUMBER = re.compile(r"(\d+)")
_REPEATS = 5  # values of a number from which on it counts repeats: a GEMM has fp8, 16, 32 and 64
ENGINE_STEP = re.compile(r"execute_context_(\d+)\((\d+)\)_generation_(\d+)\((\d+)\)")
"""vLLM's range of a step: requests and tokens of prefill, then of decode."""
_MODULE = re.compile(r"\{'Module': '([^']*)'")
_LAYER = re.compile(r"\.\d+(?=\.|$)")


def name_stages(names: Sequence[tuple[str, str]], stages: Stages) -> list[str | None]:
    """Return the stage that a range of each name is, None for no stage.

    A pattern must fit the bare name or `domain:name` as a whole. A stage has the name that the
    mapping gives its pattern, of the first that fits; else the label of the range, shortened.
    Without patterns, each range is a stage, but for those that a library makes of its own accord.
    """
    labels = [label(name) for name in names]
    if not stages:
        return [
            None if domain in OF_LIBRARIES else shorten(text)
            for (domain, _), text in zip(names, labels, strict=True)
        ]
    patterns = [(stage, re.compile(pattern)) for stage, pattern in named_patterns(stages)]
    with matching(f"stages: {', '.join(repr(p.pattern) for _, p in patterns)}"):
        return [
            next(
                (
                    stage or shorten(text)
                    for stage, pattern in patterns
                    if pattern.fullmatch(bare) or pattern.fullmatch(text)
                ),
                None,
            )
            for (_, bare), text in zip(names, labels, strict=True)
        ]


def named_patterns(stages: Stages) -> list[tuple[str | None, str]]:
    """Return each pattern with the name of its stage, None where ranges name it."""
    if isinstance(stages, Mapping):
        return list(stages.items())
    return [(None, pattern) for pattern in stages]


def label(name: tuple[str, str]) -> str:
    """`domain:name`, as nsys stats writes it; the bare name in the default domain."""
    domain, text = name
    return f"{domain}:{text}" if domain else text


def shorten(text: str) -> str:
    """A label that a person can read: of a record of DLProf or PyProf the operation, else cut."""
    text = _CALL.sub("", text) or text
    if len(text) <= LONGEST_LABEL:
        return text
    if "{" in text[:LONGEST_LABEL]:
        facts = dict(reversed(_RECORD.findall(text)))
        name = ".".join(facts[key] for key in ("Module", "mod", "op") if key in facts)
        text = name or text
    return text if len(text) <= LONGEST_LABEL else f"{text[: LONGEST_LABEL - 1]}…"


def fold_repeats(names: Sequence[str]) -> list[str]:
    """Names with * for each number by which repeats of one thing differ: `step *`, but `fp16`."""
    split_names = [_NUMBER.split(name) for name in names]  # a text, a number, …, a text
    values: dict[tuple[str, ...], list[set[str]]] = {}
    for pieces in split_names:
        known = values.setdefault(tuple(pieces[::2]), [set() for _ in pieces[1::2]])
        for numbers, number in zip(known, pieces[1::2], strict=True):
            numbers.add(number)
    for pieces in split_names:
        known = values[tuple(pieces[::2])]
        pieces[1::2] = [
            "*" if len(numbers) >= _REPEATS else number
            for numbers, number in zip(known, pieces[1::2], strict=True)
        ]
    return ["".join(pieces) for pieces in split_names]


def module_path(label: str) -> str | None:
    """Path of the module that an NVTX range is for, layer indices as *; None for other ranges."""
    match = _MODULE.search(label)
    return None if match is None else _LAYER.sub(".*", match[1])
