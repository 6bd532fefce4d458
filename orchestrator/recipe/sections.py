"""The sections of a recipe: its target and each step, as models that refuse unknown keys."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Discriminator, Field, Tag, model_validator

from nsight_prof.orchestrator.recipe.values import (
    Arguments,
    Celsius,
    Duration,
    Model,
    Regexes,
    Text,
    VariableName,
    Word,
    Words,
    kind_of_value,
)

MetricSet = Literal["roofline", "occupancy", "memory", "tensor", "stalls"]
TensorDtype = Literal["bf16", "fp16", "tf32", "fp8", "fp4", "int8", "fp64"]


class Target(Model):
    """The program to profile: a Python file or a command. It runs as a child process."""

    file: Text | None = Field(
        default=None,
        description="Python file to run: a bundled target (llm_block.py), or a path relative to "
        "the recipe or to the current folder. Either file or command.",
    )
    command: Words | None = Field(
        default=None,
        description="Any command as a list: [./my_app, --size, 4096] or [python, train.py]. A "
        "leading `python` is replaced by target.python where that is given.",
    )
    args: Arguments = Field(
        default_factory=dict,
        description="Arguments appended as `--key value`: underscores become dashes, true gives "
        "the bare option, false and null leave it out, a list gives all its values.",
    )
    python: Text | None = Field(
        default=None,
        description="Interpreter that has the target's packages (torch, …): a path or a name on "
        "PATH. Default: the one that runs prof.",
    )
    url: Text | None = Field(
        default=None,
        description="A server with an OpenAI-compatible API that runs already "
        "(http://127.0.0.1:8000), for targets that take --url (serving/server.py): it is neither "
        "started nor ended.",
    )
    env: dict[VariableName, Word] = Field(
        default_factory=dict,
        description="Environment variables set for the target; ${NAME} takes a value of prof's "
        "own environment. Variables that look like secrets are passed on only where named here.",
    )
    cwd: Text | None = Field(
        default=None,
        description="Folder in which the target runs, relative to the current folder. Default: "
        "the current folder.",
    )

    @model_validator(mode="after")
    def _one_program(self) -> Self:
        if self.file is not None and self.command is not None:
            raise ValueError("names a file and a command: keep one of them")
        if self.file is None and self.command is None:
            raise ValueError("names no program: give target.file or target.command")
        if self.command is not None and not self.command:
            raise ValueError("the command is an empty list")
        return self


class Dataset(Model):
    """What the program works on: images of a folder, or prompts of a file."""

    root: Text | None = Field(
        default=None,
        description="Folder of images, sought beside the recipe, in $DATASETS_ROOT, among the "
        "bundled sets (pages) and in the current folder. Becomes --dataset-root.",
    )
    filelist: Text | None = Field(
        default=None,
        description="Which samples: a text file with a path a line, or JSON lines with `prompt` "
        "and `image` or `images`; paths are relative to root, else to the file. Default: all "
        "images under root. Becomes --filelist.",
    )
    samples: int | None = Field(
        default=None, ge=1, description="How many of them, from the first. Default: all."
    )
    epochs: int = Field(default=1, ge=1, description="How often all samples are gone through.")
    shuffle: bool = Field(default=False, description="true: in a random order, which seed fixes.")
    seed: int = Field(default=0, ge=0, description="Of the order.")

    @model_validator(mode="after")
    def _somewhere(self) -> Self:
        if self.root is None and self.filelist is None:
            raise ValueError("names no data: give dataset.root or dataset.filelist")
        return self


def _own_args(example: str) -> Any:
    return Field(
        default_factory=dict,
        description="Arguments that override or extend target.args in this step alone, for example "
        f"{example}; null takes one away.",
    )


RangeName = Annotated[str, Field(min_length=1)]


class NvtxCapture(Model):
    """Capture NVTX ranges by their names."""

    nvtx: Annotated[
        Annotated[RangeName, Tag("<text>")]
        | Annotated[tuple[RangeName, ...], Field(strict=False, min_length=1), Tag("<other>")],
        Discriminator(kind_of_value),
    ] = Field(
        description="Name of the NVTX range, or a list of names. Of one name nsys captures the "
        "first occurrence; of several the whole program is traced and cut to their ranges. ncu "
        "profiles only launches inside them.",
    )
    occurrence: int | None = Field(
        default=None,
        ge=1,
        description="Which of the ranges of each name is kept, from 1: the whole program is traced "
        "and cut to it, and ncu profiles launches in it alone (where it has --range-filter).",
    )

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the ranges."""
        return (self.nvtx,) if isinstance(self.nvtx, str) else self.nvtx

    @property
    def is_cut(self) -> bool:
        """Whether the trace is cut afterwards: nsys begins at the first range of one name alone."""
        return len(self.names) > 1 or self.occurrence is not None


