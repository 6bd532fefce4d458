"""The command `prof`: finds the subcommand, and turns errors into messages and exit codes."""

from __future__ import annotations

import contextlib
import errno
import importlib
import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from typing import Any

import click

from nsight_prof.orchestrator.terminal.say import say_error
from nsight_prof.orchestrator.terminal.suggesting import SuggestingGroup, hint_of, message_of
from nsight_prof.parsers.errors import ProfError, UsageError

# Command -> its one-line help, here so that `prof --help` imports none of them.
COMMANDS = {
    "assets": "Say which model and data a recipe needs, and where they are.",
    "compare": "Compare two runs: faster, slower, new, gone, or noise; fails CI on a rule.",
    "doctor": "Say whether this machine can profile, what is missing, and the remedy.",
    "export": "Write the timeline of a run for Perfetto, or its tables as Parquet or CSV.",
    "fleet": "Compare the GPUs of one model by runs of one benchmark, a run for each GPU.",
    "history": "Keep results of runs over commits, and find where they changed.",
    "import": "Make a run directory from files of Nsight or the torch profiler, of any version.",
    "init": "Write a recipe for a program.",
    "metrics": "Show the metric catalogue: what each column means and what it costs.",
    "monitor": "Show power, clocks, temperature, memory, load and throttling of all GPUs.",
    "plan": "Say what to do, in which order, what each step saves and what it costs.",
    "predict": "Predict how fast a model serves, from recorded runs; needs no GPU.",
    "rank": "Trace ranks of a job inside of torchrun, srun, mpirun or any launcher.",
    "recipe": "List, show and check recipes.",
    "report": "Render the report of a run again; needs no GPU.",
    "roofs": "Show the measured roofs: what a GPU can really do.",
    "run": "Profile a program: nsys, top kernels, ncu, tables, report.",
    "top-kernels": "Rank the kernels of a trace and write a selection file.",
    "where": "Say which lines of the source the time belongs to.",
}
MODULES = {
    "import": "import_",
    "fleet": "results.fleet",
    "history": "results.history",
    "top-kernels": "top_kernels",
    **{name: f"recipes.{name}" for name in ("assets", "init", "recipe")},
}
LONGEST_NAME = 300
REMEDIES = {
    errno.ENOSPC: "free some space, or choose another folder with --out; a run is continued with "
    "`prof run RECIPE --resume RUN`",
    errno.EFBIG: "raise the limit of the size of files (ulimit -f), or choose another file system",
    errno.EIO: "the disk, or the network to it, does not work: see dmesg; choose another folder",
    errno.ENOLCK: "this file system gives no locks: choose a folder on another with --out",
    errno.EROFS: "this file system cannot be written: choose another folder",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
    errno.ENOMEM: "free some memory, or raise the limit of the container or of ulimit -v",
    errno.ENAMETOOLONG: "give a shorter name",
    errno.EEXIST: "it is a file, and a folder is needed there: choose another name",
    errno.ENOTDIR: "part of it is a file, and a folder is needed there: choose another name",
}
ASKED_WRONGLY = (errno.ENAMETOOLONG, errno.EEXIST, errno.ENOTDIR)
INTERRUPTED = 130
BROKEN_PIPE = 141


class ReaderGone(Exception):
    """Who read our output has gone; click would make exit code 1 of it."""


