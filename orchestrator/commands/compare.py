"""`prof compare`: what got faster, slower, new or gone between two runs, beyond the noise."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from nsight_prof.orchestrator.commands import shared_options
from nsight_prof.orchestrator.terminal import completion
from nsight_prof.orchestrator.terminal.say import say

REGRESSION = 1


@click.command("compare")
@click.argument("a", type=click.Path(path_type=Path), shell_complete=completion.runs)
@click.argument("b", type=click.Path(path_type=Path), shell_complete=completion.runs)
@click.option(
    "--fail-on",
    "rules",
    multiple=True,
    metavar="RULE",
    help="Exit with 1 if B breaks this rule, for example 'total_gpu_time>+5%'. Repeatable.",
)
@shared_options.page(
    ("md", "github", "json", "html"), "github: short, for a pull request or $GITHUB_STEP_SUMMARY."
)
@click.option("--json", "style", flag_value="json", help="The same as --format json.")
@shared_options.quiet("nothing but broken rules, on stderr")
@click.option(
    "--repeat-a",
    "repeats_a",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="RUN",
    shell_complete=completion.runs,
    help="A further run of A's program: shows its noise. Repeatable.",
)
@click.option(
    "--repeat-b",
    "repeats_b",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="RUN",
    shell_complete=completion.runs,
    help="The same for B.",
)
@click.option(
    "--per",
    default="",
    metavar="ARG",
    help="Also compare times per unit of work: an argument of the program (batch, batch*steps); "
    "taken by itself where such an argument differs; none: not.",
)
@click.option("--force", is_flag=True, help="Compare what prof would refuse to: other GPUs, say.")
def command(
    a: Path,
    b: Path,
    rules: tuple[str, ...],
    style: str,
    language: str,
    quiet: bool,
    output: Path | None,
    repeats_a: tuple[Path, ...],
    repeats_b: tuple[Path, ...],
    per: str,
    force: bool,
) -> int:
    """Compare two runs: faster, slower, new, gone, or noise; fails CI on a rule.

    B is held against A: totals, stages, kernels, benchmark cases, serving points. Kernels are
    matched by name, launch shape and place in their stage; those that were fused or split are
    matched by the operators in their names. A difference that is within the noise is said to be
    so. Repeats of the runs show the noise best; a sweep over target.env.REPEAT is a run with its
    repeats. No GPU is needed.

    \b
    Rules of --fail-on (B against A; a sign makes a change, none a limit for B itself):
      total_gpu_time>+5%   wall_time>+2ms   launches>1000   stage:decode:gpu_time>+3%
      'kernel:flash_fwd>+10%'   'case:linear/.*>+5%'   'point:b64:output_tokens_per_s<-3%'
    A change fails only where it is also beyond the noise.

    \b
    Examples:
      prof compare runs/main runs/branch
      prof compare runs/main runs/branch --fail-on 'total_gpu_time>+5%' --format github
      prof compare runs/eager runs/compiled --format html -o compare.html
      prof compare sweep/variants/batch=8 sweep/variants/batch=64 --per batch
      prof compare base new --repeat-a base2 --repeat-b new2

    Exit codes: 0 ok, 1 a rule is broken, 2 asked wrongly or not comparable.
    """
    from nsight_prof.orchestrator.report.run_tables import ensure_tables
    from nsight_prof.reports.compare.comparison import compare
    from nsight_prof.reports.compare.limits import parse_limit
    from nsight_prof.reports.compare.section import FORMATS
    from nsight_prof.reports.compare.sides import open_side
    from nsight_prof.reports.page.writer import Writer

    limits = [parse_limit(rule) for rule in rules]
    for path in (a, b, *repeats_a, *repeats_b):
        ensure_tables(path)
    sides = open_side(str(a), a, repeats_a), open_side(str(b), b, repeats_b)
    found = compare(*sides, limits, force, per)
    write = partial(FORMATS[style], found, language)
    shared_options.say_page(write, style, output, "comparison", quiet=quiet)
    for limit in found.limits:
        if limit.state == "broken" or not quiet:
            say(f"{limit.state}: {limit.rule}: {Writer().text(limit.sentence)}", err=True)
    return REGRESSION if any(limit.state == "broken" for limit in found.limits) else 0