class WaitUntil(Model):
    """What must hold before a step starts the program."""

    below: Celsius = Field(
        description="Temperature that all GPUs must be below, for example 60C; a step that has "
        "waited for `timeout` runs all the same, and the report says so."
    )
    timeout: Duration = Field(
        default=300.0, description="Longest time to wait, seconds or 90s, 10m, 1h."
    )


class Untraced(Model):
    """The program by itself, before it is traced: what the profiler costs, seen from the host."""

    enabled: bool = Field(
        default=False,
        description="true: also run the program without a profiler; what it reports of its own "
        "time (PROF_RESULTS) is the measure of what profiling costs.",
    )
    args: Arguments = _own_args("{repeats: 5}")
    timeout: Duration = Field(
        default=900.0, description="Longest time for the program, seconds or 90s, 10m, 1h."
    )


class Trace(Model):
    """The nsys run that says which kernels take the time."""

    enabled: bool = Field(
        default=True, description="false: no nsys run (give select.kernels then)."
    )
    from_run: str | None = Field(
        default=None,
        alias="from",
        description="Run directory whose trace is used in place of a new nsys run.",
    )
    args: Arguments = _own_args("{steps: 8}")
    timeout: Duration = Field(
        default=900.0,
        description="Longest time for the traced program, seconds or 90s, 10m, 1h; then the whole "
        "process group is ended.",
    )
    python_sampling: bool = Field(
        default=False,
        description="true: nsys notes the stack of each Python thread 1000 times per second, and "
        "`prof where` names the lines of the program in which the host spends its time.",
    )
    launch_lines: bool = Field(
        default=False,
        description="true: the program runs once more under nsys, while each line of its own "
        "Python code is timed (sys.monitoring on Python 3.12, sys.settrace on 3.11): the report "
        "names the lines that launched each kernel, copied, waited or allocated. Each line that "
        "runs costs about 0.6 us more, so that loops of pure Python take tens of times as long "
        "there. Of other programs nsys unwinds the native stack of each CUDA call, where the "
        "machine allows it: the report names functions. No time of the report is taken from that "
        "run.",
    )
    extra_args: Words = Field(
        default=(),
        description="More options for `nsys profile`, for example [--nvtx-domain-exclude=CCCL]. "
        "GPU metrics and CPU samples are shown by Nsight Systems alone, from the .nsys-rep.",
    )
    cublas_log: bool = Field(
        default=False,
        description="true: let cuBLASLt log its calls (CUBLASLT_LOG_LEVEL=2): sizes, layouts, "
        "types and the algorithm of each matrix product, joined to the kernels in table "
        "`cublas_calls`; each call costs the host some microseconds more.",
    )
    keep_report: bool = Field(
        default=False,
        description="true: keep trace.nsys-rep, for the GUI of Nsight Systems. It holds the "
        "environment variables of all processes that nsys saw: do not share the run then.",
    )


class Select(Model):
    """Which kernels get hardware counters."""

    top_k: int | None = Field(
        default=20, ge=1, description="At most this many kernels; null: no limit."
    )
    coverage: float | None = Field(
        default=0.95,
        gt=0,
        le=1,
        description="Stop once the chosen kernels hold this share of GPU time; null: no limit.",
    )
    by_stage: bool = Field(
        default=False,
        description="true: apply top_k and coverage to each stage and to the whole program, and "
        "profile the union.",
    )
    include: Regexes = Field(
        default=(), description="Regexes over kernel names; where given, only matches are chosen."
    )
    exclude: Regexes = Field(
        default=(), description="Regexes over kernel names that are never chosen."
    )
    collectives: bool = Field(
        default=False,
        description="true: also NCCL kernels. They wait for other GPUs, and ncu's replay can hang "
        "on them.",
    )
    kernels: (
        Annotated[
            Annotated[str, Tag("<text>")] | Annotated[Words, Tag("<other>")],
            Discriminator(kind_of_value),
        ]
        | None
    ) = Field(
        default=None,
        description="A given selection in place of the ranking: a file made by `prof top-kernels "
        "-o`, or a list of mangled kernel names; of these the ones that the trace has.",
    )


