"""`prof predict`: how fast a model serves, from its configuration and recorded runs."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from nsight_prof.orchestrator.commands import shared_options
from nsight_prof.orchestrator.predict.plan_file import Planned
from nsight_prof.orchestrator.report.outcome import as_data
from nsight_prof.orchestrator.terminal import completion
from nsight_prof.orchestrator.terminal.numbers import Finite
from nsight_prof.orchestrator.terminal.say import say
from nsight_prof.parsers.errors import UsageError
from nsight_prof.parsers.run.directory import RunDir, read_manifest
from nsight_prof.parsers.serving.model_shape import ADAPTED, Adapters

if TYPE_CHECKING:
    from nsight_prof.parsers.predict.costs import Note
    from nsight_prof.parsers.predict.serving import Workload


class Numbers(click.ParamType):  # type: ignore[type-arg]
    """Whole numbers from 1, joined by commas."""

    name = "N[,N…]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the numbers as a tuple."""
        if isinstance(value, tuple):
            return value
        try:
            found = tuple(int(word) for word in str(value).split(","))
        except ValueError:
            self.fail(f"{value!r} is no list of whole numbers such as 1,8,64", param, ctx)
        if min(found) < 1:
            self.fail(f"{value!r} holds a number below 1", param, ctx)
        return tuple(dict.fromkeys(found))


class Rates(click.ParamType):  # type: ignore[type-arg]
    """Numbers above 0, joined by commas."""

    name = "R[,R…]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the numbers as a tuple."""
        try:
            found = tuple(float(word) for word in str(value).split(","))
        except ValueError:
            self.fail(f"{value!r} is no list of numbers such as 5,10,20", param, ctx)
        if not all(0 < number < 1e6 for number in found):
            self.fail(f"{value!r} holds a rate that is not above 0", param, ctx)
        return tuple(dict.fromkeys(found))


class Names(click.ParamType):  # type: ignore[type-arg]
    """Matrices of a layer by vLLM's names, joined by commas."""

    name = "NAME[,…]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the names in the order of a layer."""
        found = set(str(value).split(","))
        if unknown := sorted(found - set(ADAPTED)):
            self.fail(f"{unknown[0]!r} is none of {', '.join(ADAPTED)}", param, ctx)
        return tuple(name for name in ADAPTED if name in found)


class Goals(click.ParamType):  # type: ignore[type-arg]
    """Latencies as `vllm bench serve --goodput` has them: name:ms, joined by commas."""

    name = "NAME:MS[,…]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return seconds by the field of a Goal."""
        found = {}
        for word in str(value).split(","):
            name, _, limit = word.strip().partition(":")
            try:
                found[f"{name}_s"] = float(limit) / 1e3
            except ValueError:
                self.fail(f"{word!r} is no latency such as ttft:500", param, ctx)
            if name not in ("ttft", "tpot", "e2e") or not found[f"{name}_s"] > 0:
                self.fail(f"{word!r}: ttft, tpot or e2e and a time above 0 ms", param, ctx)
        return found


