"""The command `prof`: finds the subcommand, and turns errors into messages and exit codes."""

from __future__ import annotations

import errno
import importlib
import os
import sys
import traceback
from collections.abc import Sequence

import click

from nsight_prof.parsers.errors import ProfError
from nsight_prof.parsers.printable import printable

# Command -> its one-line help, here so that `prof --help` imports none of them.
COMMANDS = {
    "compare": "Compare two runs: faster, slower, new, gone, or noise; fails CI on a rule.",
    "doctor": "Say whether this machine can profile, what is missing, and the remedy.",
    "export": "Write the timeline of a run for Perfetto, or its tables as Parquet or CSV.",
    "import": "Make a run directory from existing Nsight files of any version.",
    "metrics": "Show the metric catalogue: what each column means and what it costs.",
    "recipe": "List, show and check recipes.",
    "report": "Render the report of a run again; needs no GPU.",
    "roofs": "Show the measured roofs: what a GPU can really do.",
    "run": "Profile a program: nsys, top kernels, ncu, tables, report.",
    "top-kernels": "Rank the kernels of a trace and write a selection file.",
}
MODULES = {"import": "import_", "top-kernels": "top_kernels"}
INTERRUPTED = 130
BROKEN_PIPE = 141


class LazyGroup(click.Group):
    """A group that imports a subcommand only when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all subcommands."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the module of a subcommand and return its `command`."""
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(
            f".commands.{MODULES.get(cmd_name, cmd_name)}", __package__
        )
        command = module.command
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the subcommands from COMMANDS."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


def _print_version(ctx: click.Context, _option: click.Parameter, value: bool) -> None:
    if value:
        from nsight_prof.orchestrator.version import prof_version

        click.echo(f"prof {prof_version()}")
        ctx.exit()


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_print_version,
    help="Print the version.",
)
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
def group(debug: bool) -> None:
    """Which kernels take the time, what limits each, and what would it gain to fix it?

    prof wraps Nsight Systems (nsys) and Nsight Compute (ncu): it traces a program, picks the
    kernels that matter, measures them, and writes a report.

    \b
    Examples:
      prof doctor                              can this machine profile?
      prof run recipes/top-kernels.yaml        the whole pipeline
      prof run top-kernels --dry-run           the exact commands, nothing started
      prof report runs/<run>                   render again, no GPU needed

    Exit codes: 0 ok, 1 a step failed, 2 asked wrongly, 3 a tool, GPU or permission is missing,
    4 a file cannot be read, 130 interrupted.
    """


def main(argv: Sequence[str] | None = None) -> int:
    """Run `prof` and return its exit code; the one place where errors are caught."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        code = group.main(args=words, prog_name="prof", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return report_error("interrupted", "what was finished is kept", INTERRUPTED)
    except BrokenPipeError:
        # The reader (`| head`) is gone; the interpreter would complain when it flushes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except Exception as error:
        if _debug(words):
            traceback.print_exc()
        return report_error(*_explain(error))


def report_error(message: str, hint: str, exit_code: int) -> int:
    """Print `error: …`, a blank line and `hint: …` to stderr, and return the exit code."""
    from nsight_prof.orchestrator.secrets import choose_environment

    text = choose_environment(os.environ, {}).redact(f"error: {message}\n\nhint: {hint}")
    click.echo(printable(text), err=True)
    return exit_code


def _explain(error: Exception) -> tuple[str, str, int]:
    if isinstance(error, ProfError):
        return error.message, error.hint, error.exit_code
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return (
            f"the disk is full{f': {error.filename}' if error.filename else ''}",
            "free some space, or choose another folder with --out; a run is continued with "
            "`prof run RECIPE --resume RUN`",
            1,
        )
    if isinstance(error, MemoryError):
        return (
            "there is not enough memory",
            "end other programs, raise the limit (ulimit -v), or trace less: nsys profile "
            "--duration …, a capture range",
            1,
        )
    if isinstance(error, OSError) and error.filename:
        return (
            f"{error.filename}: {error.strerror}",
            "check that the path exists and that you may read and write there",
            1,
        )
    return (
        f"{type(error).__name__}: {error}",
        "this is a defect of prof: run it again as `prof --debug …` and report what it prints",
        1,
    )


def _debug(words: list[str]) -> bool:
    """Say whether --debug stands before the subcommand."""
    before = words[: next((i for i, w in enumerate(words) if w in COMMANDS), len(words))]
    return "--debug" in before