class Counters(Model):
    """The ncu run that measures the selected kernels, all in one run of the program."""

    enabled: bool = Field(default=True, description="false: trace only, no ncu run.")
    sets: Annotated[tuple[MetricSet, ...], Field(strict=False, min_length=1)] = Field(
        default=("roofline", "occupancy", "memory", "tensor", "stalls"),
        description="Metric sets of the catalogue (`prof metrics`): fewer sets, fewer passes.",
    )
    tensor_dtypes: Annotated[
        Annotated[Literal["auto"], Tag("<text>")]
        | Annotated[tuple[TensorDtype, ...], Field(strict=False), Tag("<other>")],
        Discriminator(kind_of_value),
    ] = Field(
        default="auto",
        description="Input types whose Tensor Core operations are counted; each costs passes. "
        "auto: those that the selected kernels' names tell.",
    )
    clock_control: Literal["none", "base"] = Field(
        default="none",
        description="none: the clocks of the real run. base: ncu locks the base clock, which moves "
        "the roofs.",
    )
    cache_control: Literal["none", "all"] = Field(
        default="none",
        description="none: caches as the program leaves them. all: ncu flushes them before each "
        "pass, which turns L2 hits into DRAM traffic.",
    )
    rules: bool = Field(
        default=False,
        description="true: let ncu apply its own rules and show what they say beside prof's "
        "findings; their sections about double the passes (H100, H200: 20 for 10).",
    )
    source: bool = Field(
        default=False,
        description="true: ncu samples each instruction as well, and `prof where` names the lines "
        "of kernels that have line information (nvcc -lineinfo, Triton) with their share.",
    )
    args: Arguments = _own_args("{steps: 2}")
    timeout: Duration = Field(
        default=3600.0, description="Longest time for the ncu run, seconds or 90s, 10m, 1h."
    )
    extra_args: Words = Field(
        default=(), description="More options for `ncu`, for example [--replay-mode, application]."
    )


class Operators(Model):
    """The program under torch's profiler: the operators behind the kernels, with their shapes."""

    enabled: bool = Field(
        default=False,
        description="true: also run the program, a Python script that uses torch, under the torch "
        "profiler; tables `operators` and `gemms` come from it.",
    )
    detailed: bool = Field(
        default=False,
        description="true: also record the Python functions around operators and the memory that "
        "they take (call_path in table operators, table stage_memory); the host runs some times "
        "slower then.",
    )
    args: Arguments = _own_args("{mode: eager}")
    timeout: Duration = Field(
        default=1800.0, description="Longest time for the program, seconds or 90s, 10m, 1h."
    )


class Values(Model):
    """The program once more, with what its operators compute: repeated, zero and unread values."""

    enabled: bool = Field(
        default=False,
        description="true: also run the program, a Python script that uses torch, while the values "
        "that its operators read and return are compared where they lie; tables `operator_values` "
        "and `value_profiles` come from it. What the program computes stays the same; regions of "
        "torch.compile, CUDA graphs and other processes are not recorded.",
    )
    operators: int = Field(
        default=20_000,
        ge=1,
        le=1_000_000,
        description="Calls of operators after which the recording ends; the program goes on.",
    )
    seconds: float = Field(
        default=20.0, gt=0, description="Seconds after which it ends, from the first operator."
    )
    args: Arguments = _own_args("{steps: 4}")
    timeout: Duration = Field(
        default=900.0, description="Longest time for the program, seconds or 90s, 10m, 1h."
    )


class Bench(Model):
    """A benchmark target, which measures its own cases; it is not profiled while it does.

    It takes `--out FILE --process N --repeat N`, and `--count` for the counting run under ncu.
    """

    processes: int = Field(
        default=3,
        ge=1,
        description="Fresh processes, one after another; each measures every case anew.",
    )
    repeat: int = Field(
        default=1,
        ge=1,
        description="How often all processes are started: the report states how well the repeats "
        "agree. Also `prof run RECIPE --repeat N`.",
    )
    timeout: Duration = Field(
        default=1200.0, description="Longest time for one process, seconds or 90s, 10m, 1h."
    )
    count_args: Arguments = Field(
        default_factory=dict,
        description="Arguments that override or extend target.args in the counting run under ncu, "
        "for example {only: dram, launches: 2}; null takes one away.",
    )
