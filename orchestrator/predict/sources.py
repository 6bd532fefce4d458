"""What a prediction rests on: the model's configuration, and recorded runs."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import yaml

from nsight_prof.orchestrator.predict.hub import cached_config, is_hub_name
from nsight_prof.parsers import safe_yaml, tables
from nsight_prof.parsers.cells import Row, known, records
from nsight_prof.parsers.errors import ArtifactUnreadable, UsageError
from nsight_prof.parsers.predict.corrections import LONG_TOKENS
from nsight_prof.parsers.predict.front_end import token_seconds
from nsight_prof.parsers.predict.operators import FEW, FP8
from nsight_prof.parsers.predict.quantization import quantized_shape
from nsight_prof.parsers.predict.serving import Engine, Request, Workload
from nsight_prof.parsers.predict.trace import Batch, Trace, read_trace
from nsight_prof.parsers.run.directory import RunDir, read_manifest
from nsight_prof.parsers.serving.model_shape import FAMILIES, Adapters, ModelShape

CONFIG = "config.json"
MODELS = resources.files("nsight_prof.targets.serving") / "configs"
UNPROFILED, TRACE = ("untraced", "bench"), "trace"
EAGLE, NGRAM = "eagle", "ngram"
"""Ways of drafting whose engines predictions know: a head of one layer, and what stands in the
request already (targets/serving/additions.py)."""
SLICE, NARROWED = "prof_slice", "narrowed"
"""Key of an engine's configuration, what targets/serving/layer_slice.py cut it from, and within it
the widths of a model whose layers are narrow there."""
BUSY = "busy-gpu"
"""Experiment of a narrow engine whose GPU was kept busy (targets/serving/busy_gpu.py)."""


class Drafts(NamedTuple):
    """What drafts tokens for an engine: how, how many in a step, and tokens that a step gives."""

    method: str
    tokens: int
    accept: float


NO_DRAFTS = Drafts("", 0, 1.0)


@dataclass(frozen=True)
class Source:
    """A recorded run with tables that costs come from; they are read when first asked for.

    `frames`: those of a run whose folder has none, as far as predictions ask for them.
    """

    path: Path
    frames: Mapping[str, pd.DataFrame] = field(default_factory=dict, compare=False)

    @cached_property
    def name(self) -> str:
        """Name of the run."""
        return self.path.resolve().name

    @cached_property
    def _tables(self) -> dict[str, pd.DataFrame]:
        return {}

    def table(self, name: str) -> pd.DataFrame:
        """Return a table of the run."""
        if name in self.frames:
            return self.frames[name]
        if name not in self._tables:
            self._tables[name] = tables.read(RunDir(self.path).tables, name)
        return self._tables[name]

    @cached_property
    def gpu(self) -> Row:
        """What is known of the GPU of the run: name and memory_bytes."""
        known = records(self.table("gpus")[["name", "memory_bytes"]].dropna(subset="name"))
        recorded = [{"name": g.get("name"), "memory_bytes": g.get("memory_bytes")}
                for g in read_manifest(RunDir(self.path)).gpus if g.get("name")]  # fmt: skip
        return next(iter([*known, *recorded]), {"name": "", "memory_bytes": None})

    @cached_property
    def gpu_name(self) -> str:
        """Name of that GPU.

        Raises:
            UsageError: the run does not tell.
        """
        if not self.gpu["name"]:
            raise UsageError(
                f"{self.path} does not say which GPU it was recorded on",
                "name runs that prof recorded on a GPU",
            )
        return str(self.gpu["name"])

    @cached_property
    def _every_engine(self) -> list[Row]:
        engines = self.table("engines")
        return records(engines[engines["source"].isin((*UNPROFILED, TRACE))])

    @cached_property
    def engines(self) -> list[Row]:
        """Engines of the run that were not under a profiler of operators or counters.

        Narrow ones tell nothing but what the host needs (`host_steps`), and slices of such that
        look n-grams up what the GPU waits for it (`lookup_steps`).
        """
        return [row for row in self._every_engine if not _is_probe(row)]

    @cached_property
    def _narrow(self) -> list[Row]:
        return [row for row in self._every_engine if _is_narrow(row) and not _looks_up(row)]

    def check_engines(self) -> None:
        """Refuse a run whose steps are not those that predictions know.

        Raises:
            UsageError: its engine drafted tokens neither by an EAGLE head nor by n-grams.
        """
        for row in self._every_engine:
            asked = _arguments(row)
            method = _drafts(asked).method
            if asked.get("speculative_config") and method not in (EAGLE, NGRAM):
                raise UsageError(
                    f"{self.path} was served with speculative decoding by "
                    f"{method or 'a way that it does not name'}, which predictions "
                    "do not know",
                    "an EAGLE head is known (prof run layer-slice --set "
                    "target.args.speculative_tokens=3 --set target.args.accept=2.5), and so are "
                    "n-grams (target.args.draft=ngram beside them); a draft model by slices "
                    "without drafts (--draft); what others change is measured: record both, and "
                    "prof compare",
                )

    @cached_property
    def full_shape(self) -> ModelShape | None:
        """The model that the run served; None where it served none that is known."""
        return next((shape for row in self.engines if (shape := _shape(row))), None)

    @cached_property
    def model(self) -> str:
        """Name of that model."""
        return next((str(row["model"]) for row in self.engines if row["model"]), "model")

    @cached_property
    def shape(self) -> ModelShape | None:
        """Shard of that model on one GPU, of a slice with all layers; None where not known."""
        split = next((int(row["tensor_parallel"] or 1) for row in self.engines), 1)
        if self.full_shape is None or self.slice is None:
            return None if self.full_shape is None else self.full_shape.shard(split)
        layers, ranks = self.slice["layers"], self.slice["tensor_parallel"]
        return replace(self.full_shape.with_layers(layers), tensor_parallel=ranks)

    @cached_property
    def slice(self) -> Mapping[str, int] | None:
        """Layers and tensor_parallel of the model that a slice was cut from; None: no slice."""
        return next((found for row in self.engines if (found := _cut_from(row))), None)

    @cached_property
    def drafts(self) -> Drafts:
        """What drafted tokens for its engine, by the arguments that it was started with."""
        every = (_drafts(_arguments(row)) for row in self.engines)
        return max(every, key=lambda drafts: drafts.tokens, default=NO_DRAFTS)

    @cached_property
    def engine(self) -> Engine | None:
        """The settings of its engine with graphs; None where they were not all recorded."""
        return next((found for row in self.engines if (found := _settings(row))), None)

    def layers(self, step: str) -> int:
        """Return how many layers the engine of a step of the run served; 0: it served none."""
        configs = [json.loads(r["model_config"]) for r in self.engines if r["source"] == step]
        return next((int(config["num_hidden_layers"]) for config in configs), 0)

    def points(self) -> Iterator[tuple[Workload, Row]]:
        """Yield points of engines with graphs that were measured without a profiler.

        Of an open loop they have the requests as they came. Those of a slice are of few layers.
        """
        steps = UNPROFILED if self.slice is None else (*UNPROFILED, TRACE)
        probes = [row["source"] for row in self._every_engine if _is_probe(row)]
        return self._points([step for step in steps if step not in probes])

    def host_steps(
        self, shape: ModelShape, *, busy: bool = False
    ) -> Iterator[tuple[Engine, Workload, Row]]:
        """Yield points of engines with all layers of `shape`, so narrow that the GPU waits.

        Over several GPUs they were shared by as many. `busy`: those in which it was kept busy.
        """
        for engine in self._narrow:
            model, gpus = _shape(engine), int(engine["tensor_parallel"] or 1)
            same = model is not None and model.shard(gpus) == shape
            if same and (settings := _settings(engine)):
                for work, row in self._points([engine["source"]], busy=busy):
                    yield settings, work, row

    def issues(self, shape: ModelShape, *, busy: bool = False) -> Iterator[tuple[bool, float]]:
        """Yield in how long such an engine issued each single prompt, by its own clock.

        With it comes whether the prompt was within CUDA graphs. The first step of a request issues
        it and waits for nothing. `busy`: while its GPU was kept busy. Over several GPUs, where
        other processes issue, the clock does not tell.
        """
        if shape.tensor_parallel > 1:
            return
        steps = self.table("host_steps")
        steps = steps[steps["index"].eq(0)]
        for engine, work, row in self.host_steps(shape, busy=busy):
            if work.batch == 1:
                of_case = steps[steps["case"].eq(row["case"]) & steps["source"].eq(row["source"])]
                for seconds in of_case["seconds"].astype(float):
                    yield bool(engine.rows(work.steps()[0])), seconds

    def lookup_steps(self, shape: ModelShape) -> Iterator[tuple[int, Engine, Workload, Row]]:
        """Yield points of slices of `shape` that look n-grams up, with how many layers they have.

        Each such step waits for the host, and the GPU for the look-up. What narrow ones take the
        GPU is not known.
        """
        for engine in filter(_looks_up, self._every_engine):
            model, cut = _shape(engine), _cut_from(engine)
            if model is None or not (settings := _settings(engine)) or _is_narrow(engine):
                continue
            rank = replace(model, tensor_parallel=cut["tensor_parallel"])
            if rank.with_layers(cut["layers"]) == shape:
                for work, row in self._points([engine["source"]]):
                    yield model.layers, settings, work, row

    def _points(
        self, steps: Sequence[str], *, busy: bool = False
    ) -> Iterator[tuple[Workload, Row]]:
        rows = self.table("serving_points")
        rows = rows[rows["experiment"].eq(BUSY).fillna(False) == busy]
        rows = rows[
            rows["source"].isin(steps)
            & ~rows["traced"].fillna(False).astype(bool)
            & rows["status"].eq("ok")
            & rows["engine"].eq("cuda-graphs")
            & rows[["prompt_tokens", "output_tokens"]].notna().all(axis=1)
        ]
        for row in records(rows):
            lengths = int(row["prompt_tokens"]), int(row["output_tokens"])
            batch, clients, rate = (
                known(row[key]) or 0 for key in ("batch", "concurrency", "request_rate")
            )
            if batch:
                yield Workload(*lengths, int(batch)), row
            elif clients:
                count = int(known(row["requests"]) or 0)
                yield Workload(*lengths, concurrency=int(clients), count=count), row
            elif rate:
                yield Workload(*lengths, rate=rate, arrivals=self._arrivals(row)), row

    def around_engine(self) -> tuple[float, float]:
        """Return what a recorded server adds to TTFT, in s: of one client, and of each more.

        Of closed loops, the mean as clients saw it less what vLLM's own counters say of the queue
        and the engine. With more clients it has requests that wait for a step to end, so that the
        least counts. NaN: no server was recorded, or not with one client.
        """
        return self._around_engine

    @cached_property
    def _around_engine(self) -> tuple[float, float]:
        if self.table("vllm_totals").empty:
            return math.nan, math.nan
        keys = ["case", "source"]
        totals = self.table("vllm_totals").groupby(keys)[["queue_mean_s", "prefill_mean_s"]].mean()
        points = self.table("serving_points")
        points = points[points["concurrency"].notna() & points["status"].eq("ok")]
        both = points.merge(totals, on=keys)
        both = both[["concurrency", "ttft_mean_s", "queue_mean_s", "prefill_mean_s"]].astype(float)
        outside = both["ttft_mean_s"] - both["queue_mean_s"] - both["prefill_mean_s"]
        more = both["concurrency"].gt(1)
        alone = outside[~more].mean()
        return float(alone), float(((outside - alone) / (both["concurrency"] - 1))[more].min())

    def token_s(self) -> float:
        """Return what a recorded server takes to send a token; NaN: none was recorded.

        It is that of the most clients whose token times were all kept.
        """
        found, points = self.table("requests"), self.table("serving_points")
        points = points[points["concurrency"].gt(1).fillna(False)].sort_values("concurrency")
        for case in reversed(points["case"].tolist()):
            of_case = found[found["case"].eq(case) & found["repeat"].eq(1)]
            if len(of_case) and of_case["token_times_s"].notna().all():
                return token_seconds(of_case)
        return math.nan

    def _arrivals(self, point: Row) -> tuple[Request, ...]:
        """Return the requests of a point as they came, from the first on."""
        found = self.table("requests")
        found = found[found["case"].eq(point["case"]) & found["source"].eq(point["source"])]
        found = found[found["process"].eq(1) & found["repeat"].eq(1)].sort_values("arrival_s")
        start = found["arrival_s"].min()
        lengths = int(point["prompt_tokens"]), int(point["output_tokens"])
        return tuple(Request(float(came - start), *lengths) for came in found["arrival_s"])

    @cached_property
    def trace(self) -> Trace | None:
        """The recorded steps of an engine with graphs; None where the run traced none."""
        points = self.table("serving_points")
        traced = points[
            points["source"].eq(TRACE)
            & points["engine"].eq("cuda-graphs")
            & points["traced"].fillna(True).astype(bool)
            & points["status"].eq("ok")
            & points["batch"].notna()
        ]
        if self.shape is None or traced.empty or self.table("engine_steps").empty:
            return None
        keys = ["batch", "prompt_tokens", "output_tokens"]
        by_case = {str(row["case"]): Batch(*(int(row[k]) for k in keys)) for row in records(traced)}
        batches = list(self._traced_batches(by_case))
        captured = next(json.loads(r["capture_sizes"]) for r in self.engines if r["capture_sizes"])
        used = {name: self.table(name) for name in ("engine_steps", "launches", "kernels")}
        shape = self.shape.with_layers(self.layers(TRACE))
        sliced = self.slice is not None
        accept = self.drafts.accept
        found = read_trace(used, shape, batches, captured, is_slice=sliced, accept=accept)
        return replace(found, profiled=self._profiled())

    def _profiled(self) -> float:
        """Return how much longer prompts took in the trace than without a profiler; NaN: unknown.

        Of batches that were generated both ways in one process, whose prompts are few tokens: they
        wait for the host.
        """
        points = self.table("serving_points")
        short = points["batch"].le(FEW) & points["batch"].mul(points["prompt_tokens"]).le(
            LONG_TOKENS
        )
        points = points[short & points["source"].eq(TRACE) & points["status"].eq("ok")]
        traced = points["traced"].fillna(True).astype(bool)
        with_it, without = (
            points[rows].set_index("case")["ttft_p50_s"] for rows in (traced, ~traced)
        )
        return float((with_it / without).median())

    def _traced_batches(self, by_case: Mapping[str, Batch]) -> Iterator[Batch]:
        """Yield the batches that were traced, in order; one of a case may come more than once."""
        found = self.table("requests")
        found = found[found["source"].eq(TRACE) & found["traced"].fillna(False).astype(bool)]
        found = found.sort_values("arrival_s")
        while len(found) and found["case"].iloc[0] in by_case:
            batch = by_case[found["case"].iloc[0]]
            yield batch._replace(ttft_s=float(found["ttft_s"].head(batch.requests).median()))
            found = found.iloc[batch.requests :]


def _is_narrow(engine: Row) -> bool:
    return NARROWED in _cut_from(engine)


def _looks_up(engine: Row) -> bool:
    """Return whether an engine is a slice that drafts by n-grams."""
    return bool(_cut_from(engine)) and _drafts(_arguments(engine)).method == NGRAM


def _is_probe(engine: Row) -> bool:
    """Return whether an engine tells of the host or of looking n-grams up, and of no kernels."""
    return _is_narrow(engine) or _looks_up(engine)


def _arguments(engine: Row) -> dict[str, Any]:
    """Return the arguments that an engine was started with (table `engines`)."""
    return dict(json.loads(engine["args"] or "{}"))


def _cut_from(engine: Row) -> Mapping[str, Any]:
    """Return what an engine's layers were cut from; empty where it is no slice."""
    found: Mapping[str, Any] = json.loads(engine["model_config"] or "{}").get(SLICE) or {}
    return found


