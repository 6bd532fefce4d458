"""Prints text for people; light, because every command needs it."""

from __future__ import annotations

import os

import click

from nsight_prof.parsers.errors import ProfError
from nsight_prof.parsers.printable import printable


def say(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Print text that may hold names of others: control characters are shown, not sent."""
    click.echo(printable(text), err=err, nl=nl)


def say_error(error: ProfError) -> None:
    """Print `error: …`, a blank line and `hint: …` to stderr, with secrets masked."""
    from nsight_prof.orchestrator.system.secrets import choose_environment

    text = f"error: {error.message}\n\nhint: {error.hint}"
    say(choose_environment(os.environ, {}).redact(text), err=True)
