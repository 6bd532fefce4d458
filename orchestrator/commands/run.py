"""`prof run`: takes a recipe from its target to its report."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from nsight_prof.orchestrator.commands import shared_options
from nsight_prof.orchestrator.terminal import completion
from nsight_prof.orchestrator.terminal.say import say

if TYPE_CHECKING:
    from nsight_prof.orchestrator.recipe.read import Recipe
    from nsight_prof.orchestrator.run.runner import RunOutcome

UNPROFILED = (
    "untraced.enabled=true",
    "trace.enabled=false",
    "counters.enabled=false",
    "operators.enabled=false",
    "values.enabled=false",
)


@dataclass(frozen=True)
class Asked:
    """The options of `prof run`."""

    out: Path | None
    replay: Path | None
    resume: Path | None
    dry_run: bool
    force: bool
    repeat: int | None
    roofs: bool
    every: str | None
    cluster: str | None


@click.command("run")
@click.argument("recipe", shell_complete=completion.recipes)
@click.option("--out", type=click.Path(path_type=Path), help="Run directory to make.")
@click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    shell_complete=completion.recipe_keys,
    help="Override a key of the recipe; the value is YAML. May be given often.",
)
@click.option(
    "--replay",
    type=click.Path(path_type=Path),
    metavar="RUN",
    shell_complete=completion.runs,
    help="Take the raw captures of a recorded run in place of nsys and ncu.",
)
@click.option(
    "--resume",
    type=click.Path(path_type=Path),
    metavar="RUN",
    shell_complete=completion.runs,
    help="Continue a run that was interrupted or failed; finished steps are kept.",
)
@click.option(
    "--repeat",
    type=click.IntRange(min=1),
    metavar="N",
    help="Measure a benchmark N times over (bench.repeat): the report states how well it repeats.",
)
@click.option(
    "--roofs/--no-roofs",
    default=True,
    show_default=True,
    help="Hold kernels against the measured roofs of this GPU, where there are any.",
)
@click.option(
    "--no-profile",
    is_flag=True,
    help="Run the program alone (the step untraced): what it writes, and no profile of it.",
)
@click.option(
    "--every",
    type=click.Choice(["gpu"]),
    help="With --on: run it on each GPU of the cluster, a run for each, for `prof fleet`.",
)
@click.option(
    "--on",
    "cluster",
    metavar="ray[:ADDRESS]",
    help="With --every gpu: a Ray cluster that runs, of which all nodes see --out: "
    "nsight-prof[ray].",
)
@click.option("--dry-run", is_flag=True, help="Print the exact commands and start nothing.")
@click.option("--force", is_flag=True, help="Write into a run directory that exists.")
@shared_options.style
@shared_options.quiet("only the run directory; warnings and errors go to stderr")
@shared_options.as_json
def command(
    recipe: str,
    overrides: tuple[str, ...],
    templates: Path | None,
    languages: tuple[str, ...],
    as_json: bool,
    quiet: bool,
    **options: object,
) -> None:
    """Profile a program: nsys, top kernels, ncu, tables, report.

    RECIPE is a YAML file or the name of a bundled recipe (`prof recipe list`). A recipe with
    `bench` measures a benchmark target un-profiled in fresh processes, and counts each case under
    ncu; roofs that it measures are kept for the reports of later runs (`prof roofs list`).

    Where the counters step fails, the trace is reported all the same and the exit code is that of
    the failure: 3 where ncu is missing or the driver refuses the counters. A run that failed or was
    interrupted keeps what it captured; --resume goes on with it.

    \b
    Examples:
      prof run recipes/top-kernels.yaml
      prof run top-kernels --set target.args.batch=16 --set select.top_k=5
      prof run top-kernels --set 'capture={nvtx: decode}'
      prof run own-command --set 'target.command=[./my_app, --size, 4096]'
      prof run roofline --repeat 3
      prof run top-kernels --language ko
      prof run inference --set dataset.root=pages --no-profile
      prof run top-kernels --dry-run
      prof run top-kernels --replay runs/recorded
      prof run top-kernels --resume runs/top-kernels-20260101-120000
      prof run mine.yaml --json | jq -r .report
      prof run roofline --on ray --every gpu --out /shared/fleet
    """
    from nsight_prof.orchestrator.recipe.read import load_recipe
    from nsight_prof.parsers.errors import UsageError

    unprofiled = UNPROFILED if options.pop("no_profile") else ()
    asked = Asked(**options)  # type: ignore[arg-type]
    as_it_stands = not overrides
    overrides = (*overrides, *shared_options.overrides(templates, languages), *unprofiled)
    loaded = load_recipe(recipe, overrides)
    if asked.every is not None or asked.cluster is not None:
        _on_every_gpu(loaded, recipe, overrides, asked, as_json)
        return
    if asked.repeat is not None:
        if loaded.bench is None:
            raise UsageError(
                f"--repeat is for benchmarks, and the recipe {loaded.name} has no `bench` section",
                "run it twice and compare the reports, or take a benchmark: prof run roofline",
            )
        loaded = load_recipe(recipe, (*overrides, f"bench.repeat={asked.repeat}"))
    if asked.dry_run:
        from nsight_prof.orchestrator.ranks.job import render_job_dry_run
        from nsight_prof.orchestrator.run.dry_run import render_dry_run
        from nsight_prof.orchestrator.system.secrets import choose_environment

        if as_json or quiet:
            raise UsageError(
                "--dry-run prints commands, and neither JSON nor less of them",
                "leave out --json and --quiet",
            )
        if asked.replay is not None:
            raise UsageError(
                "--dry-run shows the commands of a run, and a replay starts none",
                "leave out one of --dry-run and --replay",
            )

        folder = asked.resume or asked.out or Path("runs") / f"{loaded.name}-<time>"
        known = choose_environment(os.environ, loaded.target.env, loaded.to_dict())
        render = render_dry_run if loaded.ranks is None else render_job_dry_run
        say(known.redact(render(loaded, folder)), nl=False)
        return
    if asked.replay is not None and as_it_stands and loaded.ranks is None:
        loaded = _of_record(loaded, asked.replay)
    outcome = _run(loaded, asked, quiet)
    _show(outcome, as_json, quiet)
    click.get_current_context().exit(outcome.exit_code)


def _on_every_gpu(
    recipe: Recipe, name: str, overrides: tuple[str, ...], asked: Asked, as_json: bool
) -> None:
    """Run the recipe on each GPU of a cluster, and say which have their run."""
    from dataclasses import asdict

    from nsight_prof.orchestrator.system.run_lock import new_folder, no_empty_folder
    from nsight_prof.orchestrator.workers import every_gpu
    from nsight_prof.orchestrator.workers.mapping import executor_of
    from nsight_prof.orchestrator.workers.on_ray import RayExecutor
    from nsight_prof.parsers.errors import UsageError

    if asked.every is None or asked.cluster is None:
        raise UsageError(
            "--on and --every belong together", "give both: --on ray --every gpu, or neither"
        )
    if asked.replay or asked.dry_run or asked.force or recipe.ranks is not None:
        raise UsageError(
            "on each GPU a program is run anew: no --replay, no --dry-run, no --force, no `ranks`",
            "leave it out; GPUs that have no run yet: --resume RUN",
        )
    words = [str(Path(name).absolute()) if Path(name).is_file() else name]
    words += [f"--set={override}" for override in overrides]
    words += [f"--repeat={asked.repeat}"] if asked.repeat is not None else []
    words += [] if asked.roofs else ["--no-roofs"]
    with executor_of(1, asked.cluster) as executor, no_empty_folder() as created:
        assert isinstance(executor, RayExecutor)  # of a cluster, which was asked for
        out = asked.resume or new_folder(recipe.name, asked.out, force=False)
        created.append(out)
        found = every_gpu.run_on_every_gpu(
            executor,
            every_gpu.Asked(tuple(words), out.absolute(), Path.cwd()),
            lambda words: say(words, err=True),
        )
    if as_json:
        shared_options.say_json([asdict(gpu) for gpu in found])
    missing = [gpu for gpu in found if gpu.error]
    for gpu in found if not as_json else missing:
        say(f"{gpu.uuid} ({gpu.host}): {gpu.error or gpu.run}", err=bool(gpu.error))
    if missing:
        say(f"\nhint: measure what is missing: prof run {name} --resume {out} …", err=True)
    elif not as_json:
        say(f"\ncompare them: prof fleet {out}")
    click.get_current_context().exit(1 if missing else 0)


def _of_record(recipe: Recipe, replay: Path) -> Recipe:
    """Take the arguments and the steps that a record of this recipe has, and say so."""
    from nsight_prof.orchestrator.run.replay import like_recorded
    from nsight_prof.parsers.run.directory import RunDir, read_manifest

    recipe, differences = like_recorded(recipe, read_manifest(RunDir(replay)))
    if differences:
        say(f"note: as the recorded run {replay} was measured: {differences}", err=True)
    return recipe


def _run(recipe: Recipe, asked: Asked, quiet: bool) -> RunOutcome:
    from nsight_prof.orchestrator.run.runner import RunOptions, run_recipe
    from nsight_prof.orchestrator.terminal.display import make_display

    display = make_display(quiet)
    options = RunOptions(
        asked.out, asked.replay, asked.resume, asked.force, asked.roofs, progress=display
    )
    try:
        if recipe.ranks is not None:
            from nsight_prof.orchestrator.ranks.job import run_job

            return run_job(recipe, recipe.ranks, options)
        return run_recipe(recipe, options)
    finally:
        display.close()


def _show(outcome: RunOutcome, as_json: bool, quiet: bool) -> None:
    """Print the findings and where the report is; what failed on the way goes to stderr."""
    from nsight_prof.orchestrator.report.outcome import as_data, show_report
    from nsight_prof.orchestrator.run.journal import resume

    if as_json:
        errors = [
            {"error": error.message, "hint": error.hint, "exit_code": error.exit_code}
            for error in outcome.errors
        ]
        result = as_data(outcome.run_dir, outcome.findings, outcome.report_path)
        shared_options.say_json({**result, "errors": errors, "exit_code": outcome.exit_code})
    elif quiet:
        say(str(outcome.run_dir))
    elif outcome.report_path is not None:
        say("")
        show_report(outcome.findings, outcome.report_path)
    for error in outcome.errors:
        say(f"\nerror: {error.message}\n\nhint: {error.hint}", err=True)
    if outcome.errors:
        say(f"      then continue with: {resume(outcome.run_dir)}", err=True)
