"""Predicts a model from recorded runs, and writes what it finds as a run directory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from nsight_prof.orchestrator.predict.changes import break_even, changes_frame, without_drafts
from nsight_prof.orchestrator.predict.needs import needs_frame
from nsight_prof.orchestrator.predict.plan import MTP, Plan, Settings
from nsight_prof.orchestrator.predict.run_folder import opened, write_tables
from nsight_prof.orchestrator.predict.sources import EAGLE, NGRAM, Source, read_model
from nsight_prof.orchestrator.report.reporting import make_report, reporting
from nsight_prof.parsers.cells import Row
from nsight_prof.parsers.errors import ArtifactUnreadable, UsageError
from nsight_prof.parsers.predict.costs import Note, not_recorded, note
from nsight_prof.parsers.predict.operators import check_known
from nsight_prof.parsers.predict.points import frames
from nsight_prof.parsers.predict.quantization import quantized_shape
from nsight_prof.parsers.predict.serving import (
    Workload,
)
from nsight_prof.parsers.predict.validation import (
    HELD_OUT,
    IN_SAMPLE,
    errors_frame,
    kernel_errors,
    point_errors,
    step_errors,
)
from nsight_prof.parsers.run.directory import (
    RunDir,
)
from nsight_prof.parsers.serving.model_shape import ModelShape

if TYPE_CHECKING:
    from nsight_prof.reports.render.drawing import Draw


def plan(model: str, runs: Sequence[Path], settings: Settings) -> Plan:
    """Return how a model is predicted.

    Raises:
        UsageError: the model is not known, or the runs do not allow it.
    """
    name, config = read_model(model)
    try:
        shape = quantized_shape(config, settings.dtype, settings.kv_cache_dtype)
        shape = replace(shape, drafted=settings.head_drafts, adapters=settings.adapters)
    except ArtifactUnreadable as error:
        raise UsageError(
            error.message,
            "decoders of one kind of layer are predicted, in 16 bits, in fp8, or with weights of 4 "
            "bits; measure this one whole: prof run vllm-baseline --set target.args.model=MODEL "
            "tells TTFT, TPOT and throughput, prof run vllm-kernels what its kernels take",
        ) from error
    check_known(replace(shape, drafted=settings.drafted))
    notes = _unusual(config, shape, settings)
    sources = tuple(map(opened, runs))
    for source in sources:
        source.check_engines()
    planned = Plan(name, shape, sources, settings, notes)
    if settings.drafted and settings.draft not in (EAGLE, NGRAM):
        planned.drafter = _drafter(planned)
    return planned


def _drafter(planned: Plan) -> Plan:
    """Return how the model that drafts is predicted, by a slice of it among the same runs.

    Raises:
        UsageError: there is none, or it has other tokens.
    """
    asked = planned.settings
    if asked.draft == MTP:
        raise UsageError(
            "drafts of a model's own further layers (MTP) are not predicted: no run has them",
            "measure the model whole: prof run vllm-baseline --set target.args.model=MODEL "
            """--set 'target.args.engine_args={"speculative_config": {"method": "mtp", """
            f""""num_speculative_tokens": {asked.drafted}}}}}'""",
        )
    name, config = read_model(asked.draft)
    shape = quantized_shape(config)
    if shape.vocabulary != planned.shape.vocabulary:
        raise UsageError(
            f"{name} has a vocabulary of {shape.vocabulary:,} tokens, and {planned.name} one of "
            f"{planned.shape.vocabulary:,}: it cannot draft for it",
            "name a model with the same tokenizer",
        )
    alone = replace(asked, draft=EAGLE, drafted=0, accept=1.0, dtype="", kv_cache_dtype="auto")
    found = Plan(name, shape, planned.sources, alone)
    if asked.tensor_parallel > 1 or found.trace is None or not found.trace.serves(found.shard):
        raise not_recorded(
            f"passes of {name}, which drafts, on one GPU", f"--set target.args.model={asked.draft}"
        )
    return found


