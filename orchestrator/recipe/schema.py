"""A recipe: one question about one program, as frozen models that refuse what they do not know."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Discriminator, Field, PrivateAttr, Tag, model_validator

from nsight_prof.orchestrator.recipe.files import Layer
from nsight_prof.orchestrator.recipe.languages import Language
from nsight_prof.orchestrator.recipe.ranks import Engine, Ranks
from nsight_prof.orchestrator.recipe.sections import (
    Bench,
    Counters,
    Dataset,
    NvtxCapture,
    Operators,
    Select,
    Target,
    Trace,
    Untraced,
    Values,
    WaitUntil,
)
from nsight_prof.orchestrator.recipe.values import Model, Regex, Regexes, Words, kind_of_value

# Arguments that prof gives to a benchmark target.
RESERVED_ARGS = ("out", "process", "repeat", "count", "list")
# Sections of steps that start the program, each with arguments of its own.
PROFILED = ("untraced", "trace", "counters", "operators", "values")
# Cells of tables list the stages of a kernel with commas, and `(all)` is the whole capture.
LONGEST_NAME = 120  # a folder with a time behind it
STAGE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._+-]*")


def _stage_name(value: str) -> str:
    if STAGE_NAME.fullmatch(value) is None:
        raise ValueError("a stage is called with letters, digits, spaces and . _ + - only")
    return value


StageName = Annotated[str, AfterValidator(_stage_name)]
NamedStages = dict[StageName, Regex]


def _list_or_mapping(value: object) -> str:
    return "<mapping>" if isinstance(value, dict) else "<list>"


class Recipe(Model):
    """One question about one GPU program, and how prof answers it."""

    name: str = Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$",
        max_length=LONGEST_NAME,
        description="Name of the recipe and of its runs. Default: the file's name.",
    )
    question: str = Field(
        default="", description="The question that the report answers, one sentence."
    )
    extends: (
        Annotated[
            Annotated[str, Tag("<text>")] | Annotated[Words, Tag("<other>")],
            Discriminator(kind_of_value),
        ]
        | None
    ) = Field(
        default=None,
        description="Another recipe (name or path) to build on, or a list, of which later ones go "
        "over earlier ones: mappings are merged, lists and values replaced; another target starts "
        "with no arguments.",
    )
    target: Target = Field(description="The program to profile.")
    dataset: Dataset | None = Field(
        default=None,
        description="What the program works on, for targets that take --dataset-root, --filelist, "
        "--samples, --epochs, --shuffle and --dataset-seed (inference/run.py).",
    )
    capture: Annotated[
        Annotated[Literal["all", "profiler-api"], Tag("<text>")]
        | Annotated[NvtxCapture, Tag("<other>")],
        Discriminator(kind_of_value),
    ] = Field(
        default="all",
        description="What is captured, by nsys and ncu alike: all, profiler-api (between "
        "cudaProfilerStart and cudaProfilerStop), {nvtx: NAME}, or {nvtx: [NAME, …], "
        "occurrence: 2}.",
    )
    wait_until: WaitUntil | None = Field(
        default=None,
        description="A thermal gate before each step that starts the program: {below: 60C}.",
    )
    stages: Annotated[
        Annotated[Regexes, Tag("<list>")] | Annotated[NamedStages, Tag("<mapping>")],
        Discriminator(_list_or_mapping),
    ] = Field(
        default=(),
        description="Regexes of whole NVTX range names that are stages of the program; the "
        "outermost match wins. Or a mapping of stage to regex: {prefill: ^ctx_.*}; all ranges that "
        "match are one stage, and the first regex that matches counts. Empty: the outermost range "
        "of each thread.",
    )
    untraced: Untraced = Field(
        default_factory=Untraced, description="The program without a profiler."
    )
    trace: Trace = Field(default_factory=Trace, description="The nsys run.")
    select: Select = Field(default_factory=Select, description="Which kernels get counters.")
    counters: Counters = Field(default_factory=Counters, description="The ncu run.")
    operators: Operators = Field(
        default_factory=Operators, description="The run under the torch profiler."
    )
    values: Values = Field(
        default_factory=Values, description="The run that records what operators compute."
    )
    bench: Bench | None = Field(
        default=None,
        description="Only for benchmark targets: prof starts the target un-profiled, and once more "
        "under ncu, which counts every case. No trace and no selection then.",
    )
    ranks: Ranks | None = Field(
        default=None,
        description="Only for programs of several ranks: prof starts them by their launcher and "
        "traces each, and one report compares them; ranks.counters says how they are counted.",
    )
    engine: Engine | None = Field(
        default=None,
        description="Only beside `ranks`: what makes the tables of the ranks, {kind: local, "
        "workers: 8} or {kind: ray, address: HOST:6379, memory: 2GiB}.",
    )
    sweep: dict[str, Annotated[tuple[Any, ...], Field(strict=False, min_length=1)]] = Field(
        default_factory=dict,
        description="Dotted key, or group (model, dataset, …), to list of values: every "
        "combination becomes a run, and one report compares them.",
    )
    notes: Words = Field(default=(), description="Sentences that go into the report as they are.")
    templates: str | None = Field(
        default=None,
        description="Folder with templates of your own, beside the recipe or in the current "
        "folder; each takes the place of the bundled one of its name.",
    )
    languages: Annotated[tuple[Language, ...], Field(strict=False)] = Field(
        default=(),
        description="Languages in which the pages are written besides English: report.ko.md, "
        "stakeholder_summary.ko.md and so on.",
    )

    _folders: tuple[Path, ...] = PrivateAttr(default=())
    _layers: tuple[tuple[Layer, ...], tuple[Layer, ...]] = PrivateAttr(default=((), ()))

    @property
    def folders(self) -> tuple[Path, ...]:
        """Folders of the recipe file and of those it extends: relative paths are sought there."""
        return self._folders

    @property
    def layers(self) -> tuple[tuple[Layer, ...], tuple[Layer, ...]]:
        """Files and `--set` values that the recipe was merged from: choices go between them."""
        return self._layers

    def args_in(self, step: str) -> dict[str, Any]:
        """Return the arguments that the program gets in a step: `trace`, `counters`, ….

        In the counters step of a benchmark they are those of its counting run.
        """
        if self.bench is not None:
            step_args = self.bench.count_args if step == "counters" else {}
        else:
            step_args = getattr(self, step).args if step in PROFILED else {}
        return {**self.target.args, **step_args}

    def found_in(self, folders: tuple[Path, ...]) -> Self:
        """Return a copy that seeks relative paths in `folders`."""
        copy = self.model_copy()
        copy._folders = folders
        return copy

    def merged_from(self, files: Sequence[Layer], values: Sequence[Layer]) -> Self:
        """Return a copy that knows its layers."""
        copy = self.model_copy()
        copy._layers = (tuple(files), tuple(values))
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

    @model_validator(mode="before")
    @classmethod
    def _defaults_of_ranks(cls, data: Any) -> Any:
        """Without a word about them, a job of ranks has no counters: `ranks.counters` has it."""
        if not isinstance(data, dict) or data.get("ranks") is None:
            return data
        counters = data.get("counters", {})
        if isinstance(counters, dict):
            counters = {"enabled": False, **counters}
        return {**data, "counters": counters}

    @model_validator(mode="after")
    def _ranks_alone(self) -> Self:
        if self.ranks is None:
            if self.engine is not None:
                raise ValueError(
                    "`engine` is for jobs of several ranks: leave it out, or say ranks"
                )
            return self
        others = [
            step for step in ("operators", "untraced", "values") if getattr(self, step).enabled
        ]
        others += [name for name in ("bench", "sweep") if getattr(self, name)]
        self._check_counters_of_ranks(self.ranks)
        if others:
            raise ValueError(
                f"the ranks of a job are only traced: leave `{others[0]}` out beside `ranks`"
            )
        for key in ("enabled", "from_run", "python_sampling", "cublas_log", "keep_report"):
            if getattr(self.trace, key) != getattr(Trace(), key):
                name = "from" if key == "from_run" else key
                raise ValueError(f"the ranks of a job are traced: leave trace.{name} out")
        if isinstance(self.stages, dict):
            raise ValueError("beside `ranks`, `stages` is a list of regexes")
        if isinstance(self.capture, NvtxCapture) and self.capture.is_cut:
            raise ValueError("beside `ranks`, a capture is all, profiler-api or one NVTX range")
        return self

    def _check_counters_of_ranks(self, ranks: Ranks) -> None:
        """Refuse what would wait forever, and what none of the ways to count ranks can do."""
        counters = self.counters
        if counters.enabled:
            raise ValueError(
                "say how ranks are counted, ranks.counters: one-rank, one-pass or application, "
                "and leave counters.enabled out"
            )
        if ranks.counters == "one-pass" and "sets" in counters.model_fields_set:
            raise ValueError(
                "counters.sets take several passes, and a collective that one rank runs again "
                "waits forever: leave counters.sets out, or ranks.counters: one-rank"
            )
        if ranks.counters == "one-rank" and self.select.collectives:
            raise ValueError(
                "a collective that one rank runs again waits forever: leave select.collectives "
                "out, or ranks.counters: one-pass"
            )
        for key in ("rules", "source"):
            if getattr(counters, key):
                raise ValueError(f"leave counters.{key} out beside `ranks`")
        if isinstance(self.select.kernels, str):
            raise ValueError("beside `ranks`, select.kernels is a list of names")

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
        return self

    @model_validator(mode="after")
    def _bench_steps(self) -> Self:
        if self.bench is None:
            return self
        for step in ("untraced", "operators", "values"):
            if getattr(self, step).enabled:
                raise ValueError(
                    f"a benchmark measures itself un-profiled: leave `{step}` out beside `bench`"
                )
        if self.counters.args:
            raise ValueError("a benchmark's arguments under ncu stand in bench.count_args")
        for key in RESERVED_ARGS:
            if key in self.target.args or key in self.bench.count_args:
                raise ValueError(f"the argument {key} is set by prof: leave it out beside `bench`")
        return self

    @model_validator(mode="after")
    def _something_to_do(self) -> Self:
        if self.bench is not None:
            return self
        traced = self.trace.enabled or self.trace.from_run is not None
        counted = self.counters.enabled
        by_target = (getattr(self, step).enabled for step in ("untraced", "operators", "values"))
        if not (traced or counted or any(by_target)):
            raise ValueError(
                "neither the program without a profiler nor the trace nor the counters nor the "
                "operators nor the values are enabled: nothing to do"
            )
        if counted and not traced and self.select.kernels is None:
            raise ValueError(
                "counters without a trace need a kernel list: give select.kernels or trace.from"
            )
        return self
