"""`prof history`: results of runs over commits, and where they changed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from nsight_prof.orchestrator.commands import shared_options
from nsight_prof.orchestrator.terminal.numbers import Finite
from nsight_prof.orchestrator.terminal.say import say
from nsight_prof.orchestrator.terminal.suggesting import SuggestingGroup
from nsight_prof.parsers.errors import UsageError

if TYPE_CHECKING:
    import pandas as pd

store = click.option(
    "--store",
    type=click.Path(path_type=Path),
    default=Path("runs/history"),
    show_default=True,
    metavar="FOLDER",
    help="Folder of the results: one file for each run that was added.",
)
threshold = click.option(
    "--threshold",
    type=Finite(min=0.0, max=100.0),
    default=0.5,
    show_default=True,
    metavar="PERCENT",
    help="Smallest change that counts.",
)


@dataclass(frozen=True)
class Found:
    """A change of a series: at which commit and run, and by how much (seconds; relative)."""

    recipe: str
    gpu: str
    series: str
    commit: str
    run: str
    before_s: float
    after_s: float
    relative: float
    runs_since: int


@click.group("history", cls=SuggestingGroup)
def command() -> None:
    """Keep results of runs over commits, and find where they changed.

    Series are compared within one recipe and one kind of GPU: times of the program and its stages,
    or of the cases of a benchmark. A change is stated where the runs since differ from those before
    by far more than runs differ anyway: from 8 runs on, 4 of them on each side.

    \b
    Examples:
      prof history add runs/top-kernels-20260101-120000
      prof history show --series gpu_time
      prof history check --since v1.2
    """


@command.command("add", short_help="Add the results of a run.")
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--commit", default="", help="What was measured. [default: HEAD of this repository]")
@store
def add_run(run: Path, commit: str, store: Path) -> None:
    """Add the results of a run to the store; adding it again replaces them.

    \b
    Examples:
      prof history add runs/top-kernels-20260101-120000
      prof history add runs/mine --commit v1.3 --store /shared/history
    """
    from nsight_prof.orchestrator.report.run_tables import load_one_run
    from nsight_prof.parsers.history.store import add, results

    frame = results(load_one_run(run, "add", refresh=True), commit or _head())
    path = add(store, frame)
    say(f"{path}: {len(frame)} results of commit {frame['commit'].iloc[0]}")


@command.command("show", short_help="Print all series and their changes.")
@store
@threshold
@click.option("--series", default="", metavar="TEXT", help="Only series whose name has it.")
@shared_options.as_json
def show(store: Path, threshold: float, series: str, as_json: bool) -> None:
    """Print each series with its newest level, and each of its changes.

    \b
    Examples:
      prof history show
      prof history show --series stage:decode --json
    """
    from nsight_prof.reports.page.formats import seconds

    every = _read(store, series)
    found = [change for rows in _series(every) for change in _changes(rows, threshold)]
    if as_json:
        shared_options.say_json([asdict(change) for change in found])
        return
    for rows in _series(every):
        last = rows.iloc[-1]
        level = seconds(rows["seconds"].tail(4).median())
        say(f"{_name(last)}: {_many(len(rows), 'run')}, now {level}")
        for change in _changes(rows, threshold):
            say(f"  {_words(change)}")


@command.command("check", short_help="Exit with 1 where something became slower.")
@store
@threshold
@click.option("--since", default="", metavar="COMMIT", help="Changes up to this commit are known.")
@click.option("--series", default="", metavar="TEXT", help="Only series whose name has it.")
@click.pass_context
def check(context: click.Context, store: Path, threshold: float, since: str, series: str) -> None:
    """Exit with 1 where the newest change of a series made it slower.

    What became faster again since, and what changed up to `--since`, is no failure.

    \b
    Examples:
      prof history check
      prof history check --since "$(git rev-parse HEAD~20)" --threshold 1
    """
    every = _read(store, series)
    known = _known(every, since)
    slower = []
    for rows in _series(every):
        last = list(_changes(rows, threshold))[-1:]
        slower += [c for c in last if c.relative > 0 and c.commit not in known]
    for change in slower:
        say(f"{change.series} ({change.recipe}): {_words(change)}", err=True)
    if slower:
        say(f"\nhint: repair it, or where it is meant: --since {slower[-1].commit}", err=True)
        context.exit(1)
    runs, commits = every["run"].nunique(), every["commit"].nunique()
    say(f"nothing became slower: {_many(runs, 'run')} of {_many(commits, 'commit')}")


def _head() -> str:
    head = _git("rev-parse", "HEAD")
    if not head:
        raise UsageError(
            "the commit is not known: this folder is in no git repository",
            "name what was measured: --commit NAME",
        )
    return head


def _git(*words: str) -> str:
    """Return what git says of the repository of this folder; nothing where it fails."""
    from nsight_prof.orchestrator.system.process import ask

    answer = ask(["git", *words], env=os.environ)
    return answer.stdout.strip() if answer.exit_code == 0 else ""


def _read(store: Path, series: str) -> pd.DataFrame:
    from nsight_prof.parsers.history.store import read_all

    every = read_all(store)
    chosen = every[every["series"].str.contains(series, regex=False)]
    if chosen.empty:
        raise UsageError(f"no series of {store} has {series} in its name", "prof history show")
    return chosen


def _series(every: pd.DataFrame) -> Iterator[pd.DataFrame]:
    keys = ["recipe", "gpu", "series"]
    for _, rows in every.groupby(keys, dropna=False, sort=True):
        yield rows


def _changes(rows: pd.DataFrame, threshold: float) -> Iterator[Found]:
    from nsight_prof.parsers.history.changes import changes

    for change in changes(rows["seconds"].tolist(), threshold / 100):
        row = rows.iloc[change.index]
        about = {
            name: str(row[name] or "") for name in ("recipe", "gpu", "series", "commit", "run")
        }
        yield Found(
            **about,
            before_s=change.before,
            after_s=change.after,
            relative=change.relative,
            runs_since=len(rows) - change.index,
        )


def _known(every: pd.DataFrame, since: str) -> set[str]:
    """Return the commits whose first run came no later than the last of `since`.

    Of a commit that no run is of, those before it in git.
    """
    if not since:
        return set()
    of_commit = every.loc[every["commit"] == since, "created"]
    if of_commit.empty:
        before = set(_git("rev-list", "--end-of-options", since, "--").split())
        before &= set(every["commit"])
        if before:
            return before
        raise UsageError(
            f"no run of commit {since}, or of one before it, was added",
            "--since takes a commit as it was added, or one of the git repository of this folder",
        )
    first = every.groupby("commit")["created"].min()
    return set(first[first <= of_commit.max()].index)


def _many(count: int, of: str) -> str:
    return f"{count} {of}{'s' if count != 1 else ''}"


def _name(row: pd.Series) -> str:
    return ", ".join(str(row[name]) for name in ("series", "recipe", "gpu") if row[name])


def _words(change: Found) -> str:
    from nsight_prof.reports.page.formats import seconds

    way = "slower" if change.relative > 0 else "faster"
    return (
        f"{abs(change.relative):.1%} {way} from commit {change.commit} on (run {change.run}): "
        f"{seconds(change.before_s)} -> {seconds(change.after_s)}, {change.runs_since} runs since"
    )