def _unusual(config: Mapping[str, Any], shape: ModelShape, settings: Settings) -> list[Note]:
    """Return what holds for this model or these lengths beside what is predicted."""
    notes, workloads = [], settings.workloads
    if shape.quantized is not None:
        scales = "token-scales" if shape.quantized.dynamic else "checkpoint-scales"
        key = "wide-inputs" if shape.quantized.wide_inputs else scales
        notes.append(note(key, dtype=shape.quantized.dtype))
    if config.get("num_nextn_predict_layers"):
        notes.append(note("not-speculative"))
    if settings.drafted:
        given, by = f"{settings.accept:g}", settings.draft
        notes.append(note("drafts", drafter=by, drafted=settings.drafted, accept=given))
    if shape.adapters:
        count, rank = shape.adapters.count, shape.adapters.rank
        modules = ", ".join(shape.adapters.modules)
        notes.append(note("adapters", count=count, rank=rank, modules=modules))
    if shape.qk_norm:
        notes.append(note("free-norms"))
    if any(work.concurrency for work in workloads):
        notes.append(note("rounds", requests=Workload.ROUNDS))
    if any(work.rate and not work.arrivals for work in workloads):
        time = f"{Workload.OPEN_S:g} s"
        notes.append(note("open-loop", time=time, least=Workload.LEAST))
    longest = max((work.prompt + work.output for work in workloads), default=0)
    limit = config.get("max_position_embeddings")
    if isinstance(limit, int) and longest > limit:
        notes.append(note("beyond-context", tokens=longest, limit=limit))
    return notes


def predict(
    planned: Plan, out: Path | None, draw: Draw | None = None
) -> tuple[RunDir, tuple[str, ...], dict[str, pd.DataFrame]]:
    """Predict the workloads of a plan into a new run directory; return it and its first findings.

    `draw`: what draws the pictures (`reporting.drawing`).

    Raises:
        UsageError: `out` is not empty, or an operator is not known.
    """
    prediction = planned.prediction()
    found = frames(prediction, planned.settings.workloads)
    undrafted = cache(partial(without_drafts, planned, prediction))
    if planned.settings.drafted:
        found["predicted_points"]["break_even_accept"] = [
            break_even(prediction, undrafted, work) for work in planned.settings.workloads
        ]
    recipe = _recipe(planned)
    with reporting(draw, recipe, found) as report:
        found["predicted_changes"] = changes_frame(planned, prediction, undrafted)
        found["predicted_needs"] = needs_frame(planned, prediction)
        planned.notes.insert(0, _asked(planned))
        run = write_tables(planned.name, out, found, "predict", recipe, planned.notes)
        headline, _ = report(run)
    return run, headline, found


def _asked(planned: Plan) -> Note:
    """Return the settings of the predicted engine, also those that nobody asked for."""
    shape, cache = planned.shape, planned.settings.kv_cache_dtype
    return note(
        "settings",
        dtype=shape.quantized.dtype if shape.quantized else shape.dtype,
        cache=shape.dtype if cache in ("", "auto") else cache,
        part=f"{100 * planned.settings.utilization:g} %",
        requests=f"{planned.engine.max_requests:,}",
    )


def validate(
    truth: Path, runs: Sequence[Path], out: Path | None
) -> tuple[RunDir, tuple[str, ...], pd.DataFrame]:
    """Hold predictions against the recorded engine `truth`; return run, first findings and errors.

    Held out, `truth` is no source, and products of this model's outputs and inputs are in no fit;
    in sample, all that `runs` have is used.

    Raises:
        UsageError: `truth` served no model that is known, or has nothing to hold against.
    """
    planned, found = validation(opened(truth), tuple(map(opened, runs)))
    found_tables = {"prediction_errors": found}
    run = write_tables(planned.name, out, found_tables, "validate", _recipe(planned), planned.notes)
    headline, _ = make_report(run)
    return run, headline, found


