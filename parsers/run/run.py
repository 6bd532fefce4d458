"""A run directory as one object: the manifest, the selection and every tidy table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, wraps
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd

from nsight_prof.parsers import tables
from nsight_prof.parsers.run.directory import Manifest, RunDir, read_manifest
from nsight_prof.parsers.run.selection import Selection, read_selection
from nsight_prof.parsers.run.sentences import Sentences, made_of
from nsight_prof.parsers.run.sentences_file import read_sentences

T = TypeVar("T")

LAUNCH_TIMES = (
    *("kernel_id", "start_ns", "duration_ns", "device", "pid", "context", "stream"),
    *("stage", "nvtx_path", "memory_before", "correlation"),
)


def times_of(launches: pd.DataFrame) -> pd.DataFrame:
    """Return the columns of `Run.launch_times`, texts as categories, of a table `launches`."""
    texts = ("kernel_id", "stage", "nvtx_path")
    return launches[[*LAUNCH_TIMES]].astype(dict.fromkeys(texts, "category"))


@dataclass(frozen=True)
class Run:
    """A run to explain; each table is read when first asked for and is empty where absent.

    Tables are pandas DataFrames with the columns of parsers/tables.yaml (docs/tables.md). What is
    unknown is NaN or NA, never 0; `gaps` says why.
    """

    path: Path
    manifest: Manifest

    @property
    def is_bench(self) -> bool:
        """Whether the run measures cases instead of profiling a program."""
        return bool(self.manifest.recipe.get("bench")) or self.manifest.step("bench") is not None

    @property
    def is_prediction(self) -> bool:
        """Whether the run predicts a model instead of measuring anything."""
        return self.manifest.step("predict") is not None

    @property
    def is_imported_operators(self) -> bool:
        """Whether the run holds operators that others measured, and nothing else."""
        return self.manifest.step("imported-operators") is not None

    @property
    def directory(self) -> RunDir:
        """Names of the files inside the run."""
        return RunDir(self.path)

    @cached_property
    def variants(self) -> dict[str, Run]:
        """Runs of a sweep by name, each opened as this one; empty for any other run."""
        paths = {name: self.directory.variant(name) for name in self.manifest.variants}
        return {name: Run(found.path, read_manifest(found)) for name, found in paths.items()}

    @cached_property
    def selection(self) -> Selection | None:
        """What was chosen for the counters; None for a run without that step."""
        path = self.directory.artifact("select", "selection.yaml")
        return read_selection(path) if path else None

    @cached_property
    def sentences(self) -> Sentences:
        """What sentences of the manifest and the tables are made of, by their English words."""
        chosen = self.selection.warnings() if self.selection else ()
        return made_of(chosen) | self.manifest.sentences | read_sentences(self.directory.tables)

    @cached_property
    def gpus(self) -> pd.DataFrame:
        """Table `gpus`."""
        return self._read("gpus")

    @cached_property
    def kernels(self) -> pd.DataFrame:
        """Table `kernels`, most GPU time first."""
        return self._read("kernels")

    @cached_property
    def launches(self) -> pd.DataFrame:
        """Table `launches`; large for long traces, of which `launch_times` is a part."""
        return self._read("launches")

    @cached_property
    def launch_times(self) -> pd.DataFrame:
        """Kernel, time, queue, stage and call of all launches: columns of table `launches`.

        Those of the table as it is here where it was read, or replaced (stages by another name).
        """
        if "launches" in vars(self):
            return times_of(self.launches)
        return tables.read(self.directory.tables, "launches", LAUNCH_TIMES)

    @cached_property
    def stages(self) -> pd.DataFrame:
        """Table `stages`."""
        return self._read("stages")

    @cached_property
    def stage_kernels(self) -> pd.DataFrame:
        """Table `stage_kernels`."""
        return self._read("stage_kernels")

    @cached_property
    def memory_operations(self) -> pd.DataFrame:
        """Table `memory_operations`."""
        return self._read("memory_operations")

    @cached_property
    def api_calls(self) -> pd.DataFrame:
        """Table `api_calls`."""
        return self._read("api_calls")

    @cached_property
    def engine_steps(self) -> pd.DataFrame:
        """Table `engine_steps`: steps of an inference engine on each GPU."""
        return self._read("engine_steps")

    @cached_property
    def engine_gaps(self) -> pd.DataFrame:
        """Table `engine_gaps`: what the host did while the GPU was idle."""
        return self._read("engine_gaps")

    @cached_property
    def idle_gaps(self) -> pd.DataFrame:
        """Table `idle_gaps`: what the host did while the GPU was idle, by stage and cause."""
        return self._read("idle_gaps")

    @cached_property
    def host_ranges(self) -> pd.DataFrame:
        """Table `host_ranges`: NVTX ranges of the busiest threads, as a timeline shows them."""
        return self._read("host_ranges")

    @cached_property
    def host_lines(self) -> pd.DataFrame:
        """Table `host_lines`: lines of Python in which the host was."""
        return self._read("host_lines")

    @cached_property
    def thread_lines(self) -> pd.DataFrame:
        """Table `thread_lines`: lines of Python threads that make no CUDA call."""
        return self._read("thread_lines")

    @cached_property
    def fused_lines(self) -> pd.DataFrame:
        """Table `fused_lines`: lines that torch.compile fused into each kernel."""
        return self._read("fused_lines")

    @cached_property
    def launch_lines(self) -> pd.DataFrame:
        """Table `launch_lines`: lines of Python that launched each kernel."""
        return self._read("launch_lines")

    @cached_property
    def timed_lines(self) -> pd.DataFrame:
        """Table `timed_lines`: the time of each line of Python."""
        return self._read("timed_lines")

    @cached_property
    def timed_calls(self) -> pd.DataFrame:
        """Table `timed_calls`: the line of Python of each CUDA call."""
        return self._read("timed_calls")

    @cached_property
    def line_timers(self) -> pd.DataFrame:
        """Table `line_timers`: what timing lines of Python cost each process."""
        return self._read("line_timers")

    @cached_property
    def recompilations(self) -> pd.DataFrame:
        """Table `recompilations`: lines for which torch.compile compiled again."""
        return self._read("recompilations")

    @cached_property
    def devices(self) -> pd.DataFrame:
        """Table `devices`: which GPU each device of each process is."""
        return self._read("devices")

    @cached_property
    def gpu_stages(self) -> pd.DataFrame:
        """Table `gpu_stages`: time of each stage and of the whole capture on each GPU."""
        return self._read("gpu_stages")

    @cached_property
    def gpu_idle_gaps(self) -> pd.DataFrame:
        """Table `gpu_idle_gaps`: what the host did while a GPU was idle, for each GPU."""
        return self._read("gpu_idle_gaps")

    @cached_property
    def gpu_samples(self) -> pd.DataFrame:
        """Table `gpu_samples`: sampled use of each GPU by kernel and by stage."""
        return self._read("gpu_samples")

    @cached_property
    def collectives(self) -> pd.DataFrame:
        """Table `collectives`: calls of NCCL on each rank with bytes and bandwidth."""
        return self._read("collectives")

    @cached_property
    def modules(self) -> pd.DataFrame:
        """Table `modules`: GPU time of the model's modules."""
        return self._read("modules")

    @cached_property
    def module_kernels(self) -> pd.DataFrame:
        """Table `module_kernels`: kernels of each module."""
        return self._read("module_kernels")

    @cached_property
    def metrics(self) -> pd.DataFrame:
        """Table `metrics`: the counters as the tool gave them."""
        return self._read("metrics")

    @cached_property
    def joins(self) -> pd.DataFrame:
        """Table `joins`."""
        return self._read("joins")

    @cached_property
    def ncu_rules(self) -> pd.DataFrame:
        """Table `ncu_rules`: what ncu's own rules said of each profiled launch."""
        return self._read("ncu_rules")

    @cached_property
    def source_lines(self) -> pd.DataFrame:
        """Table `source_lines`: what each line of a kernel's source did."""
        return self._read("source_lines")

    @cached_property
    def source_instructions(self) -> pd.DataFrame:
        """Table `source_instructions`: the same for each instruction."""
        return self._read("source_instructions")

    @cached_property
    def counters(self) -> pd.DataFrame:
        """Table `counters`."""
        return self._read("counters")

    @cached_property
    def stalls(self) -> pd.DataFrame:
        """Table `stalls`."""
        return self._read("stalls")

    @cached_property
    def roofs(self) -> pd.DataFrame:
        """Table `roofs`."""
        return self._read("roofs")

    @cached_property
    def bench(self) -> pd.DataFrame:
        """Table `bench`: the measured cases of a benchmark run."""
        return self._read("bench")

    @cached_property
    def bench_runs(self) -> pd.DataFrame:
        """Table `bench_runs`: each case in each process."""
        return self._read("bench_runs")

    @cached_property
    def measured_roofs(self) -> pd.DataFrame:
        """Table `measured_roofs`: roofs that this run measured or took from an earlier one."""
        return self._read("measured_roofs")

    @cached_property
    def ridge_points(self) -> pd.DataFrame:
        """Table `ridge_points`: where each pipe meets each memory level."""
        return self._read("ridge_points")

    @cached_property
    def serving_points(self) -> pd.DataFrame:
        """Table `serving_points`: one row per serving point: rates, latencies, telemetry."""
        return self._read("serving_points")

    @cached_property
    def requests(self) -> pd.DataFrame:
        """Table `requests`: each request of a serving target."""
        return self._read("requests")

    @cached_property
    def host_steps(self) -> pd.DataFrame:
        """Table `host_steps`: each engine step as the host timed it."""
        return self._read("host_steps")

    @cached_property
    def host_loops(self) -> pd.DataFrame:
        """Table `host_loops`: the loop of table `host_speed` by an engine, before each repeat."""
        return self._read("host_loops")

    @cached_property
    def phases(self) -> pd.DataFrame:
        """Table `phases`: what a serving target did from when to when."""
        return self._read("phases")

    @cached_property
    def telemetry(self) -> pd.DataFrame:
        """Table `telemetry`: samples of NVML."""
        return self._read("telemetry")

    @cached_property
    def host_speed(self) -> pd.DataFrame:
        """Table `host_speed`: a fixed loop of Python beside each step."""
        return self._read("host_speed")

    @cached_property
    def engine_stats(self) -> pd.DataFrame:
        """Table `engine_stats`: the engine's own gauges over time."""
        return self._read("engine_stats")

    @cached_property
    def engines(self) -> pd.DataFrame:
        """Table `engines`: each engine that was started."""
        return self._read("engines")

    @cached_property
    def predictions(self) -> pd.DataFrame:
        """Table `predictions`: what a model answered to each request."""
        return self._read("predictions")

    @cached_property
    def stage_work(self) -> pd.DataFrame:
        """Table `stage_work`: FLOPs and bytes of stages, as the target counted them."""
        return self._read("stage_work")

    @cached_property
    def module_work(self) -> pd.DataFrame:
        """Table `module_work`: parameters, FLOPs and activations of modules, as counted."""
        return self._read("module_work")

    @cached_property
    def operator_work(self) -> pd.DataFrame:
        """Table `operator_work`: FLOPs of each operator in a stage, as counted."""
        return self._read("operator_work")

    @cached_property
    def vllm_totals(self) -> pd.DataFrame:
        """Table `vllm_totals`: growth of vLLM's own counters."""
        return self._read("vllm_totals")

    @cached_property
    def operators(self) -> pd.DataFrame:
        """Table `operators`: what torch operators called and what the GPU did for them."""
        return self._read("operators")

    @cached_property
    def operator_values(self) -> pd.DataFrame:
        """Table `operator_values`: how often operators computed the same, and who read it."""
        return self._read("operator_values")

    @cached_property
    def value_profiles(self) -> pd.DataFrame:
        """Table `value_profiles`: what was recorded of the values of each process."""
        return self._read("value_profiles")

    @cached_property
    def cublas_calls(self) -> pd.DataFrame:
        """Table `cublas_calls`: what cuBLASLt computed, and the algorithm that it chose."""
        return self._read("cublas_calls")

    @cached_property
    def stage_memory(self) -> pd.DataFrame:
        """Table `stage_memory`: what torch's allocator gave out in each stage."""
        return self._read("stage_memory")

    @cached_property
    def gemms(self) -> pd.DataFrame:
        """Table `gemms`: matrix products with the kernels of the trace that computed them."""
        return self._read("gemms")

    @cached_property
    def counter_files(self) -> pd.DataFrame:
        """Table `counter_files`: what each file of ncu adds, where several were imported."""
        return self._read("counter_files")

    @cached_property
    def ranks(self) -> pd.DataFrame:
        """Table `ranks` of a job: a row for each GPU of each rank."""
        return self._read("ranks")

    @cached_property
    def rank_kernels(self) -> pd.DataFrame:
        """Table `rank_kernels` of a job: each kernel over the ranks."""
        return self._read("rank_kernels")

    @cached_property
    def rank_times(self) -> pd.DataFrame:
        """Table `rank_times` of a job: where the time of each GPU goes."""
        return self._read("rank_times")

    @cached_property
    def rank_collectives(self) -> pd.DataFrame:
        """Table `rank_collectives` of a job: each collective over the ranks."""
        return self._read("rank_collectives")

    @property
    def collective_calls(self) -> pd.DataFrame:
        """Table `collective_calls` of a job: each call of its collectives over the ranks."""
        return self._read("collective_calls")

    @property
    def collective_waits(self) -> pd.DataFrame:
        """Table `collective_waits` of a job: how long each GPU waited in a call."""
        return self._read("collective_waits")

    @cached_property
    def rank_counters(self) -> pd.DataFrame:
        """Table `rank_counters` of a job: counters and samples of kernels by rank."""
        return self._read("rank_counters")

    @cached_property
    def rank_stages(self) -> pd.DataFrame:
        """Table `rank_stages` of a job: each stage on each rank."""
        return self._read("rank_stages")

    @property
    def rank_bins(self) -> pd.DataFrame:
        """Table `rank_bins` of a job: what each GPU does over time."""
        return self._read("rank_bins")

    @property
    def rank_steps(self) -> pd.DataFrame:
        """Table `rank_steps` of a job: each step of each GPU."""
        return self._read("rank_steps")

    @cached_property
    def stage_instances(self) -> pd.DataFrame:
        """Table `stage_instances`: each instance of a stage on each GPU."""
        return self._read("stage_instances")

    @cached_property
    def comm_roofs(self) -> pd.DataFrame:
        """Table `comm_roofs`: measured bandwidths of collectives between GPUs."""
        return self._read("comm_roofs")

    @cached_property
    def predicted_points(self) -> pd.DataFrame:
        """Table `predicted_points`: points of serving that were predicted."""
        return self._read("predicted_points")

    @cached_property
    def predicted_steps(self) -> pd.DataFrame:
        """Table `predicted_steps`: their engine steps."""
        return self._read("predicted_steps")

    @cached_property
    def predicted_operators(self) -> pd.DataFrame:
        """Table `predicted_operators`: the operators of these steps."""
        return self._read("predicted_operators")

    @cached_property
    def predicted_networks(self) -> pd.DataFrame:
        """Table `predicted_networks`: passes of whole networks that were predicted."""
        return self._read("predicted_networks")

    @cached_property
    def predicted_changes(self) -> pd.DataFrame:
        """Table `predicted_changes`: the same points with other choices."""
        return self._read("predicted_changes")

    @cached_property
    def predicted_needs(self) -> pd.DataFrame:
        """Table `predicted_needs`: measurements that would narrow the intervals."""
        return self._read("predicted_needs")

    @cached_property
    def predicted_notes(self) -> pd.DataFrame:
        """Table `predicted_notes`: what a prediction assumes or does not know."""
        return self._read("predicted_notes")

    @cached_property
    def prediction_errors(self) -> pd.DataFrame:
        """Table `prediction_errors`: predictions held against a recorded run."""
        return self._read("prediction_errors")

    @cached_property
    def imported_operators(self) -> pd.DataFrame:
        """Table `imported_operators`: operators that a foreign benchmark measured."""
        return self._read("imported_operators")

    @cached_property
    def gaps(self) -> pd.DataFrame:
        """Table `gaps`: what is not available, and why."""
        return self._read("gaps")

    def _read(self, table: str) -> pd.DataFrame:
        return tables.read(self.directory.tables, table)


def once(analysis: Callable[[Run], T]) -> Callable[[Run], T]:
    """Let an analysis compute its result once per run: many views ask for the same one.

    The result lives as long as the run, and nobody may change it.
    """

    @wraps(analysis)
    def result(run: Run) -> T:
        results: dict[Any, T] = vars(run).setdefault("results", {})  # beside the cached tables
        if analysis not in results:
            results[analysis] = analysis(run)
        return results[analysis]

    return result
