"""How far served models lie from predictions of their steps: what intervals rest on.

residuals.yaml holds measured over predicted medians of recorded serving points, by GPU, by what was
predicted from and by model, and point_residuals.yaml those of whole points, batches and closed
loops of servers, with steps that are corrected; slowdowns.yaml how the power limit slowed slices.
scripts/accuracy.py writes them from captures/.
Steps of a model are moved by the median of the residuals of other models. They are bounded by
conformal prediction with groups: how far the residuals of each model lie from the median of the
others, at the percentile that holds 90 %, corrected for their finite number. As few models say
little of the next one, that width is scaled to hold 90 % of models that are left out once more.
Each model counts as much as another. Over several GPUs steps are longer by what ranks wait for
each other, as other models over several GPUs had it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from nsight_prof.parsers.packaged import packaged_yaml
from nsight_prof.parsers.predict.operators import Step

KERNELS, SLICE = "kernels", "slice"
"""What a prediction rests on: measured kernels alone, or recorded layers of the model."""
RANK_WAIT = "rank_wait_s"
HOSTS = "hosts"
"""Machine of residuals of prompts that wait for the host: it is another one with each start, at one
of two speeds, whichever GPU it has, so that all engines count."""
MEASURED_HOSTS = "measured hosts"
"""The same of prompts whose host a narrow engine told: engines differ more than models there, and
count by themselves."""
LAYER_IN_GRAPHS, LAYER_BEYOND = "layer_in_graphs_ms", "layer_beyond_graphs_ms"
"""What the host needs to issue a layer of a prompt, within CUDA graphs and beyond them."""
TRACED_IN_GRAPHS, TRACED_BEYOND = "traced_in_graphs", "traced_beyond_graphs"
"""What the host needs to issue prompts of models whose layers are launched otherwise than dense
ones, within CUDA graphs and beyond them, over what the trace of a slice says."""
LOOP_ALONE, LOOP_REQUEST, LOOP_TOKEN = "loop_alone_ms", "loop_request_ms", "loop_token_ms"
"""What a server's event loop adds: to a request alone with its way, of each more, of each token."""
TPOT, LONG, SHORT = "tpot", "ttft_long", "ttft_short"
LONG_TOKENS = 1000
"""Tokens of prompts from which on the GPU decides their time, and not the host."""
THROUGHPUT = "throughput"
GPU_PROMPTS = "batch ttft gpu"
"""Points whose first token waits for the GPU: what predictions of them miss is the power limit and
the gaps of long steps, whichever type of weights and however many GPUs there are."""
SERVED_KINDS = ("closed ", "open ")
"""Beginnings of the kinds of a server's loads: what predictions of them miss is the host and the
queue, however many GPUs there are."""
RANKS_WIDER = 1.75
"""How many times as far first tokens that wait for the hosts of several GPUs may lie from what is
predicted: five engines of two models over two GPUs, too few for an interval of their own."""
FEWEST = 3
"""Models that must have residuals: of one that is left out two others must tell the spread."""
HOLDS = 0.9
"""Part of the residuals of a model that is left out which an interval shall hold."""


class Factors(NamedTuple):
    """What a predicted time is multiplied by, for its value and the bounds of its interval."""

    value: float
    low: float
    high: float

    def wider(self, times: float) -> Factors:
        """Return the same with bounds that are so many times as far away."""
        low, high = (self.value * (end / self.value) ** times for end in (self.low, self.high))
        return Factors(self.value, low, high)


@dataclass(frozen=True)
class Correction:
    """Factors of the steps of a model: those that generate, and those of long and short prompts.

    `host`: what the host takes to issue prompts outside of CUDA graphs, over what a slice tells.
    `bounded`: the intervals of steps and points are those of the residuals; else, as for engines
    over several GPUs and fp8, which no residual has, what each operator may miss by itself is added
    to those of steps, as independent errors are.
    `models`: so many were served. `points`: bounds of whole points, by how requests come and by
    what: "batch throughput".
    """

    decode: Factors
    long: Factors
    short: Factors
    host: float = 1.0
    bounded: bool = True
    models: int = 0
    points: Mapping[str, Factors] = field(default_factory=dict)

    def of(self, step: Step) -> Factors:
        """Return the factors of a step."""
        if not step.prefill:
            return self.decode
        return self.long if step.tokens >= LONG_TOKENS else self.short

    def unbounded(self, *kinds: str) -> Correction:
        """Return the same without intervals of points but of `kinds`, and those of steps a part.

        `kinds`: how they begin.
        """
        points = {kind: found for kind, found in self.points.items() if kind.startswith(kinds)}
        return replace(self, bounded=False, points=points)

    def of_decode(self) -> Correction:
        """Return the same that moves steps without prompts alone.

        What a profiler adds to a graph is the same in all types of weights; what the power limit
        takes from prompts is not.
        """
        wide = Factors(1.0, self.long.low / self.long.value, self.long.high / self.long.value)
        return replace(self.unbounded(GPU_PROMPTS), long=wide, short=wide, host=1.0)


