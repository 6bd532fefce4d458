"""The options of commands that scripts call: --json and --quiet."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import click

from nsight_prof.orchestrator.terminal.say import say

as_json = click.option(
    "--json", "as_json", is_flag=True, help="Print the result as JSON, and nothing else on stdout."
)


def quiet(remaining: str) -> Callable[..., Any]:
    """Give a command the option --quiet; `remaining` says what is printed all the same."""
    return click.option("-q", "--quiet", is_flag=True, help=f"For scripts: print {remaining}.")


def say_json(data: Any, *, err: bool = False) -> None:
    """Print data as JSON; to stderr where stdout is taken by what the command writes."""
    say(json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False), err=err)