@click.command("predict", cls=Planned)
@click.argument("model", required=False)
@click.option(
    "--on",
    "runs",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="RUN",
    shell_complete=completion.runs,
    help="A recorded run that costs come from. Repeatable; all of one kind of GPU.",
)
@click.option("--gpu", default="", metavar="NAME", help="Predict for this GPU by its datasheet.")
@click.option(
    "--tp", type=click.IntRange(min=1), default=1, show_default=True, help="GPUs that share it."
)
@click.option(
    "--dtype",
    type=click.Choice(["auto", "fp8"]),
    default="auto",
    show_default=True,
    help="Type of the layers' weights: fp8 quantizes a model in 16 bits when it is loaded.",
)
@click.option(
    "--kv-cache-dtype",
    type=click.Choice(["auto", "fp8"]),
    default="auto",
    show_default=True,
    help="Type of the KV cache.",
)
@click.option(
    "--speculative-tokens",
    "drafted",
    type=click.IntRange(min=1),
    metavar="N",
    help="Tokens that are drafted in a step for each request; needs --accept.",
)
@click.option(
    "--draft",
    default="eagle",
    show_default=True,
    metavar="WAY",
    help="What drafts them: eagle (a head), ngram (the request itself), or a model by its name.",
)
@click.option(
    "--accept",
    type=Finite(min=1),
    metavar="X",
    help="Mean tokens that such a step gives a request, the model's own included: no run tells.",
)
@click.option(
    "--adapters",
    type=click.IntRange(min=1),
    metavar="N",
    help="LoRA adapters that the GPU holds at once; requests take them in turn.",
)
@click.option(
    "--adapter-rank", type=click.IntRange(min=1), default=16, show_default=True, help="Their rank."
)
@click.option(
    "--adapter-modules",
    type=Names(),
    default=",".join(ADAPTED),
    show_default=True,
    help="Matrices that they change, by vLLM's names.",
)
@click.option("--prompt", type=Numbers(), default="512", show_default=True, help="Prompt tokens.")
@click.option("--output", type=Numbers(), default="128", show_default=True, help="Output tokens.")
@click.option("--batch", type=Numbers(), help="Requests at once. [default: 1,8,32,128]")
@click.option("--concurrency", type=Numbers(), help="Clients of a closed loop.")
@click.option("--rate", type=Rates(), help="Requests per second that come at random (open loop).")
@click.option(
    "--workload",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Requests of a trace: JSON lines with arrival_s, prompt_tokens, output_tokens "
    "(or timestamp in ms, input_length, output_length).",
)
@click.option(
    "--goodput",
    type=Goals(),
    help="Latencies in ms that count for the goodput: ttft:500,tpot:50 (e2e as well).",
)
@click.option(
    "--price-per-hour",
    "price",
    type=Finite(min=0, min_open=True),
    metavar="PRICE",
    help="Price of one GPU, for the price per million tokens.",
)
@click.option(
    "--max-batched-tokens",
    type=click.IntRange(min=1),
    help="Most tokens of a step. [default: that of the recorded engine, else vLLM's 8192]",
)
@click.option(
    "--max-num-seqs",
    type=click.IntRange(min=1),
    help="Most requests at a time. [default: that of the recorded engine, else vLLM's own]",
)
@click.option(
    "--gpu-memory-utilization",
    "utilization",
    type=Finite(min=0, max=1, min_open=True),
    default=0.9,
    show_default=True,
    help="Part of the memory that the engine may take.",
)
@click.option(
    "--host-speed",
    "host_speed",
    default="",
    metavar="RUN|US",
    help="How fast the host is that will serve: a run recorded there, or its mean_s of table "
    "host_speed in microseconds; as-measured: as the hosts of the runs. [default: not known]",
)
@click.option(
    "--validate",
    "truth",
    type=click.Path(path_type=Path),
    metavar="RUN",
    shell_complete=completion.runs,
    help="Hold predictions against this recorded engine instead; MODEL is the one that it served.",
)
@click.option(
    "--fail-on",
    "rules",
    multiple=True,
    metavar="RULE",
    help="Exit with 1 if held-out errors of --validate break it: 'tpot_mape>15%'. Repeatable.",
)
@click.option(
    "--needs", is_flag=True, help="Say which measurement would narrow the intervals most."
)
@click.option("--out", type=click.Path(path_type=Path), metavar="DIR", help="New run directory.")
@shared_options.quiet("only the run directory; warnings and errors go to stderr")
@shared_options.as_json
def command(
    model: str | None,
    runs: tuple[Path, ...],
    gpu: str,
    tp: int,
    dtype: str,
    kv_cache_dtype: str,
    drafted: int | None,
    draft: str,
    accept: float | None,
    adapters: int | None,
    adapter_rank: int,
    adapter_modules: tuple[str, ...],
    prompt: tuple[int, ...],
    output: tuple[int, ...],
    batch: tuple[int, ...] | None,
    concurrency: tuple[int, ...] | None,
    rate: tuple[float, ...] | None,
    workload: Path | None,
    goodput: dict[str, float] | None,
    price: float | None,
    max_batched_tokens: int | None,
    max_num_seqs: int | None,
    utilization: float,
    host_speed: str,
    truth: Path | None,
    rules: tuple[str, ...],
    needs: bool,
    out: Path | None,
    quiet: bool,
    as_json: bool,
) -> int:
    """Predict how fast a model serves, from recorded runs; needs no GPU.

    MODEL is a config.json of Hugging Face, a folder with one, lines of YAML with the same keys, a
    bundled name (qwen2.5-7b), or the name of a model in the local cache of Hugging Face
    (Qwen/Qwen3-32B; the network is never asked); or a plan, YAML with the key model and options
    by their names. Or a whole network: resnet-50, vit-b-16, lstm-large and others that are
    bundled, or a file of targets/static_compute.py; a pass of it is predicted from runs of
    prof run network-kernels, at each --batch. Costs come from the runs of --on: measured kernels
    (prof run llm-kernels, gemm-staircase), the roofs (prof run roofline), and a recorded engine
    (prof run vllm-kernels, vllm-baseline); the more of them, the narrower the interval. With
    --gpu alone they are the roofline of a datasheet. Every number says its tier: T0 datasheet, T1
    kernels of other shapes measured on such a GPU, T2 the very products of this model, T3 a
    recorded engine that served it. What was never measured is refused: weights other than of 16
    bits or in fp8, experts that no imported table has, MLA without a slice.

    \b
    Examples:
      prof predict qwen2.5-7b --gpu h200-sxm
      prof predict plan.yaml --needs
      prof predict config.json --on runs/llm-kernels --on runs/roofline --batch 1,16,64
      prof predict qwen2.5-7b --on runs/llm-kernels --on runs/vllm-kernels --concurrency 8,32
      prof predict qwen2.5-7b --on runs/llm-kernels --rate 5,10,20 --goodput ttft:500,tpot:50
      prof predict qwen2.5-7b --on runs/llm-kernels --workload trace.jsonl --price-per-hour 3.5
      prof predict llama-3.1-8b --on runs/llm-kernels --gpu h100-sxm --prompt 512,4096
      prof predict llama-3.1-8b --on runs/llm-kernels --dtype fp8
      prof predict --validate runs/vllm-baseline --on runs/llm-kernels --fail-on 'tpot_mape>15%'
      prof predict qwen2.5-7b --gpu h200-sxm --json | jq -r .metrics
      prof predict resnet-50 --on runs/network-kernels --batch 1,16,64
    """
    # Threads of numpy's OpenBLAS take 0.1 s to start, and nothing here multiplies large matrices.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    broken: list[str] = []
    if truth is not None:
        run, headline, broken = _validate(model, truth, runs, rules, out)
    elif model is None or rules:
        raise UsageError(
            "no model was given" if model is None else "--fail-on judges a validation",
            "name a config.json, or a recorded engine with --validate RUN",
        )
    else:
        from nsight_prof.orchestrator.report.reporting import drawing

        with drawing() as draw:  # it starts while all else is imported
            from nsight_prof.parsers.operations.networks import is_network

            if is_network(model):
                _refuse_ignored(
                    ("batch",), f"{model} lists the operations of a network, not of a decoder"
                )
                from nsight_prof.orchestrator.predict.networks import predict_network

                run, headline = predict_network(model, runs, batch, out, draw)
            else:
                from nsight_prof.orchestrator.predict.host_speeds import given_speed, is_run
                from nsight_prof.orchestrator.predict.plan import Settings, speed_of
                from nsight_prof.orchestrator.predict.predicting import plan, predict
                from nsight_prof.orchestrator.predict.run_folder import opened
                from nsight_prof.parsers.predict.serving import Goal

                there = speed_of(opened(Path(host_speed))) if is_run(host_speed) else None
                settings = Settings(
                    gpu,
                    tp,
                    _workloads(prompt, output, batch, concurrency, rate, workload),
                    max_batched_tokens or 0,
                    utilization,
                    Goal(**(goodput or {})),
                    math.nan if price is None else price,
                    max_num_seqs or 0,
                    "" if dtype == "auto" else dtype,
                    kv_cache_dtype,
                    *_drafts(drafted, accept, draft),
                    Adapters(adapters, adapter_rank, adapter_modules) if adapters else None,
                    draft,
                    given_speed(host_speed, there) if host_speed else None,
                )
                planned = plan(model, runs, settings)
                planned.notes += _defaults(prompt, output)
                run, headline, _ = predict(planned, out, draw)
    if needs:
        headline = _needs(run)
    notes = read_manifest(run).assumptions
    if as_json:
        result = as_data(run.path, headline, run.report / "report.md")
        shared_options.say_json(result | {"notes": notes, "broken": broken})
    elif quiet:
        say(str(run.path))
    else:
        for number, sentence in enumerate(headline, 1):
            say(f"{number}. {sentence}")
        say(f"\nreport: {run.report / 'report.md'}")
        for note in notes:
            say(f"note: {note}", err=True)
    for sentence in broken:
        say(f"broken: {sentence}", err=True)
    return 1 if broken else 0


