"""The points of the baseline's sweep: which batch of which lengths in which mode of the engine."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from nsight_prof.targets.harness.options import positive, whole
from nsight_prof.targets.serving.options import MODES

EXPERIMENTS = ("latency", "batch", "lengths", "graphs")


@dataclass(frozen=True)
class Point:
    """One batch, generated several times.

    Attributes:
        experiment: one of EXPERIMENTS.
        mode: of the engine, "cuda-graphs" or "eager".
        batch: requests that are added before the first step.
        prompt_tokens: of each request.
        output_tokens: of each request; generation goes on after an end-of-sequence token.
        repeats: of the whole batch that are timed.
        warmups: of the whole batch before them.
    """

    experiment: str
    mode: str
    batch: int
    prompt_tokens: int
    output_tokens: int
    repeats: int
    warmups: int

    @property
    def name(self) -> str:
        """The case's name."""
        shape = f"b{self.batch}/p{self.prompt_tokens}/o{self.output_tokens}"
        return f"{self.experiment}/{self.mode}/{shape}"

    @property
    def tokens(self) -> int:
        """Length of a sequence at its end."""
        return self.prompt_tokens + self.output_tokens

    def params(self, tensor_parallel: int, model: str) -> dict[str, Any]:
        """Return the `params` of the case's record."""
        fields = asdict(self)
        own = {"experiment": fields.pop("experiment"), "engine": fields.pop("mode")}
        return own | fields | {"tensor_parallel": tensor_parallel, "model": model}


def add_point_arguments(parser: ArgumentParser) -> None:
    """Add the sizes of the experiments."""
    group = parser.add_argument_group("experiments")

    def add(name: str, default: Any, text: str, **settings: Any) -> None:
        shown = " ".join(map(str, default)) if isinstance(default, tuple) else default
        several = {"nargs": "+"} if isinstance(default, tuple) else {}
        settings = {"type": positive, "metavar": "N", **several, **settings}
        group.add_argument(name, default=default, help=f"{text} ({shown})", **settings)

    add(
        "--experiments", EXPERIMENTS, "which of them", choices=EXPERIMENTS, type=str, metavar="NAME"
    )
    add("--latency-prompt", 512, "prompt tokens of the single request")
    add("--latency-output", 64, "output tokens of the single request")
    add("--latency-repeats", 20, "how often it is timed")
    add("--batches", (1, 4, 8, 16, 32, 64, 128), "batch sizes")
    add("--batch-prompt", 512, "prompt tokens of each request of a batch")
    add("--batch-output", 128, "output tokens of each request of a batch")
    add(
        "--prompts", (10, 50, 200, 1000, 4000), "prompt lengths of a single request, with --outputs"
    )
    add("--outputs", (50, 100, 200), "output lengths of a single request, with --prompts")
    add("--other-batches", (1, 8, 64), "batch sizes that the other mode of the engine has too")
    add("--repeats", 5, "how often the points other than the latency are timed")
    add("--warmups", 1, "untimed runs before each point", type=whole)


def points(given: Namespace) -> list[Point]:
    """Return the points that a command line asks for, each once; those of one engine together."""
    chosen = dict.fromkeys(_all(given))
    return sorted(chosen, key=lambda point: point.mode != given.mode)


def _all(given: Namespace) -> Iterator[Point]:
    mode, repeats, warmups = given.mode, given.repeats, given.warmups
    shape = (given.batch_prompt, given.batch_output)
    if "latency" in given.experiments:
        single = (given.latency_prompt, given.latency_output)
        yield Point("latency", mode, 1, *single, given.latency_repeats, warmups)
    if "batch" in given.experiments:
        for batch in given.batches:
            yield Point("batch", mode, batch, *shape, repeats, warmups)
    if "lengths" in given.experiments:
        for prompt in given.prompts:
            for output in given.outputs:
                yield Point("lengths", mode, 1, prompt, output, repeats, warmups)
    if "graphs" in given.experiments:
        measured = given.batches if "batch" in given.experiments else ()
        for batch in given.other_batches:
            # What the batch sweep measures is not measured again.
            modes = [other for other in MODES if other != mode or batch not in measured]
            for other in modes:
                yield Point("graphs", other, batch, *shape, repeats, warmups)
