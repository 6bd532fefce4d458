"""The keys of a recipe for jobs of several ranks: how they are started, traced and reported."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from nsight_prof.orchestrator.recipe.sections import RangeName
from nsight_prof.orchestrator.recipe.values import Bytes, Model, Text, VariableName, Words

WORKER_BYTES = 768 << 20
"""Memory that a process needs for the tables of a rank."""
KEYS_ELSEWHERE = {
    "per_node": "of torchrun, ranks.count is of each node; else the launcher's: options",
    "nodes": "name them in ranks.options: [--nnodes=2] (torchrun), [--host, 'a:8,b:8'] (mpirun), "
    "[--nodelist=a,b] (srun)",
    "how": "ranks.counters says how: one-rank, one-pass, application; samples: ranks.gpu_metrics",
    "engine": "it stands beside `ranks`, not in it: engine: {workers: 8}",
}


def _chosen_ranks(value: object) -> object:
    """Turn [0, 8], {every: 8} and {roles: [prefill]} into what `prof rank --trace` takes."""
    if isinstance(value, list | tuple) and all(type(number) is int for number in value):
        return ",".join(map(str, value))
    if isinstance(value, dict) and len(value) == 1:
        ((key, chosen),) = value.items()
        if key == "every" and type(chosen) is int:
            return f"every:{chosen}"
        if key == "roles" and isinstance(chosen, list | tuple) and chosen:
            return f"role:{','.join(map(str, chosen))}"
    if isinstance(value, str):
        return value
    raise ValueError("write all, first-of-node, [0, 8], {every: 8} or {roles: [prefill, decode]}")


class Window(Model):
    """The steps that each rank keeps of its trace: the same ones, so that all begin together."""

    steps: Annotated[
        tuple[Annotated[int, Field(ge=1)], Annotated[int, Field(ge=1)]], Field(strict=False)
    ] = Field(
        description="First and last step that is kept, from 1: [20, 23]. All of the rank is "
        "traced, and cut to them."
    )
    nvtx: RangeName = Field(default="step", description="Name of the NVTX range that is a step.")

    @model_validator(mode="before")
    @classmethod
    def _no_capture(cls, data: Any) -> Any:
        if isinstance(data, str) or (isinstance(data, dict) and "steps" not in data):
            raise ValueError(
                "a window is steps: {steps: [20, 23], nvtx: step}. One NVTX range, or what the "
                "program brackets itself, is a capture, beside `ranks`: capture: {nvtx: NAME} or "
                "profiler-api; a server that runs already is measured by running-server"
            )
        return data

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.steps[0] > self.steps[1]:
            raise ValueError(f"steps: {self.steps[0]} is after {self.steps[1]}")
        return self


class Ranks(Model):
    """A job of several ranks, whose launcher prof starts; `prof rank` traces its ranks."""

    launcher: Literal["torchrun", "mpirun", "srun", "ray", "own"] = Field(
        default="torchrun",
        description="What starts the ranks: torchrun (of the target's Python), mpirun, srun, ray "
        "(a task with a GPU for each, of the cluster of `engine`), or own: the program starts them "
        "itself, as vLLM does, and its trace becomes a rank for each process that uses a GPU.",
    )
    count: int = Field(ge=1, description="Number of ranks; of torchrun, of ranks on each node.")
    options: Words = Field(
        default=(), description="More options for the launcher: [--nnodes=2, --rdzv-endpoint=a]."
    )
    trace: Annotated[
        str,
        BeforeValidator(_chosen_ranks),
        WithJsonSchema({"type": ["string", "array", "object"]}, mode="validation"),
    ] = Field(
        default="",
        description="Ranks to trace: all, first-of-node, every:8 or {every: 8}, numbers (0,8 or "
        "[0, 8]), role:prefill or {roles: [prefill]}. Empty: all of up to 8 ranks, else "
        "first-of-node.",
    )
    role_from: VariableName | None = Field(
        default=None,
        description="Environment variable that holds the role of a rank. Default: ROLE_NAME, in "
        "which torchrun puts what its --role was given.",
    )
    window: Window | None = Field(
        default=None,
        description="Steps that are kept of each rank's trace: {steps: [20, 23], nvtx: step}.",
    )
    gpu_metrics: int | None = Field(
        default=None,
        ge=10,
        le=200_000,
        description="nsys samples the use of SMs, Tensor Cores, DRAM and links of each traced "
        "rank's GPU so often a second (10000), with collectives as they are; null: not.",
    )
    counters: Literal["one-rank", "one-pass", "application"] | None = Field(
        default=None,
        description="The job is started once more, and ncu counts. one-rank: kernels of one rank "
        "other than collectives, with all of counters.sets, while the others wait. one-pass: all "
        "traced ranks, collectives too, by the few counters of one pass. application: these with "
        "all sets, the program run again for each pass, in lockstep (Nsight Compute 2026.1).",
    )
    align: Literal["collectives", "epoch", "none"] = Field(
        default="collectives",
        description="How clocks of ranks are aligned: by the ends of their collectives; by the "
        "clocks of their hosts, within about 1 ms (epoch); or not, and nothing is compared.",
    )
    keep: Literal["traces", "tables", "both"] = Field(
        default="traces",
        description="What the run keeps of each rank: nsys's export and the tables made of it "
        "(traces), the tables alone, or both with the .nsys-rep for the GUI of Nsight Systems. "
        "That holds the environment variables of all processes that nsys saw: do not share it.",
    )
    scratch: Text | None = Field(
        default=None,
        description="Folder on a disk of each node for what nsys writes. Default: $TMPDIR.",
    )
    missing: Literal["report", "fail"] = Field(
        default="report",
        description="What a rank without a trace does to the run: the report names it, or it "
        "fails besides (exit code 1).",
    )

    @model_validator(mode="before")
    @classmethod
    def _elsewhere(cls, data: Any) -> Any:
        for key in data if isinstance(data, dict) else ():
            if key in KEYS_ELSEWHERE:
                raise ValueError(f"there is no ranks.{key}: {KEYS_ELSEWHERE[key]}")
        return data

    @model_validator(mode="after")
    def _of_launcher(self) -> Self:
        if self.launcher == "own":
            for key in ("trace", "options", "gpu_metrics", "counters"):
                if getattr(self, key):
                    raise ValueError(
                        f"leave ranks.{key} out where the program starts its ranks itself; its "
                        "counters are those of a recipe without `ranks`"
                    )
        if self.counters and self.keep == "tables":
            raise ValueError(
                "counters are joined to the kernels of the trace: leave ranks.keep out, or "
                "ranks.counters"
            )
        return self


class Engine(Model):
    """What makes the tables of a job's ranks."""

    kind: Literal["local", "ray"] = Field(
        default="local", description="local: processes of this machine. ray: a cluster that runs."
    )
    address: Text = Field(
        default="",
        description="Of Ray: HOST:6379 or ray://HOST:10001. Default: RAY_ADDRESS, else this "
        "machine's.",
    )
    workers: int = Field(
        default=1, ge=1, description="local: ranks at a time, each in a process of its own."
    )
    memory: Bytes = Field(
        default=WORKER_BYTES,
        description="Of Ray: memory that each worker needs, 2GiB or 512MiB; Ray starts no more of "
        "them on a node than it has memory for.",
    )

    @model_validator(mode="after")
    def _of_kind(self) -> Self:
        others = ("workers",) if self.kind == "ray" else ("address", "memory")
        for key in others:
            if getattr(self, key) != Engine.model_fields[key].default:
                known = "Ray has a worker for each CPU" if self.kind == "ray" else "it is Ray's"
                raise ValueError(f"leave engine.{key} out of kind: {self.kind}; {known}")
        return self
