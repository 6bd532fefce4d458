"""The trace of one program: its kernels, launches, stages, memory operations and API calls."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from nsight_prof.parsers import tables
from nsight_prof.parsers.names.kernel_names import classify
from nsight_prof.parsers.names.ranges import Stages
from nsight_prof.parsers.nsys.engine.engine import Engine, read_engine
from nsight_prof.parsers.nsys.engine.modules import module_tables
from nsight_prof.parsers.nsys.freed import give_back
from nsight_prof.parsers.nsys.host_ranges import host_ranges
from nsight_prof.parsers.nsys.rows.calls import ApiCalls, place_calls, read_api_calls
from nsight_prof.parsers.nsys.rows.devices import Devices, read_devices
from nsight_prof.parsers.nsys.rows.gpu_metrics import gpu_samples
from nsight_prof.parsers.nsys.rows.gpus import read_gpus
from nsight_prof.parsers.nsys.rows.kernels import KernelRows, read_kernels
from nsight_prof.parsers.nsys.rows.nvtx import MARK, NvtxEvents, read_nvtx
from nsight_prof.parsers.nsys.rows.python_samples import (
    NO_SAMPLES,
    PythonSamples,
    read_python_samples,
)
from nsight_prof.parsers.nsys.rows.summaries import api_calls, memory_operations
from nsight_prof.parsers.nsys.rows.threads import listed_threads, process_names
from nsight_prof.parsers.nsys.rows.timeline import read_operations
from nsight_prof.parsers.nsys.sqlite import schema
from nsight_prof.parsers.nsys.sqlite.codes import Threads, statistics
from nsight_prof.parsers.nsys.sqlite.database import HINT, WHAT, Database
from nsight_prof.parsers.nsys.sqlite.identity import Identity, read_identity
from nsight_prof.parsers.nsys.stages.gpu_work import by_gpu, gpu_stages
from nsight_prof.parsers.nsys.stages.host_lines import (
    host_lines,
    launch_lines,
    thread_lines,
    why_no_lines,
)
from nsight_prof.parsers.nsys.stages.idle_gaps import idle_gaps
from nsight_prof.parsers.nsys.stages.instances import stage_instances
from nsight_prof.parsers.nsys.stages.launches import launch_frames, write_launches
from nsight_prof.parsers.nsys.stages.native_stacks import native_addresses, read_native_lines
from nsight_prof.parsers.nsys.stages.nccl import collectives, why_none
from nsight_prof.parsers.nsys.stages.stages import attribute_calls
from nsight_prof.parsers.nsys.stages.timed_calls import timed_tables
from nsight_prof.parsers.nsys.stages.timed_lines import read_timed_lines
from nsight_prof.parsers.nsys.stages.work import Work
from nsight_prof.parsers.reading import reading, reads
from nsight_prof.parsers.run.directory import plain_file
from nsight_prof.parsers.run.sentences import stored

of_file = reads(WHAT, HINT)


class NsysTrace:
    """An nsys SQLite export, read on demand; long columns are read once and kept as numbers.

    All frames are tidy tables of tables.yaml. A method that reads raises ArtifactUnreadable for a
    file that does not hold what nsys writes. `warnings` grows as more is read. `recorded` is when
    it was recorded, UTC in ISO 8601, empty where it does not tell. Close it, or use it as a context
    manager.
    """

    def __init__(self, db: Database, stages: Stages = ()) -> None:
        self.path = db.path
        self._db = db
        self._stages = stages
        self._threads = Threads()
        self.product_version, self.schema_version = schema.versions(db)
        self.recorded = schema.recorded(db)
        schema.check(db, self.schema_version)
        self.warnings: list[str] = schema.warnings(db, self.schema_version)

    def __enter__(self) -> NsysTrace:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    @of_file
    def identity(self) -> Identity:
        """Host, time, processes and devices of the trace."""
        return read_identity(self._db)

    @of_file
    def gpus(self) -> pd.DataFrame:
        """GPUs of the machine (table `gpus`), those that ran kernels first."""
        return read_gpus(self._db)

    @of_file
    def kernels(self, *, with_stages: bool = True) -> pd.DataFrame:
        """One row per kernel: mangled name x grid x block (table `kernels`), most GPU time first.

        Stages cost reading all NVTX ranges; without them the column `stage` is empty.
        """
        rows = self._kernel_rows
        frame = statistics(rows.kernel, rows.duration, len(rows.kernels))
        frame.columns = [_RENAMED.get(name, f"{name}_ns") for name in frame.columns]
        frame["share"] = frame["total_ns"] / frame["total_ns"].sum()
        kernels = pd.DataFrame([vars(kernel) for kernel in rows.kernels])
        names = pd.DataFrame([_readable(kernel.name) for kernel in rows.kernels])
        configs = pd.DataFrame(rows.configs, columns=["kernel", "registers", "static", "dynamic"])
        configs["shared_bytes"] = configs.pop("static") + configs.pop("dynamic")
        largest = configs.groupby("kernel").max()
        largest["registers"] = largest["registers"].where(largest["registers"] > 0)
        frame = pd.concat([kernels, names, frame, largest], axis=1)
        frame["stage"] = self._work.stage_lists() if with_stages else ""
        frame = frame.sort_values(["total_ns", "kernel_id"], ascending=[False, True])
        return tables.check(frame, "kernels")

    @of_file
    def launches(self) -> pd.DataFrame:
        """One row per launch, by start (table `launches`). Long traces: `write_launches`."""
        size = len(self._work.kernels.start)
        return next(launch_frames(self._work, size))

    @of_file
    def write_launches(self, path: Path) -> None:
        """Write the table `launches` as Parquet, part by part, in bounded memory."""
        write_launches(path, launch_frames(self._work))

    @of_file
    def stages(self) -> pd.DataFrame:
        """Time of each stage and of all (table `stages`), in the order of their first start.

        A stage instance is one range that issued GPU work; its wall time goes to the end of the
        range or of its last GPU operation, whichever is later. '(all)' goes from the first GPU
        operation to the end of the last. A CUDA graph traced as a whole counts as busy.
        """
        return self._work.stages.copy()

    @of_file
    def stage_instances(self) -> pd.DataFrame:
        """Each instance of a stage on each GPU (table `stage_instances`), in their order."""
        return self._stage_instances.copy()

    @of_file
    def stage_kernels(self) -> pd.DataFrame:
        """GPU time of each kernel in each stage (table `stage_kernels`), most time first."""
        return self._work.stage_kernels()

    @of_file
    def range_kernels(self) -> pd.DataFrame:
        """GPU time of each kernel in each NVTX range, whatever its depth, by the range's name.

        Columns nvtx_range, kernel_id, calls, total_ns. A launch counts once for each name around
        it, as in `nsys stats -r nvtx_kern_sum`.
        """
        return self._work.range_kernels()

    @of_file
    def process_names(self, wanted: set[int]) -> dict[int, str]:
        """Names of processes by their id, of those `wanted` that the trace names."""
        return process_names(self._db, wanted)

    @of_file
    def memory_operations(self) -> pd.DataFrame:
        """Copies and memsets by kind (table `memory_operations`)."""
        return memory_operations(self._db, self._kernel_rows.first_of_repeated)

    @of_file
    def api_calls(self) -> pd.DataFrame:
        """CUDA API calls by function (table `api_calls`)."""
        return api_calls(self._calls)

    @of_file
    def engine_steps(self) -> pd.DataFrame:
        """Steps of an inference engine on each GPU (table `engine_steps`).

        Empty where no thread has vLLM's range `execute_context_…` of a step.
        """
        return self._engine.steps

    @of_file
    def engine_gaps(self) -> pd.DataFrame:
        """What the host did while the GPU was idle, by engine step (table `engine_gaps`)."""
        return self._engine.gaps

    @of_file
    def idle_gaps(self) -> pd.DataFrame:
        """What the host did while no GPU worked, by stage and cause (table `idle_gaps`)."""
        return self._idle_gaps[0]

    @of_file
    def host_ranges(self) -> pd.DataFrame:
        """NVTX ranges of the busiest threads, for a timeline (table `host_ranges`).

        Free where it is asked for before what needs the ranges around calls, as stages do.
        """
        calls, nvtx = self._calls, self._nvtx
        return host_ranges(nvtx, calls, listed_threads(self._db, self._threads))

    @of_file
    def host_lines(self) -> pd.DataFrame:
        """Lines of Python in which the host was (table `host_lines`)."""
        return host_lines(self._db, self._work, self._python_samples, self._stages)

    @of_file
    def thread_lines(self) -> pd.DataFrame:
        """Lines of Python threads that make no CUDA call (table `thread_lines`)."""
        return thread_lines(self._db, self._work, self._python_samples)

    @of_file
    def launch_lines(self, native: Path | None = None) -> pd.DataFrame:
        """Lines of Python that wait while a kernel runs (table `launch_lines`).

        They launched it where the trace is of a run with CUDA_LAUNCH_BLOCKING=1. Without Python
        native functions, with the lines in file `native`.
        """
        lines = read_native_lines(native)
        return launch_lines(self._db, self._work, self._python_samples, lines)

    @of_file
    def timed_lines(self, folder: Path) -> dict[str, pd.DataFrame]:
        """Lines of Python that were timed into `folder` in this run, and their calls of CUDA.

        They are tables `timed_lines`, `timed_calls` and `launch_lines`; empty where none were.
        """
        work, calls = self._work, self._calls
        return timed_tables(self._db, work, calls, self._threads.ids, read_timed_lines(folder))

    @of_file
    def native_addresses(self) -> dict[str, tuple[int, list[int]]]:
        """Addresses whose lines are to be kept, by module (see native_stacks)."""
        return native_addresses(self._db)

    @of_file
    def why_no_lines(self) -> str:
        """Why table `host_lines` is empty, and how to get it."""
        return why_no_lines(self._db)

    @of_file
    def devices(self) -> pd.DataFrame:
        """Which GPU each device of each process is (table `devices`)."""
        return self._devices.table

    @of_file
    def gpu_stages(self) -> pd.DataFrame:
        """Time of each stage and of all on each GPU (table `gpu_stages`)."""
        return gpu_stages(self._by_gpu, self.stages())

    @of_file
    def gpu_idle_gaps(self) -> pd.DataFrame:
        """What the host did while a GPU was idle, for each GPU (table `gpu_idle_gaps`)."""
        return self._idle_gaps[1]

    @of_file
    def gpu_samples(self) -> pd.DataFrame:
        """Sampled use of each GPU by kernel and by stage (table `gpu_samples`)."""
        return gpu_samples(self._db, self._kernel_rows, self._devices, self._stage_instances)

    @of_file
    def collectives(self) -> pd.DataFrame:
        """Calls of NCCL on each rank with bytes and bandwidth (table `collectives`)."""
        return collectives(self._db, self._work, self._devices)

    @of_file
    def why_no_collectives(self) -> str | None:
        """Why table `collectives` is empty; None where no NCCL kernel ran."""
        return why_none(self._db, self._kernel_rows)

    @of_file
    def modules(self) -> tuple[pd.DataFrame, pd.DataFrame]:
        """GPU time of the model's modules by kind of step (tables `modules`, `module_kernels`).

        Empty without vLLM's layer-wise NVTX tracing, which CUDA graphs do not have.
        """
        return module_tables(self._work, self._engine.works, self._engine.module_ranges)

    @of_file
    def why_no_modules(self) -> str | None:
        """Why there is no table `modules`; None where there is one, or no engine step."""
        if self._engine.steps.empty or self._engine.module_ranges:
            return None
        if self._kernel_rows.graph_node is not None:
            return stored(
                "the kernels ran in CUDA graphs, which launch them without the ranges of modules: "
                "trace an eager engine with vLLM's enable_layerwise_nvtx_tracing"
            )
        return stored(
            "the trace has no ranges of modules: set vLLM's enable_layerwise_nvtx_tracing"
        )

    @cached_property
    def _engine(self) -> Engine:
        found = read_engine(self._db, self._kernel_rows, self._range_names)
        self.warnings += found.warnings
        return found

    @cached_property
    def _calls(self) -> ApiCalls:
        return read_api_calls(self._db, self._threads)

    @cached_property
    def _nvtx(self) -> NvtxEvents:
        return read_nvtx(self._db, self._threads)

    @cached_property
    def _range_names(self) -> set[str]:
        return {text for _, text in self._nvtx.names}

    @cached_property
    def _has_marks(self) -> bool:
        return bool((self._nvtx.kind == self._nvtx.kinds.index(MARK)).any())

    @cached_property
    def _kernel_rows(self) -> KernelRows:
        return read_kernels(self._db)

    @cached_property
    def _idle_gaps(self) -> tuple[pd.DataFrame, pd.DataFrame]:
        given = (self._stages, self._calls, self._threads)
        return idle_gaps(self._db, self._work, self._by_gpu, *given)

    @cached_property
    def _by_gpu(self) -> list[tuple[int, Work]]:
        return list(by_gpu(self._work, self._devices))

    @cached_property
    def _python_samples(self) -> PythonSamples:
        # Samples are marks; only a pass over all rows tells whether one of them is a sample.
        return read_python_samples(self._db) if self._has_marks else NO_SAMPLES

    @cached_property
    def _stage_instances(self) -> pd.DataFrame:
        return stage_instances(self._work, self._devices)

    @cached_property
    def _devices(self) -> Devices:
        work = self._work
        places = (work.kernels.places, work.memory.places, work.graphs.places)
        found = read_devices(self._db, set().union(*places))
        self.warnings += found.warnings
        return found

    @cached_property
    def _work(self) -> Work:
        kernels = self._kernel_rows
        memory = read_operations(self._db, schema.MEMCPY, schema.MEMSET)
        graphs = read_operations(self._db, schema.GRAPH_TRACE)
        operations = (kernels, memory, graphs)
        calls, issuers = place_calls(self._calls, self._threads, operations)
        nvtx, *_ = self._nvtx, self._range_names, self._has_marks
        del self._nvtx  # as long as the trace, and done with
        attributed = attribute_calls(nvtx, calls, self._threads.ids, self._stages)
        del nvtx
        give_back()
        self.warnings += attributed.warnings
        return Work(kernels, memory, graphs, attributed, issuers)


_RENAMED = {"count": "calls"}


def _readable(name: str) -> dict[str, Any]:
    known = classify(name)
    return {k: getattr(known, k) for k in ("short_name", "library", "category", "dtype", "tile")}


@contextmanager
def open_trace(path: Path, stages: Stages = ()) -> Iterator[NsysTrace]:
    """Open an nsys SQLite export (.sqlite or .sqlite.xz), strictly read only.

    Args:
        path: export of any nsys version from 2021.2 on.
        stages: regular expressions of NVTX range names that are stages of the program, matched as
            a whole; the outermost fitting range wins. None: the outermost range of the thread.
            A mapping from names to regular expressions gives the stages these names; of several
            that fit a range, the first names it.

    Raises:
        ArtifactUnreadable: not a whole nsys export, or a needed table or column is missing.
        NoKernels: the trace holds no GPU kernel.
    """
    with plain_file(path) as unpacked:
        with reading(path, WHAT, HINT):
            trace = _trace(unpacked, path, stages)
        with trace:
            yield trace


def _trace(unpacked: Path, path: Path, stages: Stages) -> NsysTrace:
    db = Database(unpacked, path)
    try:
        return NsysTrace(db, stages)
    except BaseException:
        db.close()
        raise