class LazyGroup(SuggestingGroup):
    """A group that imports a subcommand only when it is asked for."""

    def make_context(self, *args: Any, **options: Any) -> click.Context:
        """Read the options; --help and --version print here."""
        with _readers():
            return super().make_context(*args, **options)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the subcommand."""
        with _readers():
            return super().invoke(ctx)

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


@contextlib.contextmanager
def _readers() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError as error:
        raise ReaderGone from error


def _print_version(ctx: click.Context, _option: click.Parameter, value: bool) -> None:
    if value:
        from nsight_prof.orchestrator.system.version import prof_version

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
    """Which kernels take the time, what limits each, and how much faster could it get?

    prof wraps Nsight Systems (nsys) and Nsight Compute (ncu): it traces a program, picks the
    kernels that matter, measures them, and writes a report.

    \b
    Examples:
      prof doctor                              can this machine profile?
      prof run recipes/top-kernels.yaml        the whole pipeline
      prof run top-kernels --dry-run           the exact commands, nothing started
      prof report runs/<run>                   render again, no GPU needed

    Exit codes: 0 ok, 1 a step failed, 2 asked wrongly, 3 a tool, GPU or permission is missing,
    4 a file cannot be read, 130 interrupted, 141 the reader of the output is gone.
    """


def main(argv: Sequence[str] | None = None) -> int:
    """Run `prof` and return its exit code; the one place where errors are caught."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        with _readers():
            code = _answer(words)
            # What is still buffered would fail at the end of the interpreter: exit code 120.
            for stream in filter(None, (sys.stdout, sys.stderr)):
                stream.flush()
            return code
    except ReaderGone:
        return BROKEN_PIPE
    except OSError as error:
        message, hint, code = _explain(error)
        with contextlib.suppress(OSError):
            report_error(f"the output cannot be written: {message}", hint, code)
        return code
    finally:
        _let_go()


def _let_go() -> None:
    """Send what a stream cannot deliver to nowhere, or the interpreter complains at its end."""
    for stream in filter(None, (sys.stdout, sys.stderr)):
        try:
            stream.flush()
        except OSError:
            with contextlib.suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _answer(words: list[str]) -> int:
    """Run the command; errors become messages and exit codes."""
    try:
        code = group.main(args=words, prog_name="prof", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except ReaderGone:
        raise
    except click.ClickException as error:
        if isinstance(error, getattr(click.exceptions, "NoArgsIsHelpError", ())):
            error.show()
            return error.exit_code
        return report_error(message_of(error), hint_of(error), error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        return report_error("interrupted", "what was finished is kept", INTERRUPTED)
    except Exception as error:
        if _debug(words):
            traceback.print_exc()
        return report_error(*_explain(error))


def report_error(message: str, hint: str, exit_code: int) -> int:
    """Print `error: …`, a blank line and `hint: …` to stderr, and return the exit code."""
    say_error(ProfError(message, hint))
    return exit_code


def _explain(error: Exception) -> tuple[str, str, int]:
    if isinstance(error, ProfError):
        return error.message, error.hint, error.exit_code
    if isinstance(error, OSError):
        return _explain_system(error)
    if isinstance(error, MemoryError):
        return (
            f"there is not enough memory{f': {error}' if str(error) else ''}",
            "end other programs, raise the limit (ulimit -v, the container's, the batch job's), or "
            "trace less: nsys profile --duration …, a capture range",
            1,
        )
    return (
        f"{type(error).__name__}: {error}",
        "this is a defect of prof: run it again as `prof --debug …` and report what it prints",
        1,
    )


def _explain_system(error: OSError) -> tuple[str, str, int]:
    """Say what the system refused, on what where that is known, and what helps."""
    where = str(error.filename or "")
    where = where if len(where) <= LONGEST_NAME else f"{where[:LONGEST_NAME]}…"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        if not where:  # as a stream says it
            return "the disk is full", "free some space there, or write the output elsewhere", 1
        return f"the disk is full: {where}", REMEDIES[errno.ENOSPC], 1
    if not where and error.errno == errno.ENOENT and not _has_folder():
        return "the current folder is gone", "change to a folder that is there (cd)", 1
    what = error.strerror or str(error)
    if "temporary directory" in what:  # tempfile's own words
        return what, "free some space there, or name another folder in TMPDIR", 1
    remedy = "check that the path exists and that you may read and write there"
    code = UsageError.exit_code if error.errno in ASKED_WRONGLY else 1
    return f"{where and f'{where}: '}{what}", REMEDIES.get(error.errno or 0, remedy), code


def _has_folder() -> bool:
    try:
        os.getcwd()
    except OSError:
        return False
    return True


def _debug(words: list[str]) -> bool:
    """Say whether --debug stands before the subcommand."""
    before = words[: next((i for i, w in enumerate(words) if w in COMMANDS), len(words))]
    return "--debug" in before
