"""Finds the files to import on the nodes of a cluster, each of which may have a disk of its own."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from nsight_prof.orchestrator.imports.inputs import Given, Inputs, find_inputs
from nsight_prof.orchestrator.workers.on_ray import Node, RayExecutor
from nsight_prof.parsers.errors import ProfError, UsageError

File = tuple[Path, int, int]
"""Path, size and time of last change: alike on two nodes, it is one file that both see."""


def find_inputs_on(executor: RayExecutor, asked: Sequence[Path]) -> Inputs:
    """Return the traces that are meant by `asked` (`find_inputs`) on any node.

    A trace that not all nodes see has the node that does.

    Raises:
        ProfError: as `find_inputs`, where no node has a trace.
        UsageError: counters, which are not of one rank, were given.
    """
    paths = [Path(os.path.abspath(path)) for path in asked]
    futures = [executor.submit_to(node, _inputs, paths) for node in executor.nodes]
    holders_of: dict[File, list[tuple[Node, Given]]] = {}
    notes: dict[str, None] = {}
    refused: ProfError | None = None
    for node, future in zip(executor.nodes, futures, strict=True):
        found: list[tuple[File, Given]] | ProfError
        found, sentences = future.result()
        notes |= dict.fromkeys(sentences)
        if isinstance(found, ProfError):
            refused = found
            continue
        for file, given in found:
            holders_of.setdefault(file, []).append((node, given))
    if not holders_of:
        assert refused is not None  # a node finds something or says why not
        raise refused
    everywhere = len(executor.nodes)
    several = len({file[0] for file in holders_of}) < len(holders_of)
    traces = [
        holders[0][1]
        if len(holders) == everywhere
        else _on(holders[0][0], holders[0][1], with_host=several)
        for holders in holders_of.values()
    ]
    return Inputs(tuple(traces), (), tuple(notes))


def _on(node: Node, given: Given, *, with_host: bool) -> Given:
    """Return a file that one node has; `with_host` in its name where others have its name."""
    name = f"{node.host}/{given.name}" if with_host else given.name
    return replace(given, name=name, node=node)


def _inputs(asked: Sequence[Path]) -> tuple[list[tuple[File, Given]] | ProfError, tuple[str, ...]]:
    """Return what this node has of the files; runs on the node."""
    try:
        inputs = find_inputs(asked)
        if inputs.counters or inputs.operators:
            raise UsageError(
                "counters or operators were given beside traces of many ranks",
                "import them with the trace of their rank, into a run of its own",
            )
    except ProfError as error:
        return error, ()
    found = []
    for given in inputs.traces:
        status = given.path.stat()
        found.append(((given.path, status.st_size, status.st_mtime_ns), given))
    return found, inputs.notes
