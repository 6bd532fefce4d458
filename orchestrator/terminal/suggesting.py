"""Says what a misspelt command or option was meant to be."""

from __future__ import annotations

from collections.abc import Sequence

import click


class NoSuchCommand(click.UsageError):
    """A group has no such command; `near` is the command or option that is spelt most alike."""

    def __init__(self, name: str, near: str, ctx: click.Context) -> None:
        super().__init__(f"No such command {name!r}", ctx)
        self.near = near


class SuggestingGroup(click.Group):
    """A group that names the nearest command or option where it does not know one."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command of the first word.

        Raises:
            NoSuchCommand: there is none of this name.
        """
        name = args[0]
        known = name in self.list_commands(ctx) or name.startswith("-")
        if not known and not ctx.resilient_parsing:
            import difflib  # not for those who spell well: every command starts here

            options = [option for parameter in self.get_params(ctx) for option in parameter.opts]
            words = {word.lstrip("-"): word for word in (*options, *self.list_commands(ctx))}
            near = difflib.get_close_matches(name, words, n=1)
            raise NoSuchCommand(name, words[near[0]] if near else "", ctx)
        return super().resolve_command(ctx, args)


def hint_of(error: click.ClickException) -> str:
    """Return what to do about a command line that click refuses."""
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "prof"
    near = getattr(error, "near", "")
    guess = f"did you mean {path} {near}? " if near else ""
    if isinstance(error, click.NoSuchOption) and context is not None:
        guess = _of_option(error.option_name, error.possibilities or (), context)
    return f"{guess}{path} --help shows how it is called"


def _of_option(option: str, alike: Sequence[str], context: click.Context) -> str:
    """Return the commands beside this one that have an option, else the one spelt most alike."""
    import difflib

    if (above := context.parent) is not None and isinstance(above.command, click.Group):
        commands = above.command.list_commands(above)
        found = {name: above.command.get_command(above, name) for name in commands}
        names = [
            f"{above.command_path} {name}"
            for name, command in found.items()
            if command is not None and any(option in known.opts for known in command.params)
        ]
        if names:
            return f"it is an option of {', '.join(names)}; "
    near = difflib.get_close_matches(option, alike, n=1)
    return f"did you mean {context.command_path} {near[0]}? " if near else ""


def message_of(error: click.ClickException) -> str:
    """Return what click refuses, without its own guesses at what was meant."""
    known = isinstance(error, click.NoSuchOption)
    return (error.message if known else error.format_message()).rstrip(".")
