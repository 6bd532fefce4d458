"""A recipe: one question about one program, as frozen models that refuse what they do not know."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    PrivateAttr,
    Tag,
    WithJsonSchema,
    model_validator,
)

DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|min|h)?")
SECONDS = {None: 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
MetricSet = Literal["roofline", "occupancy", "memory", "tensor", "stalls"]
# Arguments that prof gives to a benchmark target.
RESERVED_ARGS = ("out", "process", "repeat", "count", "list")
TensorDtype = Literal["bf16", "fp16", "tf32", "fp8", "fp4", "int8", "fp64"]


def _duration(value: object) -> object:
    """Turn 90, "90", "90s", "10m" or "1.5h" into seconds."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError("write seconds (600) or a number with a unit: 90s, 10m, 1.5h")
    match = DURATION.fullmatch(str(value).strip())
    if match is None:
        raise ValueError("write seconds (600) or a number with a unit: 90s, 10m, 1.5h")
    return float(match[1]) * SECONDS[match[2]]


def _regex(value: str) -> str:
    try:
        re.compile(value)
    except re.error as error:
        raise ValueError(f"not a regular expression: {error}") from error
    return value


def _word(value: object) -> object:
    """Let numbers stand for text where the program will only see text (commands, environment)."""
    if isinstance(value, bool) or value is None:
        raise ValueError(f"YAML reads this as {value}; put it in quotes to pass it as text")
    return str(value) if isinstance(value, int | float) else value


def _kind(value: object) -> str:
    return "<text>" if isinstance(value, str) else "<other>"


Duration = Annotated[
    float,
    BeforeValidator(_duration),
    Field(gt=0),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "number", "exclusiveMinimum": 0},
                {"type": "string", "pattern": rf"^{DURATION.pattern}$"},
            ]
        }
    ),
]
Regex = Annotated[str, AfterValidator(_regex), Field(json_schema_extra={"format": "regex"})]
Word = Annotated[
    str, BeforeValidator(_word), WithJsonSchema({"type": ["string", "number"]}, mode="validation")
]
Words = Annotated[tuple[Word, ...], Field(strict=False)]
Regexes = Annotated[tuple[Regex, ...], Field(strict=False)]


class _Model(BaseModel):
    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, populate_by_name=True, allow_inf_nan=False
    )


class Target(_Model):
    """The program to profile: a Python file or a command. It runs as a child process."""

    file: str | None = Field(
        default=None,
        description="Python file to run: a bundled target (llm_block.py), or a path relative to "
        "the recipe or to the current folder. Either file or command.",
    )
    command: Words | None = Field(
        default=None,
        description="Any command as a list: [./my_app, --size, 4096] or [python, train.py]. A "
        "leading `python` is replaced by target.python where that is given.",
    )
    args: dict[str, Any] = Field(
        default_factory=dict,
        description="Arguments appended as `--key value`: underscores become dashes, true gives "
        "the bare option, false and null leave it out, a list gives all its values.",
    )
    python: str | None = Field(
        default=None,
        description="Interpreter that has the target's packages (torch, …): a path or a name on "
        "PATH. Default: the one that runs prof.",
    )
    env: dict[str, Word] = Field(
        default_factory=dict,
        description="Environment variables set for the target; ${NAME} takes a value of prof's "
        "own environment. Variables that look like secrets are passed on only where named here.",
    )
    cwd: str | None = Field(
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
        for key, value in self.args.items():
            if isinstance(value, dict):
                raise ValueError(f"args.{key} is a mapping; an argument is a value or a list")
        return self


class NvtxCapture(_Model):
    """Capture one NVTX range."""

    nvtx: str = Field(
        min_length=1,
        description="Name of the NVTX range; nsys captures its first occurrence, ncu profiles "
        "only launches inside it.",
    )


class Trace(_Model):
    """The nsys run that says which kernels take the time."""

    enabled: bool = Field(
        default=True, description="false: no nsys run (give select.kernels then)."
    )
    from_run: str | None = Field(
        default=None,
        alias="from",
        description="Run directory whose trace is used in place of a new nsys run.",
    )
    timeout: Duration = Field(
        default=900.0,
        description="Longest time for the traced program, seconds or 90s, 10m, 1h; then the whole "
        "process group is ended.",
    )
    extra_args: Words = Field(
        default=(),
        description="More options for `nsys profile`, for example [--gpu-metrics-devices=all].",
    )


class Select(_Model):
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
            Annotated[str, Tag("<text>")] | Annotated[Words, Tag("<other>")], Discriminator(_kind)
        ]
        | None
    ) = Field(
        default=None,
        description="A given selection in place of the ranking: a file made by `prof top-kernels "
        "-o`, or a list of mangled kernel names; of these the ones that the trace has.",
    )