def _defaults(prompt: tuple[int, ...], output: tuple[int, ...]) -> list[Note]:
    """Return which loads are predicted though nobody asked for them."""
    from nsight_prof.parsers.predict.costs import note

    context = click.get_current_context()

    def given(*names: str) -> bool:
        sources = map(context.get_parameter_source, names)
        return any(source is not ParameterSource.DEFAULT for source in sources)

    found = []
    if not given("batch", "concurrency", "rate", "workload"):
        found.append(note("usual-batches", batches=", ".join(map(str, BATCHES))))
    of_trace_alone = given("workload") and not given("batch", "concurrency", "rate")
    if not given("prompt", "output") and not of_trace_alone:
        found.append(note("usual-lengths", prompt=prompt[0], output=output[0]))
    return found


def _drafts(drafted: int | None, accept: float | None, draft: str) -> tuple[int, float]:
    """Return how many tokens are drafted in a step, and how many one gives each request.

    Raises:
        UsageError: one of both is missing, or more are accepted than there are.
    """
    from nsight_prof.orchestrator.predict.sources import EAGLE

    if drafted is None and accept is None and draft == EAGLE:
        return 0, 1.0
    if drafted is None or accept is None:
        raise UsageError(
            "tokens that are drafted and tokens that a step gives go together",
            "give both: --speculative-tokens 3 --accept 2.4, of your requests and your drafts; no "
            "measurement without their weights tells the second",
        )
    if accept > 1 + drafted:
        raise UsageError(
            f"a step that drafts {drafted} tokens gives at most {1 + drafted}, not {accept:g}",
            "--accept counts the model's own token too",
        )
    return drafted, accept