def _shape(engine: Row) -> ModelShape | None:
    """Return the model that an engine served, a narrow one's as wide as it is; None: not known."""
    try:
        # What the engine was asked for: a checkpoint in 16 bits that it quantized itself.
        asked = _arguments(engine)
        dtype = FP8 if asked.get("quantization") == FP8 else ""
        config = json.loads(engine["model_config"]) | _cut_from(engine).get(NARROWED, {})
        found = quantized_shape(config, dtype)
        drafts = _drafts(asked)  # n-grams have no weights
        drafted = drafts.tokens if drafts.method == EAGLE else 0
        return replace(found, drafted=drafted, adapters=_adapters(asked))
    except (UsageError, ValueError, TypeError, ArtifactUnreadable):
        return None


def _settings(engine: Row) -> Engine | None:
    """Return the settings of an engine; None where they were not all recorded."""
    limits = known(engine["max_num_batched_tokens"]), known(engine["max_num_seqs"])
    if not engine["capture_sizes"] or None in limits:
        return None
    tokens, requests = (int(limit) for limit in limits if limit)
    sizes, drafts = tuple(json.loads(engine["capture_sizes"])), _drafts(_arguments(engine))
    return Engine(tokens, sizes, requests, drafts.tokens, drafts.accept)


def _drafts(asked: Mapping[str, Any]) -> Drafts:
    """Return what drafted tokens for an engine."""
    config = asked.get("speculative_config") or {}
    length = config.get("synthetic_acceptance_length")
    tokens = int(config.get("num_speculative_tokens") or 0)
    return Drafts(str(config.get("method") or ""), tokens, 1.0 if length is None else float(length))


