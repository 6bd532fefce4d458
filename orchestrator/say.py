"""Prints text for people; light, because every command needs it."""

from __future__ import annotations

import click

from nsight_prof.parsers.printable import printable


def say(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Print text that may hold names of others: control characters are shown, not sent."""
    click.echo(printable(text), err=err, nl=nl)