class Counters(_Model):
    """The ncu run that measures the selected kernels, all in one run of the program."""

    enabled: bool = Field(default=True, description="false: trace only, no ncu run.")
    sets: Annotated[tuple[MetricSet, ...], Field(strict=False, min_length=1)] = Field(
        default=("roofline", "occupancy", "memory", "tensor", "stalls"),
        description="Metric sets of the catalogue (`prof metrics`): fewer sets, fewer passes.",
    )
    tensor_dtypes: Annotated[
        Annotated[Literal["auto"], Tag("<text>")]
        | Annotated[tuple[TensorDtype, ...], Field(strict=False), Tag("<other>")],
        Discriminator(_kind),
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
    timeout: Duration = Field(
        default=3600.0, description="Longest time for the ncu run, seconds or 90s, 10m, 1h."
    )
    extra_args: Words = Field(
        default=(), description="More options for `ncu`, for example [--replay-mode, application]."
    )


class Bench(_Model):
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
    count_args: dict[str, Any] = Field(
        default_factory=dict,
        description="Arguments that override or extend target.args in the counting run under ncu, "
        "for example {only: dram, launches: 2}; null takes one away.",
    )


class Recipe(_Model):
    """One question about one GPU program, and how prof answers it."""

    name: str = Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$",
        description="Name of the recipe and of its runs. Default: the file's name.",
    )
    question: str = Field(
        default="", description="The question that the report answers, one sentence."
    )
    extends: str | None = Field(
        default=None,
        description="Another recipe (bundled name or path) to build on: mappings are merged, "
        "lists and values replaced; another target starts with no arguments.",
    )
    target: Target = Field(description="The program to profile.")
    capture: Annotated[
        Annotated[Literal["all", "profiler-api"], Tag("<text>")]
        | Annotated[NvtxCapture, Tag("<other>")],
        Discriminator(_kind),
    ] = Field(
        default="all",
        description="What is captured, by nsys and ncu alike: all, profiler-api (between "
        "cudaProfilerStart and cudaProfilerStop), or {nvtx: NAME}.",
    )
    stages: Regexes = Field(
        default=(),
        description="Regexes of whole NVTX range names that are stages of the program; the "
        "outermost match wins. Empty: the outermost range of each thread.",
    )
    trace: Trace = Field(default_factory=Trace, description="The nsys run.")
    select: Select = Field(default_factory=Select, description="Which kernels get counters.")
    counters: Counters = Field(default_factory=Counters, description="The ncu run.")
    bench: Bench | None = Field(
        default=None,
        description="Only for benchmark targets: prof starts the target un-profiled, and once more "
        "under ncu, which counts every case. No trace and no selection then.",
    )
    sweep: dict[str, Annotated[tuple[Any, ...], Field(strict=False, min_length=1)]] = Field(
        default_factory=dict,
        description="Dotted key to list of values: every combination becomes a run, and one report "
        "compares them.",
    )
    notes: Words = Field(default=(), description="Sentences that go into the report as they are.")

    _folders: tuple[Path, ...] = PrivateAttr(default=())

    @property
    def folders(self) -> tuple[Path, ...]:
        """Folders of the recipe file and of those it extends: relative paths are sought there."""
        return self._folders

    def found_in(self, folders: tuple[Path, ...]) -> Self:
        """Return a copy that seeks relative paths in `folders`."""
        copy = self.model_copy()
        copy._folders = folders
        return copy

    def to_dict(self) -> dict[str, Any]:
        """Return the resolved recipe as plain data, with the keys of the file.

        Values of `target.env` are left out: they may be secrets, and this goes into the manifest.
        """
        data = self.model_dump(mode="json", by_alias=True)
        data["target"]["env"] = dict.fromkeys(data["target"]["env"], "")
        return data

    @model_validator(mode="before")
    @classmethod
    def _defaults_of_bench(cls, data: Any) -> Any:
        """Without a word about them, a benchmark has no trace and brackets what ncu counts."""
        if not isinstance(data, dict) or data.get("bench") is None:
            return data
        trace = data.get("trace", {})
        if isinstance(trace, dict):
            trace = {"enabled": False, **trace}
        return {"capture": "profiler-api", **data, "trace": trace}

    @model_validator(mode="after")
    def _bench_alone(self) -> Self:
        if self.bench is None:
            return self
        if self.trace != Trace(enabled=False):
            raise ValueError("a benchmark target is not traced: leave `trace` out beside `bench`")
        if self.select != Select():
            raise ValueError(
                "a benchmark counts every case: leave `select` out beside `bench`; the target's "
                "own option chooses cases: target.args.only or bench.count_args.only"
            )
        if self.capture != "profiler-api":
            raise ValueError(
                "a benchmark target brackets its counted cases with cudaProfilerStart and Stop: "
                "leave `capture` out beside `bench`"
            )
        if self.stages:
            raise ValueError("a benchmark has cases and no stages: leave `stages` out")
        if self.sweep:
            raise ValueError(
                "a benchmark target sweeps its own cases in one run: leave `sweep` out beside "
                "`bench`, and give the target what to sweep in target.args"
            )
        for key in RESERVED_ARGS:
            if key in self.target.args or key in self.bench.count_args:
                raise ValueError(f"the argument {key} is set by prof: leave it out beside `bench`")
        return self

    @model_validator(mode="after")
    def _something_to_do(self) -> Self:
        if self.bench is not None:
            return self
        traced = self.trace.enabled or self.trace.from_run is not None
        if not traced and not self.counters.enabled:
            raise ValueError("neither the trace nor the counters are enabled: nothing to do")
        if not traced and self.select.kernels is None:
            raise ValueError(
                "counters without a trace need a kernel list: give select.kernels or trace.from"
            )
        return self