def _needs(run: RunDir) -> tuple[str, ...]:
    """Return what each measurement would tell, the most telling first."""
    from nsight_prof.parsers.build.load import load_run
    from nsight_prof.reports.page.writer import Writer
    from nsight_prof.reports.predict.needs import sentences

    return tuple(map(Writer().text, sentences(load_run(run.path))))


def _refuse_ignored(used: tuple[str, ...], reason: str) -> None:
    """Refuse options beside those that are `used`, and those that all predictions have."""
    always = ("model", "runs", "out", "quiet", "as_json")
    context = click.get_current_context()
    ignored = [
        param.opts[0]
        for param in context.command.params
        if param.name not in (*always, *used)
        and context.get_parameter_source(str(param.name)) is ParameterSource.COMMANDLINE
    ]
    if ignored:
        raise UsageError(reason, f"leave out {', '.join(ignored)}")


def _validate(
    model: str | None, truth: Path, runs: tuple[Path, ...], rules: tuple[str, ...], out: Path | None
) -> tuple[RunDir, tuple[str, ...], list[str]]:
    """Return the run of a validation, its first findings, and the broken rules."""
    from nsight_prof.orchestrator.predict.networks import has_networks, validate_networks
    from nsight_prof.orchestrator.predict.predicting import validate
    from nsight_prof.parsers.predict.validation import Rule

    if model is not None:
        raise UsageError("--validate predicts the model that its run served", f"leave out {model}")
    _refuse_ignored(
        ("truth", "rules"), "--validate predicts what its run recorded, at the same points"
    )
    limits = [Rule.parsed(text) for text in rules]
    validated = validate_networks if has_networks(truth) else validate
    run, headline, errors = validated(truth, runs, out)
    return run, headline, [sentence for limit in limits if (sentence := limit.broken(errors))]


def _workloads(
    prompts: tuple[int, ...],
    outputs: tuple[int, ...],
    batches: tuple[int, ...] | None,
    clients: tuple[int, ...] | None,
    rates: tuple[float, ...] | None,
    file: Path | None,
) -> tuple[Workload, ...]:
    from nsight_prof.parsers.predict.serving import Workload
    from nsight_prof.parsers.predict.trace_file import read_workload

    if batches is None and clients is None and rates is None and file is None:
        batches = BATCHES
    loads = [read_workload(file)] if file is not None else []
    loads += [
        load
        for prompt in prompts
        for output in outputs
        for load in (
            *(Workload(prompt, output, batch=batch) for batch in batches or ()),
            *(Workload(prompt, output, concurrency=number) for number in clients or ()),
            *(Workload(prompt, output, rate=rate) for rate in rates or ()),
        )
    ]
    if len(loads) > MOST_POINTS:
        raise UsageError(
            f"{len(loads):,} points were asked for, and at most {MOST_POINTS:,} are predicted",
            "give fewer prompts, outputs or batches",
        )
    return tuple(loads)


BATCHES = (1, 8, 32, 128)
"""Batches that are predicted where no load is given."""
MOST_POINTS = 10_000