def correction(
    gpu: str,
    basis: str,
    unseen: str = "",
    host_known: bool = False,
    begins: tuple[str, ...] = ("",),
) -> Correction | None:
    """Return how served models lie from predictions; None where too few were recorded.

    Args:
        gpu: key of its datasheet.
        basis: KERNELS or SLICE.
        unseen: model whose own residuals do not count, since it is held out.
        host_known: how long the host needs was recorded, so that short prompts are not moved.
        begins: how the kinds of points begin that are asked for.
    """
    found = packaged_yaml("nsight_prof.parsers.predict", "residuals.yaml").get(gpu, {}).get(basis)
    if found is None or len(found[TPOT].keys() - {unseen}) < FEWEST:
        return None
    long, short, host = factors(found[LONG], unseen), factors(found[SHORT], unseen), 1.0
    if host_known:  # short prompts wait for it, and on the GPU for weights as steps that generate
        short, host = factors(found[TPOT], unseen), short.value
    points = points_of(gpu, unseen, begins) if basis == SLICE else {}
    models = len(found[TPOT].keys() - {unseen})
    return Correction(factors(found[TPOT], unseen), long, short, host, models=models, points=points)


def points_of(
    machine: str, unseen: str = "", begins: tuple[str, ...] = ("",)
) -> dict[str, Factors]:
    """Return the factors of whole points by kind, of those that enough models have.

    Args:
        machine: key of a GPU's datasheet, or HOSTS or MEASURED_HOSTS: the host of whichever GPU.
        unseen: model whose own residuals do not count, since it is held out.
        begins: how the kinds begin that are asked for.
    """
    by_kind = packaged_yaml("nsight_prof.parsers.predict", "point_residuals.yaml").get(machine, {})
    return {kind: factors(of, unseen) for kind, of in by_kind.items()
            if kind.startswith(begins)
            and len({_model(name) for name in of} - {unseen}) >= FEWEST}  # fmt: skip


def rank_wait_s(gpu: str, unseen: str = "") -> float:
    """Return what a step that generates takes longer over several GPUs than one rank's kernels.

    Ranks wait for each other: between steps, and longer where the host of one is late. As that
    does not depend on the model, it is in seconds: the median of served models. 0.0: none was.

    Args:
        gpu: key of its datasheet.
        unseen: model whose own steps do not count, since it is held out.
    """
    found = packaged_yaml("nsight_prof.parsers.predict", "residuals.yaml").get(gpu, {})
    waits = [np.array(of) for model, of in found.get(RANK_WAIT, {}).items() if model != unseen]
    return _percentile(waits, 50) if waits else 0.0


def host_layer_s(gpu: str, unseen: str = "") -> tuple[float, float] | None:
    """Return what the host needs for a layer of prompts, beyond CUDA graphs and within them, in s.

    The median of served models without experts, latent attention, drafts or adapters, whose layers
    are launched as often: which machine will serve the next one is not known, and a slice was
    recorded on one of many. Machines with one kind of GPU are more alike than all are; where too
    few models were served on those, and of several GPUs, whose ranks are processes of their own,
    all count. None: too few were served.

    Args:
        gpu: key of the datasheet of the single GPU beside the host; empty: there are several.
        unseen: model whose own engines do not count, since it is held out.
    """
    found = packaged_yaml("nsight_prof.parsers.predict", "residuals.yaml")
    middles = []
    for name in (LAYER_BEYOND, LAYER_IN_GRAPHS):
        here = _others(found.get(gpu, {}).get(name, {}), unseen)
        every = [*found.values()] if len(here) < FEWEST else [found[gpu]]
        by_model: dict[str, list[float]] = {}
        for of_machine in every:
            for model, times in _others(of_machine.get(name, {}), unseen).items():
                by_model[model] = [*by_model.get(model, []), *times]
        if len(by_model) < FEWEST:
            return None
        middles.append(_percentile([np.array(times) for times in by_model.values()], 50) / 1e3)
    return middles[0], middles[1]