def validation(source: Source, sources: tuple[Source, ...]) -> tuple[Plan, pd.DataFrame]:
    """Return how a recorded engine is predicted from `sources`, and table `prediction_errors`.

    Raises:
        UsageError: as `validate`.
    """
    if source.full_shape is None or source.shape is None:
        raise UsageError(
            f"{source.path} has no engine that served a model which is known",
            "name a run of vllm-baseline or vllm-kernels",
        )
    for item in (source, *sources):
        item.check_engines()
    others = tuple(item for item in sources if item.path.resolve() != source.path.resolve())
    if not others:
        raise UsageError(
            f"nothing but {source.path} itself was given to predict it from",
            "add other recorded runs, of kernels for one: --on RUN",
        )
    settings = _served(source, source.shape.tensor_parallel)
    planned = held_out(source, others)
    rows = list(errors(planned, source, HELD_OUT))
    with_all = Plan(source.model, source.full_shape, sources, settings, served=source)
    rows += errors(with_all, source, IN_SAMPLE)
    planned.notes += with_all.notes
    found = errors_frame(rows)
    if found.empty:
        raise UsageError(
            f"{source.path} has no step of an engine and no point to hold predictions against",
            "name a run of vllm-baseline or vllm-kernels",
        )
    return planned, found


def held_out(truth: Source, others: tuple[Source, ...], *, corrected: bool = True) -> Plan:
    """Return how `others` predict what the engine `truth` served, as if it were not known.

    `corrected`: by what other models that were served took beyond such predictions.
    """
    model, shard = truth.full_shape, truth.shape
    assert model is not None
    assert shard is not None
    settings = _served(truth, shard.tensor_parallel)
    lines = (*shard.linears(), shard.head())
    products = frozenset((line.outputs, line.inputs) for line in lines)
    return Plan(
        truth.model, model, others, settings,
        left_out=products, served=truth, corrected=corrected,
    )  # fmt: skip


def _served(truth: Source, gpus: int) -> Settings:
    """Return what was asked of a recorded engine."""
    method, drafted, accept = truth.drafts
    return Settings(truth.gpu_name, gpus, drafted=drafted, accept=accept, draft=method or EAGLE)


def errors(planned: Plan, truth: Source, sample: str) -> Iterator[Row]:
    """Yield the rows of table `prediction_errors` of one recorded engine."""
    costs, recorded = planned.costs, {"sample": sample, "source": truth.name}
    trace, predictor = truth.trace, None
    try:
        predictor = planned.predictor()
        predictor.step(Workload(1, 1, 1).steps()[1])
    except UsageError as error:
        predictor = None
        planned.notes.append(note("steps-unknown", sample=sample, reason=error.message))
    # Beyond recorded layers: what is predicted from other kernels alone differs by these as well.
    correction = predictor.correction if predictor is not None and planned.trace else None
    if trace is not None:
        for row in kernel_errors(costs, trace, planned.power, correction):
            yield row | recorded
    if predictor is None:
        return
    if trace is not None:
        for row in step_errors(predictor, trace, correction):
            yield row | recorded
    for work, measured in truth.points():
        tiers = [item.tier for step in work.steps() for item in predictor.step(step).breakdown]
        for row in point_errors(predictor, work, measured, min(tiers)):
            yield row | recorded


def _recipe(planned: Plan) -> dict[str, Any]:
    """Return what was asked for, as a recipe has it."""
    asked, quantized = planned.settings, planned.shape.quantized
    dtype = quantized.dtype if quantized else ""
    model = f"{planned.name} ({dtype})" if dtype else planned.name
    many = f"{asked.tensor_parallel} x " if asked.tensor_parallel > 1 else ""
    return {
        "name": f"{model} on {many}{planned.gpu.name}",
        "question": "How fast will this model serve on this GPU?",
        "predict": {
            "model": planned.name,
            "gpu": planned.gpu.name,
            "datasheet": planned.gpu.source,
            "on": [source.name for source in planned.sources],
            "tensor_parallel": asked.tensor_parallel,
            "dtype": dtype,
            "utilization": asked.utilization,
            "weight_bytes": planned.weights,
            "kv_bytes_per_token": planned.kv_bytes_per_token,
            "memory_bytes": planned.memory,
            "max_num_batched_tokens": planned.engine.batched_tokens,
            "max_num_seqs": planned.engine.max_requests,
        },
    }
