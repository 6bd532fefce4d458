"""What predicts a model: its sources, what was chosen of each, and what was assumed."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from nsight_prof.orchestrator.predict.host_speeds import (
    HostSpeed,
    Origins,
    Speeds,
    at_speed,
    recorded_speed,
    spread,
)
from nsight_prof.orchestrator.predict.memory import CONTEXT_BYTES, peak_bytes
from nsight_prof.orchestrator.predict.sources import EAGLE, NGRAM, Source
from nsight_prof.parsers import tables
from nsight_prof.parsers.cells import number, records
from nsight_prof.parsers.errors import UsageError
from nsight_prof.parsers.predict.corrections import (
    GPU_PROMPTS,
    HOSTS,
    KERNELS,
    MEASURED_HOSTS,
    RANKS_WIDER,
    SERVED_KINDS,
    SLICE,
    Correction,
    correction,
    event_loop_s,
    host_layer_s,
    points_of,
    power_slowdown,
    rank_wait_s,
    traced_host,
)
from nsight_prof.parsers.predict.costs import (
    Carried,
    Costs,
    Datasheet,
    Gpu,
    Note,
    Power,
    datasheet,
    not_recorded,
    note,
    same_chip,
)
from nsight_prof.parsers.predict.imported import benchmarked
from nsight_prof.parsers.predict.measured import Cases, Exact, exact_costs
from nsight_prof.parsers.predict.operators import FP8, operators
from nsight_prof.parsers.predict.points import Prediction
from nsight_prof.parsers.predict.serving import (
    BATCHED_TOKENS,
    LARGE_GPU_BYTES,
    MAX_NUM_SEQS,
    MAX_NUM_SEQS_SMALL,
    SLOW_HOST,
    UNTRACED,
    UNTRACED_ADAPTED,
    Engine,
    Exposed,
    Goal,
    Host,
    Predictor,
    Seconds,
    SingleStep,
    Workload,
    busy_host,
    captured_sizes,
    fitted_host,
    host_of,
    narrow_host,
    whole_requests,
)
from nsight_prof.parsers.predict.trace import DECODE, PREFILL, Calibrated, Trace, power_of
from nsight_prof.parsers.serving.model_shape import ADAPTED, Adapters, ModelShape

UTILIZATION = 0.9
"""Part of the memory that vLLM takes where nothing is said."""
MTP = "mtp"
"""Drafts by further layers of the model, which are not predicted."""
OPERATIONS = "predict_ops"
"""Target that measures the operators of a model at its own shapes."""


@dataclass(frozen=True)
class Settings:
    """What was asked for, beside the model and the runs.

    `host`: how fast the host is that will serve it; None: not known.
    """

    gpu: str = ""
    tensor_parallel: int = 1
    workloads: tuple[Workload, ...] = ()
    batched_tokens: int = 0
    utilization: float = UTILIZATION
    goal: Goal = Goal()
    price_per_hour: float = math.nan
    max_requests: int = 0
    dtype: str = ""
    kv_cache_dtype: str = "auto"
    drafted: int = 0
    accept: float = 1.0
    adapters: Adapters | None = None
    draft: str = EAGLE
    host: HostSpeed | None = None

    @property
    def head_drafts(self) -> int:
        """Tokens that an EAGLE head drafts; 0: nothing does, or something else."""
        return self.drafted if self.draft == EAGLE else 0

    @property
    def target_arguments(self) -> dict[str, str]:
        """What serving targets are told of a head and adapters (targets/serving/options.py)."""
        found = {}
        if self.head_drafts:
            found = {"speculative_tokens": f"{self.drafted}", "accept": f"{self.accept:g}"}
        if self.adapters:
            found["adapters"] = f"{self.adapters.count}"
            found["adapter_rank"] = f"{self.adapters.rank}"
            if self.adapters.modules != ADAPTED:
                found["adapter_modules"] = f"[{','.join(self.adapters.modules)}]"
        return found

    @property
    def engine_options(self) -> dict[str, str]:
        """Types that vLLM is told, as the checkpoint does not say them, by its own names."""
        found = {"quantization": FP8} if self.dtype == FP8 else {}
        return found | (
            {} if self.kv_cache_dtype == "auto" else {"kv_cache_dtype": self.kv_cache_dtype}
        )


@dataclass
class Plan:
    """A model and the sources that predict it: what was chosen of each, and what was assumed.

    `left_out`: (outputs, inputs) of products that no fit may use. `served`: the run whose settings
    of the engine are taken, where it is no source; what other engines of its model took says
    nothing then either. `corrected`: by what served models took beyond such predictions.
    `drafter`: the model whose drafts this one checks.
    """

    name: str
    shape: ModelShape
    sources: tuple[Source, ...]
    settings: Settings
    notes: list[Note] = field(default_factory=list)
    left_out: frozenset[tuple[int, int]] = frozenset()
    served: Source | None = None
    corrected: bool = True
    drafter: Plan | None = None

    @cached_property
    def shard(self) -> ModelShape:
        """What one GPU holds."""
        return self.shape.shard(self.settings.tensor_parallel)

    @cached_property
    def measured(self) -> Gpu | None:
        """The GPU of the runs; None without a run."""
        names = sorted({source.gpu_name for source in self.sources})
        if len(names) > 1:
            raise UsageError(
                f"the runs are of several GPUs: {', '.join(names)}",
                "give runs of one kind of GPU; --gpu carries them over to another",
            )
        return datasheet(names[0]) if names else None

    @cached_property
    def gpu(self) -> Gpu:
        """The GPU that is predicted for."""
        if self.settings.gpu:
            return datasheet(self.settings.gpu)
        if self.measured is None:
            raise UsageError(
                "neither a run nor a GPU was given",
                "name recorded runs (--on RUN), or a GPU by its datasheet (--gpu h200-sxm)",
            )
        return self.measured

    @cached_property
    def trace(self) -> Trace | None:
        """The recorded engine: of this very model where there is one, else of the same split."""
        found = [source.trace for source in self.sources if source.trace is not None]
        here = self.settings.tensor_parallel
        found.sort(
            key=lambda t: (
                not t.serves(self.shard), t.shape.tensor_parallel != here, -len(t.steps)
            )
        )  # fmt: skip
        return next(iter(found), None)

    @cached_property
    def bench(self) -> pd.DataFrame:
        """Measured cases of all sources; of operators measured again those of the last run."""
        found = [bench for source in self.sources if not (bench := source.table("bench")).empty]
        benches: list[pd.DataFrame] = []
        later: set[str] = set()
        for bench in reversed(found):
            again = bench["target"].eq(OPERATIONS) & bench["params"].isin(later)
            benches.insert(0, bench[~again])
            later.update(bench["params"])
        return pd.concat(benches) if benches else tables.empty("bench")

    @cached_property
    def cases(self) -> Cases:
        """Those of them that tell of any decoder."""
        return Cases.of(self.bench)

    @cached_property
    def foreign(self) -> pd.DataFrame:
        """Operators that others measured (`prof import --aiconfigurator`)."""
        found = [s for s in self.sources if not s.table("imported_operators").empty]
        if len(found) > 1:
            raise UsageError(
                f"several runs hold imported tables: {', '.join(s.name for s in found)}",
                "give the one whose version is next to that of your engine",
            )
        return found[0].table("imported_operators") if found else tables.empty("imported_operators")

    @cached_property
    def costs(self) -> Costs:
        """The costs of the highest tier that the sources allow, on the predicted GPU."""
        if self.measured is None:
            return Datasheet(self.gpu)
        if self.gpu.name == self.measured.name:
            return self.fitted
        self.notes.append(note("other-gpu", gpu=self.gpu.name, measured=self.measured.name))
        return Carried(self.fitted, self.measured, self.gpu)

    @cached_property
    def fitted(self) -> Costs:
        """The costs on the measured GPU; all fits are done here, once."""
        if self.measured is None:
            return Datasheet(self.gpu)
        served = self.trace is not None and self.trace.serves(self.shard)
        kernels = not (self.bench.empty and self.foreign.empty)
        if self.shard.latent and kernels and not served:
            raise UsageError(
                "the time of latent attention (MLA) is not known: no run served this model",
                "record a few layers of it: prof run layer-slice --set target.args.model=MODEL",
            )
        if not served:
            self._refuse_unrecorded()
        alone = replace(self.shard, drafted=0, adapters=None)  # what no benchmark has
        base, notes = benchmarked(self.cases, self.foreign, self.measured, alone, self.left_out)
        self.notes += notes
        base = exact_costs(base, self.bench, self.shard)
        if self.trace is not None:
            base = Calibrated.of_trace(base, self.trace, self.shard)
            if not served:
                self.notes.append(note("other-engine"))
        return base

    def _refuse_unrecorded(self) -> None:
        """Refuse a head or adapters beside runs that have none: kernels do not tell of them."""
        shard, lacking = self.shard, []
        if shard.drafted:
            lacking.append(f"an EAGLE head that drafts {shard.drafted} tokens")
        if shard.adapters:
            lacking.append(f"{shard.adapters.count} LoRA adapters of rank {shard.adapters.rank}")
        if lacking:
            asked = {"model": self.name} | self.settings.target_arguments
            arguments = (f"--set 'target.args.{key}={value}'" for key, value in asked.items())
            raise not_recorded(" and ".join(lacking), " ".join(arguments))

    @cached_property
    def engine(self) -> Engine:
        """The settings of the recorded engine that served this model, or vLLM's own."""
        same = [source for source in self.sources if source.shape == self.shard]
        recorded = [self.served] if self.served else same
        if self.settings.workloads and not any(work.batch for work in self.settings.workloads):
            # A slice is served by the offline engine, whose steps take more than a server's.
            recorded = [source for source in recorded if source.slice is None]
        rows = [row for source in recorded for row in source.engines if row["mode"] != "eager"]
        tokens = self.settings.batched_tokens
        sizes = next((json.loads(r["capture_sizes"]) for r in rows if r["capture_sizes"]), None)
        if not tokens:
            limits = [number(row["max_num_batched_tokens"]) for row in rows]
            tokens = next((int(limit) for limit in limits if limit > 0), 0)
        if not tokens:
            tokens = BATCHED_TOKENS
            self.notes.append(note("step-limit", tokens=tokens))
        drafted = self.shard.drafted or self.settings.drafted
        most_requests = self.settings.max_requests
        if most_requests:
            sizes = captured_sizes(most_requests, drafted)
        else:
            limits = [number(row["max_num_seqs"]) for row in rows]
            usual = MAX_NUM_SEQS if self.memory >= LARGE_GPU_BYTES else MAX_NUM_SEQS_SMALL
            most_requests = next((int(limit) for limit in limits if limit > 0), usual)
        widest = max((work.together for work in self.settings.workloads), default=0)
        if widest > most_requests:
            self.notes.append(note("some-wait", requests=widest, most=most_requests))
        accept = self.served.drafts.accept if self.served else self.settings.accept
        sizes = sizes or captured_sizes(most_requests, drafted)
        if drafted and not self.shard.drafted:  # recorded without drafts
            sizes = whole_requests(sizes, drafted, max(sizes))
        return Engine(tokens, tuple(sizes), most_requests, drafted, accept)

    def choice(self, **changes: Any) -> Plan:
        """Return the plan of another choice, which reads the cases of the runs no second time."""
        chosen = replace(self, notes=[], **changes)
        chosen.bench, chosen.cases, chosen.foreign = self.bench, self.cases, self.foreign
        return chosen

    def prediction(self) -> Prediction:
        """Return what points are predicted by."""
        predictor = self.predictor()
        kv_tokens, asked = self.kv_tokens(predictor.engine), self.settings
        return Prediction(self.name, predictor, kv_tokens, asked.goal, asked.price_per_hour)

    def predictor(self) -> Predictor:
        """Return the predictor, with what the host adds as far as the sources tell."""
        engine = self.engine
        predictor = self._with_layers(self.shard.layers, engine)
        predictor.host = host_of(predictor.host, self._hosts(engine), self.shard.layers)
        narrow = list(self._narrow_steps())
        if narrow:
            predictor.host = narrow_host(predictor.host, narrow, *self._issues(busy=False))
        busy = self._issues(busy=True)
        if any(busy):
            predictor.host = busy_host(predictor.host, *busy)
        if self.corrected:
            predictor.host = self._with_other_hosts(predictor.host, narrow=bool(narrow))
        predictor.host = self._at_speed(self._with_server(predictor.host), narrow=bool(narrow))
        predictor.host_range = self._host_range(predictor.host)
        if self.settings.drafted and not self.shard.drafted:
            predictor = self._with_drafts(predictor)
        if self.corrected:
            found = self._correction(predictor.host)
            # Measured without a profiler: what others took beyond a trace tells nothing of it.
            others = not (math.isnan(predictor.host.others_s) or engine.drafted)
            if found and (narrow or others):
                found = replace(found, host=1.0)
            predictor = replace(predictor, correction=found)
            predictor.host = self._with_ranks(predictor.host)
            if self.trace is not None and self.trace.is_slice and self.trace.serves(self.shard):
                unseen = self.name if self.left_out else ""
                machine = MEASURED_HOSTS if narrow else HOSTS
                predictor.hosts = points_of(machine, unseen, self._experiments)
                if self.shard.tensor_parallel > 1:
                    predictor.hosts = {kind: found.wider(RANKS_WIDER)
                                       for kind, found in predictor.hosts.items()}  # fmt: skip
        self._note_unknown(predictor.host)
        return predictor

    def _note_unknown(self, host: Host) -> None:
        """Say what of the host no source tells."""
        if math.isnan(host.overhead_s):
            self.notes.append(note("gpu-alone"))
        elif math.isnan(host.eager_s) and math.isnan(host.issue_s):
            self.notes.append(note("short-prompts"))
        if self.server is None and not all(work.batch for work in self.settings.workloads):
            self.notes.append(note("no-server"))

    def _at_speed(self, host: Host, *, narrow: bool) -> Host:
        """Return the host at the speed of the one that will serve, as far as runs tell theirs."""
        traced = [s for s in self.sources if self.trace is not None and s.trace is self.trace]
        engines = [s for s in self.sources if any(s.host_steps(self.shard))] if narrow else [
            s for s in self.sources if s.shape == self.shard and s.slice is not None
        ] or traced  # fmt: skip
        server = self.server
        origins = Origins(*map(_speeds, (engines, [server] if server else [], traced)))
        found, notes = at_speed(host, self.settings.host, origins)
        self.notes += notes
        return found

    def _host_range(self, host: Host) -> tuple[float, float]:
        """Return bounds of a host that is not known: by its busy engine, or by recorded ones."""
        if host.issue_speeds:
            return host.issue_speeds[0], host.issue_speeds[1]
        known = spread() if host.is_known and self.settings.host is None else None
        if known is None:
            return 1.0, 1.0
        low, high = (f"{100 * (end - 1):+.0f} %" for end in known)
        self.notes.append(note("host-speed-range", low=low, high=high))
        return known

    def _with_drafts(self, predictor: Predictor) -> Predictor:
        """Return the same with drafts of another model, or of n-grams.

        Raises:
            UsageError: how long the host needs for a step is not known.
        """
        host = predictor.host
        if self.settings.draft == NGRAM and (waits := self._lookups()):
            return replace(predictor, exposed=Exposed(waits))
        drafter = self.drafter.predictor() if self.drafter else None
        passes = drafter.host.in_graphs_s if drafter else 0.0
        if math.isnan(host.decode_s + passes):
            name = self.name if math.isnan(host.decode_s) else self.settings.draft
            raise not_recorded(
                f"the host's part of a step of {name}", f"--set target.args.model={name}"
            )
        if drafter is None:  # it looks n-grams up between steps, so that the GPU waits for all
            self.notes.append(note("ngram"))
            largest = predictor.engine.max_requests
            each_s = 0.0 if math.isnan(host.each_s) else host.each_s
            ends = {size: host.decode_s + (size - 1) * each_s for size in (1, largest)}
            waits = {size: Seconds(of, 0.0, SLOW_HOST * of) for size, of in ends.items()}
            return replace(predictor, exposed=Exposed(waits))
        self.notes.append(note("draft-passes", model=self.settings.draft))
        count = self.settings.drafted
        first_s = max(0.0, drafter.host.beyond_graphs_s)
        host = replace(
            host,
            decode_s=host.decode_s + count * passes,
            decode_slow=SLOW_HOST,
            issue_s=host.beyond_graphs_s + first_s + (count - 1) * passes,
            issue_graph_s=host.in_graphs_s + count * passes,
        )
        return replace(predictor, host=host, drafter=drafter)

    def _lookups(self) -> dict[int, Seconds]:
        """Return what the GPU waits in each step of a slice that looks n-grams up, by requests.

        That is what a step took beside its kernels and gaps, the median over contexts. The host
        has two speeds, and which of both the slice had is not known.

        Raises:
            UsageError: a slice that looks n-grams up drafted another number of tokens.
        """
        found: dict[int, list[float]] = defaultdict(list)
        drafted, others = self.settings.drafted, set()
        for source in self.sources:
            for layers, engine, work, row in source.lookup_steps(self.shard):
                if engine.drafted != drafted:
                    others.add(engine.drafted)
                    continue
                step = self.as_measured(layers, engine, sliced=True).seconds(work.steps()[1])
                found[work.batch].append(max(0.0, number(row["decode_step_s"]) - step.value))
        if others and not found:
            raise not_recorded(
                f"n-grams that draft {drafted} tokens, not {max(others)}",
                f"--set target.args.model={self.name} --set target.args.draft=ngram --set "
                f"target.args.speculative_tokens={drafted} --set target.args.accept="
                f"{self.settings.accept:g}",
            )
        waits = {size: float(np.nanmedian(times)) for size, times in found.items()}
        return {size: Seconds(seconds, seconds / SLOW_HOST, SLOW_HOST * seconds)
                for size, seconds in waits.items() if math.isfinite(seconds)}  # fmt: skip

    def _hosts(self, engine: Engine) -> dict[int, Host]:
        """Return what the host adds in each measured engine of this model, by its layers."""
        hosts: dict[int, Host] = {}
        shortest = 0.0  # of the steps of engines of fewer layers: the host needs no longer for one
        engines = sorted(self.single_steps(engine).items(), key=lambda item: item[0][0])
        for (layers, of_points, sliced), points in engines:
            here = self.as_measured(layers, of_points, sliced=sliced)
            hosts[layers] = fitted_host(here, points, shortest)
            steps = [point.decode_s for point in points if point.decode_s > 0]
            shortest = min([*steps, shortest or math.inf])
        return hosts

    def _narrow_steps(self) -> Iterator[tuple[Engine, SingleStep]]:
        """Yield what engines of all layers took that are so narrow that the GPU waits."""
        for source in self.sources:
            for engine, work, row in source.host_steps(self.shard):
                times = number(row["ttft_p50_s"]), number(row["decode_step_s"])
                yield engine, SingleStep(work, *times)

    def _issues(self, *, busy: bool) -> tuple[list[float], list[float]]:
        """Return in how long such engines issued single prompts within CUDA graphs, and beyond."""
        found = [issue for source in self.sources for issue in source.issues(self.shard, busy=busy)]
        within, beyond = ([s for graphs, s in found if graphs == of] for of in (True, False))
        return within, beyond

    def _with_other_hosts(self, host: Host, *, narrow: bool) -> Host:
        """Return the host of a model that a slice tells, as engines of other models needed it.

        The slice's own was recorded on another machine than the one that will serve it, under nsys.
        """
        shard, trace = self.shard, self.trace
        if trace is None or not (trace.is_slice and trace.serves(shard)):
            return host
        unseen = self.name if self.left_out else ""
        if shard.experts or shard.latent or shard.extended or self.settings.head_drafts:
            found = traced_host(unseen)  # their layers are launched otherwise
            if found is None or narrow or math.isnan(host.issue_s):
                return host
            beyond, within = found
            self.notes.append(note("traced-hosts"))
            return replace(
                host,
                others_s=beyond * host.issue_s,
                others_graph_s=within * host.issue_graph_s,
            )
        layer = host_layer_s(self.gpu.name if shard.tensor_parallel == 1 else "", unseen)
        measured = not (math.isnan(host.eager_s) and math.isnan(host.graph_s))
        if layer is None or (measured and not narrow):
            return host
        self.notes.append(note("half-way" if narrow else "other-hosts"))
        return host.with_others(*(shard.layers * seconds for seconds in layer))

    def _with_ranks(self, host: Host) -> Host:
        """Return the host of several GPUs whose layers a slice on one tells: ranks wait."""
        if self.trace is None or not self.trace.is_slice or self.shard.tensor_parallel == 1:
            return host
        unseen = self.name if self.left_out else ""
        recorded = (rank_wait_s(name, unseen) for name in same_chip(self.gpu))
        if not (seconds := next(filter(None, recorded), 0.0)):
            return host
        self.notes.append(note("rank-wait", time=f"{1e3 * seconds:.2f} ms"))
        return replace(host, gap_decode_s=host.gap_decode_s + seconds)

    def _with_server(self, host: Host) -> Host:
        """Return the host with the event loop of a recorded server, of this model where one is.

        What a request takes beside the engine is the same for all models; what the offline engine
        took of it is known of this one. Without such a server it is that of others.
        """
        source, found = self.server, None
        if source is not None:
            found = (*source.around_engine(), source.token_s())
            if source.shape != self.shard:
                self.notes.append(note("event-loop", run=source.name, model=source.model))
        elif self.corrected:
            found = event_loop_s(self.name if self.left_out else "")
        if found is None:
            return host
        alone_s, request_s, token_s = found
        engine_s = 0.0 if math.isnan(host.overhead_s) else host.overhead_s
        front_s = max(0.0, alone_s - engine_s)
        return replace(host, frontend_s=front_s, request_s=request_s, token_s=token_s)

    @cached_property
    def server(self) -> Source | None:
        """Return the recorded server whose event loop counts: one of this model where there is."""
        found = [s for s in self.sources if math.isfinite(s.around_engine()[0])]
        return min(found, key=lambda source: source.shape != self.shard, default=None)

    @property
    def _experiments(self) -> tuple[str, ...]:
        """How the kinds of points begin that are predicted; an empty word where none were given."""
        found = {f"{work.experiment} " for work in self.settings.workloads}
        return tuple(sorted(found)) or ("",)

    def _correction(self, host: Host) -> Correction | None:
        """Return how steps of served models lie from such predictions: dense ones on one GPU."""
        shard, trace = self.shard, self.trace
        basis = KERNELS if trace is None else SLICE if trace.is_slice else ""
        known = trace.serves(shard) if trace else not self.bench.empty and self.foreign.empty
        if trace is None and isinstance(self.fitted, Exact) and self.fitted.has_products:
            return None  # served models tell nothing of predictions from such measurements yet
        # Kernels of one type or of one GPU tell nothing of others; a slice has the model's own.
        extended = shard.extended or self.settings.drafted > 0
        differs = shard.quantized is not None or shard.tensor_parallel > 1 or extended
        if shard.experts or (differs and basis != SLICE):
            return None
        if not (basis and known and self.gpu == self.measured):
            return None
        unseen = self.name if self.left_out else ""
        known_host = math.isfinite(host.overhead_s)
        for name in same_chip(self.gpu):
            found = correction(name, basis, unseen, known_host, self._experiments)
            if found is not None:
                return self._moved(name, found)
        return None

    def _moved(self, gpu: str, found: Correction) -> Correction:
        """Return what of a correction holds for this model, recorded on `gpu`."""
        if gpu != self.gpu.name:
            self.notes.append(note("same-chip", gpu=gpu))
        if self.shard.quantized:
            self.notes.append(note("moved-type", dtype=self.shard.quantized.dtype))
            return found.of_decode()
        if self.shard.extended or self.settings.drafted:
            added = [self.settings.draft] if self.settings.drafted else []
            added += ["LoRA"] if self.shard.adapters else []
            self.notes.append(note("moved-extended", dtype=", ".join(added)))
            if self.settings.draft == NGRAM:  # their prompts came sooner than others'
                found = replace(found, long=found.of_decode().long)
            return found.unbounded()
        if self.shard.tensor_parallel > 1:
            self.notes.append(note("moved-ranks"))
            return found.unbounded(GPU_PROMPTS, *SERVED_KINDS)
        self.notes.append(note("moved", models=found.models))
        return found

    def _with_layers(self, layers: int, engine: Engine) -> Predictor:
        """Return the predictor of so many layers of the model, before any host is known."""
        shard = self.shard.with_layers(layers)
        return Predictor(shard, self.costs, self.gpu, engine, self._gaps(shard), self.power)

    @cached_property
    def power(self) -> Power:
        """How the power limit slows the GPU: by a trace, or of dense models by slices of others.

        One slice shows one board of many.
        """
        found, shard = self.traced_power, self.shard
        dense = not (shard.quantized or shard.experts or shard.latent or shard.extended)
        if self.trace is None or not self.trace.is_slice or found == Power() or not dense:
            return found
        slowdown = power_slowdown(self.gpu.name, self.name if self.left_out else "")
        return found if slowdown is None else found._replace(slowdown=slowdown)

    @cached_property
    def traced_power(self) -> Power:
        """How the power limit slows the recorded engine's GPU."""
        return Power() if self.trace is None else power_of(self.trace, self.fitted)

    def as_measured(self, layers: int, engine: Engine, *, sliced: bool) -> Predictor:
        """Return the same on the GPU of the runs, whose points tell what the host adds.

        The engine of a slice exchanges nothing with other ranks.
        """
        here = self._with_layers(layers, engine)
        shape = replace(here.shape, tensor_parallel=1) if sliced else here.shape
        return replace(here, shape=shape, costs=self.fitted, gpu=self.measured or self.gpu)

    def single_steps(self, engine: Engine) -> dict[tuple[int, Engine, bool], list[SingleStep]]:
        """Return measured points of this model whose prompts fit one step.

        By layers, engine, and whether it was a slice's: those are by its own graphs and limit,
        whatever engine is predicted.
        """
        found: dict[tuple[int, Engine, bool], list[SingleStep]] = defaultdict(list)
        for source in self.sources:
            judged = engine if source.slice is None else source.engine or engine
            for work, row in source.points() if source.shape == self.shard else ():
                if 0 < work.together * work.prompt <= judged.batched_tokens:
                    times = number(row["ttft_p50_s"]), number(row["decode_step_s"])
                    key = source.layers(row["source"]), judged, source.slice is not None
                    found[key].append(SingleStep(work, *times))
        return found

    def _gaps(self, shard: ModelShape) -> Host:
        trace = self.trace
        if trace is not None:
            host = max(item.host_s for item in trace.steps if item.kind == DECODE)
            known = trace.is_slice or trace.serves(shard)
            issued = [trace.issue_s(shard.layers, in_graphs=graphs) if known else math.nan
                      for graphs in (False, True)]  # fmt: skip
            return Host(
                decode_s=math.nan if trace.is_slice else host * shard.layers / trace.shape.layers,
                gap_decode_s=trace.gap(DECODE, shard.layers),
                gap_prefill_s=trace.gap(PREFILL, shard.layers),
                overhead_s=trace.reply_s,
                issue_s=issued[0],
                issue_graph_s=issued[1],
                lead_s=trace.lead_s,
                untraced=UNTRACED_ADAPTED if shard.adapters else UNTRACED,
            )
        if isinstance(self.fitted, Exact) and self.fitted.has_products:
            return Host(gap_decode_s=0.0, gap_prefill_s=0.0)  # in the times of the operators
        found = [source.table("measured_roofs") for source in self.sources]
        roofs = [row for table in found for row in records(table)]
        launch = next((r["value"] for r in roofs if r["kind"] == "launch-graph"), None)
        if launch is None:
            self.notes.append(note("no-gaps"))
            return Host()
        calls = sum(item.calls for item in operators(shard, Workload(1, 2, 1).steps()[1]))
        gap = float(launch) * calls
        return Host(gap_decode_s=gap, gap_prefill_s=gap)

    def kv_tokens(self, engine: Engine) -> int:
        """Return the tokens that the KV cache of each GPU holds.

        Beside the weights a recorded engine tells what else takes memory, but for what its largest
        step held.
        """
        recorded = [self._recorded_rest(source) for source in self.sources]
        rest = next((value for value in recorded if value is not None), CONTEXT_BYTES)
        rest += peak_bytes(self.shard, engine)
        free_bytes = self.memory * self.settings.utilization - self.weights - rest
        return max(0, int(free_bytes / self.kv_bytes_per_token))

    @property
    def weights(self) -> float:
        """Bytes of the weights on each GPU, with those of a model that drafts."""
        return self.shard.parameter_bytes() + (self.drafter.weights if self.drafter else 0.0)

    @property
    def kv_bytes_per_token(self) -> float:
        """Bytes of the KV cache that one token takes, with those of a model that drafts."""
        more = self.drafter.kv_bytes_per_token if self.drafter else 0.0
        return self.shard.kv_bytes_per_token() + more

    @property
    def memory(self) -> float:
        """Bytes of a GPU's memory as the driver says, by the part that it has of the datasheet's.

        Of a GPU without a run that part is taken to be as on the measured one.
        """
        recorded = [number(source.gpu["memory_bytes"]) for source in self.sources]
        here = next((value for value in recorded if value > 0), None)
        if here is None or self.measured is None:
            return self.gpu.memory_bytes
        return here * (self.gpu.memory_bytes / self.measured.memory_bytes)

    def _recorded_rest(self, source: Source) -> float | None:
        """Return the bytes of a recorded engine beside weights, KV cache and largest step."""
        if source.shape != self.shard:
            return None
        for row in source.engines:
            asked = json.loads(row["args"] or "{}")
            if row["mode"] != "eager" and not asked.get("kv_cache_memory_bytes"):
                fraction = number(row["gpu_memory_utilization"]), number(row["kv_bytes"])
                served = self.shard.with_layers(source.layers(row["source"]))
                used = served.parameter_bytes() + fraction[1]
                rest = number(source.gpu["memory_bytes"]) * fraction[0] - used
                if math.isfinite(rest) and source.engine is not None:
                    # A slice of one rank samples from its own part of the vocabulary.
                    here = replace(served, tensor_parallel=1) if source.slice else served
                    return rest - peak_bytes(here, source.engine)
        return None


def _speeds(sources: list[Source]) -> Speeds:
    return {s.name: speed_of(s) for s in sources}


def speed_of(source: Source) -> HostSpeed | None:
    """Return how fast the host of a run was; None: nobody timed it."""
    return recorded_speed(source.table("host_speed"), source.table("host_loops"), source.name)