def _adapters(asked: Mapping[str, Any]) -> Adapters | None:
    """Return the adapters of an engine, of whose matrices those are known that it was asked for."""
    if not asked.get("enable_lora"):
        return None
    modules = tuple(asked.get("lora_target_modules") or ())
    return Adapters(
        int(asked.get("max_loras") or 1), int(asked.get("max_lora_rank") or 16), modules
    )


def read_model(given: str) -> tuple[str, dict[str, Any]]:
    """Return name and configuration of a model: a file, folder, bundled or hub name, YAML lines.

    Raises:
        UsageError: there is no such model, or what is there is no configuration.
    """
    names = sorted(item.name for item in MODELS.iterdir() if item.is_dir())
    if is_hub_name(given):
        return given, read_model(str(cached_config(given, names)))[1]
    path, text, file = Path(given), given, None
    bundled = MODELS / given / CONFIG
    if "\n" not in given and ":" not in given:
        is_bundled = "/" not in given and not path.exists() and bundled.is_file()
        file = bundled if is_bundled else path / CONFIG if path.is_dir() else path
        try:
            text = file.read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise UsageError(
                f"{given} cannot be read as a model: {getattr(error, 'strerror', '') or error}",
                f"give a config.json, its folder, lines of YAML, or one of {', '.join(names)}",
            ) from error
    try:
        config = safe_yaml.parse(text)[1]
    except yaml.YAMLError as error:
        raise UsageError(
            f"{given.splitlines()[0]} is no configuration: {str(error).splitlines()[0]}",
            "give the config.json of the model; JSON and YAML are read",
        ) from error
    if not isinstance(config, dict):
        raise UsageError(
            f"{given.splitlines()[0]} is no configuration of a model",
            f"it needs model_type ({', '.join(FAMILIES)}), hidden_size and so on",
        )
    if "peft_type" in config:
        raise UsageError(
            f"{given.splitlines()[0]} is an adapter ({config['peft_type']}), not a model",
            "predict the model that it is for: --adapters 4 --adapter-rank "
            f"{config.get('r', 16)} says how many of which rank the GPU holds at once",
        )
    recorded = str(config.get("name") or config.get("_name_or_path") or "")
    if file is bundled:
        return given, config
    if file is None:
        return recorded or "model", config
    here = path.resolve()
    if here.name == CONFIG:
        here = here.parent
    return recorded or (here.name if here.is_dir() else here.stem), config