def power_slowdown(gpu: str, unseen: str = "") -> float | None:
    """Return how many times as long prompts take under a GPU's power limit: the median of slices.

    Args:
        gpu: key of its datasheet.
        unseen: model whose own slice does not count, since it is held out.

    Returns:
        None where too few slices of dense models in 16 bits were recorded on it.
    """
    found = packaged_yaml("nsight_prof.parsers.predict", "slowdowns.yaml").get(gpu, {})
    others = _others(found, unseen)
    if len(others) < FEWEST:
        return None
    return _percentile([np.array(of) for of in others.values()], 50)


def traced_host(unseen: str = "") -> tuple[float, ...] | None:
    """Return how many times as long as its trace says the host of a model needs to issue prompts.

    Beyond CUDA graphs and within them, the median of served models with experts, latent attention,
    a head that drafts or adapters: nsys lengthens their many launches. None: too few were served.

    Args:
        unseen: model whose own engines do not count, since it is held out.
    """
    return _medians((TRACED_BEYOND, TRACED_IN_GRAPHS), unseen)


def event_loop_s(unseen: str = "") -> tuple[float, float, float] | None:
    """Return what the event loop of a server adds, in s: LOOP_ALONE, LOOP_REQUEST and LOOP_TOKEN.

    The medians of recorded servers; it is the same program in front of all models. None: too few
    were recorded.

    Args:
        unseen: model whose own servers do not count, since it is held out.
    """
    found = _medians((LOOP_ALONE, LOOP_REQUEST, LOOP_TOKEN), unseen)
    if found is None:
        return None
    alone, request, token = (milliseconds / 1e3 for milliseconds in found)
    return alone, request, token


def _medians(names: Sequence[str], unseen: str) -> tuple[float, ...] | None:
    """Return the medians over models of what hosts need; None where too few models tell one."""
    found = packaged_yaml("nsight_prof.parsers.predict", "residuals.yaml").get(HOSTS, {})
    others = [_others(found.get(name, {}), unseen) for name in names]
    if min(map(len, others)) < FEWEST:
        return None
    return tuple(_percentile([np.array(of) for of in known.values()], 50) for known in others)


def _others(found: Mapping[str, list[float]], unseen: str) -> dict[str, list[float]]:
    """Return what was found of other models than `unseen`."""
    return {model: of for model, of in found.items() if model != unseen}


def factors(residuals: Mapping[str, list[float]], unseen: str = "") -> Factors:
    """Return the factors that measured over predicted values of models give, `unseen` left out.

    There are three models at least.
    """
    known = [np.log(found) for name, found in residuals.items() if _model(name) != unseen]
    middle, width = _spread(known)
    scores = []
    for number, found in enumerate(known):
        middle_of_others, width_of_others = _spread([*known[:number], *known[number + 1 :]])
        scores.append(np.abs(found - middle_of_others) / width_of_others)
    width *= _percentile(scores, 100 * HOLDS)
    return Factors(*map(float, np.exp([middle, middle - width, middle + width])))


def _model(name: str) -> str:
    """Return the model of residuals, which may be of one of its engines: `model, run`."""
    return name.partition(", ")[0]


def _spread(models: Sequence[np.ndarray]) -> tuple[float, float]:
    """Return the median of logarithms, and how far such of a model lie from that of the others."""
    off = [
        np.abs(found - _percentile([*models[:number], *models[number + 1 :]], 50))
        for number, found in enumerate(models)
    ]
    quantile = HOLDS * (1 + 1 / sum(map(len, models)))
    return _percentile(models, 50), _percentile(off, 100 * min(1.0, quantile))


def _percentile(models: Sequence[np.ndarray], level: float) -> float:
    """Return a percentile of residuals, of which those of each model weigh one together."""
    values = np.concatenate(models)
    sizes = [len(found) for found in models]
    weights = np.repeat([1 / size for size in sizes], sizes)
    order = np.argsort(values)
    below = (np.cumsum(weights[order]) - weights[order] / 2) / weights.sum()
    return float(np.interp(level / 100, below, values[order]))
