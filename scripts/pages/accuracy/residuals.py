"""What served models took beyond predictions: the files that move and bound other predictions."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from nsight_prof.orchestrator.predict.networks import Measured, measured_networks
from nsight_prof.orchestrator.predict.plan import speed_of
from nsight_prof.parsers.build.telemetry_tables import host_speed_file
from nsight_prof.parsers.cells import Row
from nsight_prof.parsers.operations.networks import EAGER, network_time, read_network
from nsight_prof.parsers.predict.corrections import (
    HOSTS,
    KERNELS,
    LAYER_BEYOND,
    LAYER_IN_GRAPHS,
    LONG,
    LONG_TOKENS,
    LOOP_ALONE,
    LOOP_REQUEST,
    LOOP_TOKEN,
    MEASURED_HOSTS,
    RANK_WAIT,
    SERVED_KINDS,
    SHORT,
    SLICE,
    TPOT,
    TRACED_BEYOND,
    TRACED_IN_GRAPHS,
)
from nsight_prof.parsers.predict.costs import datasheet
from nsight_prof.parsers.predict.serving import HOST
from nsight_prof.parsers.predict.validation import POINT
from scripts.pages.accuracy import peer
from scripts.pages.accuracy.captures import (
    BATCH_CASE,
    ROOT,
    held_out_rows,
    recorded,
    uncorrected,
    uncorrected_plan,
)
from scripts.pages.accuracy.questions import (
    BUSY_AGAIN_PAIRS,
    BUSY_PAIRS,
    DENSE_TOLD,
    EVERY_SERVED,
    EXPERTS,
    EXTENDED_PAIRS,
    H100_CLASSES,
    H100_PAIRS,
    KERNELS_RUNS,
    LATENT_PAIR,
    LATER,
    NGRAM_PAIRS,
    SAME_PAIRS,
    SERVERS_RECORDED,
    SIXTH_PAIRS,
    SLICED,
    TOLD_PAIRS,
    Pair,
)
from scripts.pages.accuracy.texts import (
    HOST_RESIDUALS_INTRO,
    HOST_SPEEDS_INTRO,
    POINT_RESIDUALS_INTRO,
    RESIDUALS_INTRO,
    SLOWDOWNS_INTRO,
)

RESIDUALS = ROOT / "parsers" / "predict" / "residuals.yaml"
BATCH_KINDS = ("batch throughput", "batch tpot", "batch ttft gpu")
OPEN_RATE = "open throughput"
HOST_KINDS = ("batch ttft host", "batch ttft host in graphs")
POINT_RESIDUALS = RESIDUALS.with_name("point_residuals.yaml")
SLOWDOWNS = RESIDUALS.with_name("slowdowns.yaml")
HOST_SPEEDS = RESIDUALS.with_name("host_speeds.yaml")
HOST_RESIDUALS = ROOT / "parsers" / "operations" / "host_residuals.yaml"
NETWORK_KERNELS, NETWORKS = "h100-network-kernels", "prediction/networks-h100"


def slowdowns(work: Path) -> str:
    """Return slowdowns.yaml: how many times as long prompts took under the power limit, by slice.

    Of dense models in 16 bits, by GPU and model.
    """
    found = _found()
    pairs = [*(pair for question in SLICED for pair in question.pairs), SIXTH_PAIRS[0]]
    for sources, (name, *_) in pairs:
        truth = recorded(work, name)
        slowdown = uncorrected_plan(work, name, sources).traced_power.slowdown
        found[datasheet(truth.gpu_name).name][truth.model].append(slowdown)
    lines = [SLOWDOWNS_INTRO]
    for gpu, models in found.items():
        lines += [f"{gpu}:", *_lines_of(models, "  ")]
    return "\n".join(lines) + "\n"


def residuals(work: Path) -> str:
    """Return residuals.yaml: measured over predicted of the batches of served models.

    Predicted without any correction, held out; copies of captures are made below `work`.
    """
    truths = [truth for q in SLICED for _, names in q.pairs for truth in names]
    pairs: dict[str, list[Pair]] = {
        SLICE: [*(pair for question in SLICED for pair in question.pairs), *DENSE_TOLD],
        KERNELS: [(KERNELS_RUNS, tuple(truths))],
    }
    lines = [RESIDUALS_INTRO]
    gpu = recorded(work, truths[0]).gpu_name
    lines.append(f"{datasheet(gpu).name}:")
    for basis, of_basis in pairs.items():
        lines.append(f"  {basis}:")
        lines += _residual_lines(work, of_basis, _kind_of_residual, corrected=False)
    layers = _host_layers(work)
    lines += _grouped(layers.pop(datasheet(gpu).name))
    lines += _rank_waits(work)
    split = datasheet(recorded(work, H100_CLASSES["two H100"][0][1][0]).gpu_name).name
    lines += _grouped(layers.pop(split))
    for machine, found in sorted(layers.items()):
        lines += [f"{machine}:", *_grouped(found)]
    return "\n".join(lines) + "\n"


Found = dict[str, dict[str, list[float]]]
"""Numbers by what they are of and by model."""


def _found() -> Found:
    return defaultdict(lambda: defaultdict(list))


def _grouped(found: Found) -> list[str]:
    """Return lines of YAML below a machine."""
    return [line for kind, models in sorted(found.items())
            for line in (f"  {kind}:", *_lines_of(models, "    "))]  # fmt: skip


def _host_layers(work: Path) -> dict[str, Found]:
    """Return ms in which the host issued a layer of short prompts, by machine, kind and model.

    Of single prompts, by the clock of the engine, whose first step issues them and waits for
    nothing. Over several GPUs other processes do it, whose clocks were not read. Of models whose
    layers are launched otherwise than dense ones it is over what the slice's trace says.
    """
    found: dict[str, Found] = defaultdict(_found)
    found[HOSTS] |= _event_loops(work)
    dense = [pair for name, of in H100_CLASSES.items()
             if name not in ("one H100, experts", "two H100") for pair in of]  # fmt: skip
    pairs = [*(pair for question in SLICED for pair in question.pairs), *dense, *DENSE_TOLD]
    others = [*EXPERTS.pairs, *H100_CLASSES["one H100, experts"], LATENT_PAIR, *EXTENDED_PAIRS,
              *(pair for pair in NGRAM_PAIRS if "lora" in pair[1][0]), SAME_PAIRS[2]]  # fmt: skip
    for sources, names in (*pairs, *others):
        for name in names:
            truth = recorded(work, name)
            planned = uncorrected_plan(work, name, sources)
            predictor, trace = planned.predictor(), planned.trace
            layers, machine = predictor.shape.layers, datasheet(truth.gpu_name).name
            for load, row in truth.points():
                if load.batch != 1 or load.prompt >= LONG_TOKENS:
                    continue
                within = bool(predictor.engine.rows(load.steps()[0]))
                clock = truth.table("host_steps")
                firsts = clock["case"].eq(row["case"]) & clock["index"].eq(0)
                issued = float(clock[firsts]["seconds"].median())
                if (sources, names) in pairs:
                    kind = LAYER_IN_GRAPHS if within else LAYER_BEYOND
                    found[machine][kind][truth.model].append(1e3 * issued / layers)
                elif trace is not None and not math.isnan(issued):
                    kind = TRACED_IN_GRAPHS if within else TRACED_BEYOND
                    of_trace = issued / trace.issue_s(layers, in_graphs=within)
                    found[HOSTS][kind][truth.model].append(of_trace)
    return found


def _event_loops(work: Path) -> Found:
    """Return what the event loops of recorded servers add, in ms, by what and by model."""
    found = _found()
    for name in SERVERS_RECORDED:
        server = recorded(work, name)
        loop = (*server.around_engine(), server.token_s())
        for kind, seconds in zip((LOOP_ALONE, LOOP_REQUEST, LOOP_TOKEN), loop, strict=True):
            if math.isfinite(seconds):
                found[kind][server.model].append(1e3 * seconds)
    return found


def _rank_waits(work: Path) -> list[str]:
    """Return lines of YAML: measured less predicted seconds of steps over several GPUs, by model.

    Of batches whose prompts fit one step: others have steps with prompts in their TPOT.
    """
    found: dict[str, list[float]] = defaultdict(list)
    for sources, (name,) in H100_CLASSES["two H100"]:
        truth = recorded(work, name)
        for row in uncorrected(work, name, sources):
            case = BATCH_CASE.fullmatch(str(row["case"] or ""))
            if case is None or row["name"] != "tpot":
                continue
            if int(case["batch"]) * int(case["prompt"]) <= peer.STEP_TOKENS:
                found[truth.model].append(float(row["measured"]) - float(row["predicted"]))
    gpu = datasheet(truth.gpu_name).name
    waits = [f"    {model}: [{', '.join(f'{wait:.6f}' for wait in sorted(of))}]"
             for model, of in sorted(found.items())]  # fmt: skip
    return [f"{gpu}:", f"  {RANK_WAIT}:", *waits]


def point_residuals(work: Path) -> str:
    """Return point_residuals.yaml: the same of whole points, with steps that are corrected."""
    pairs = [*(pair for question in SLICED for pair in question.pairs), *DENSE_TOLD]
    pairs += (pair for machine in LATER for pair in machine.pairs)
    gpu = recorded(work, pairs[0][1][0]).gpu_name
    lines = _residual_lines(work, pairs, _kind_of_batch, corrected=True)
    lines += _residual_lines(work, EVERY_SERVED, _kind_of_load, corrected=True, by_engine=True)
    engines = [*(pair for question in (*SLICED, EXPERTS) for pair in question.pairs), *H100_PAIRS]
    hosts = _residual_lines(work, engines, _kind_of_host, corrected=True)
    pairs = [*TOLD_PAIRS, *BUSY_PAIRS, *BUSY_AGAIN_PAIRS]
    measured = _residual_lines(work, pairs, _kind_of_host, corrected=True, by_engine=True)
    found = [POINT_RESIDUALS_INTRO, f"{datasheet(gpu).name}:", *lines, f"{HOSTS}:", *hosts]
    found += [f"{MEASURED_HOSTS}:", *measured]
    return "\n".join(found) + "\n"


def host_residuals(work: Path) -> str:
    """Return host_residuals.yaml: what the host needs for whole networks over their operations."""
    measured = Measured((recorded(work, NETWORK_KERNELS),))
    found: dict[str, list[float]] = defaultdict(list)
    for name, batch, launch, seconds in measured_networks(recorded(work, NETWORKS)):
        if launch == EAGER:
            network = read_network(name).at(batch)
            time = network_time(measured.kernels, network, launch, measured.l2_bytes)
            if time.bound == HOST:
                found[name].append(seconds / time.host_s)
    return "\n".join([HOST_RESIDUALS_INTRO, *_lines_of(found, "")]) + "\n"


def _residual_lines(
    work: Path,
    pairs: Sequence[Pair],
    kind_of: Callable[[Row], str],
    *,
    corrected: bool,
    by_engine: bool = False,
) -> list[str]:
    """Return lines of YAML: measured over predicted values by kind and model, held out.

    `by_engine`: those of each engine by themselves.
    """
    found = _found()
    for sources, names in pairs:
        for name in names:
            errors_of = held_out_rows if corrected else uncorrected
            for row in errors_of(work, name, sources):
                if kind := kind_of(row):
                    truth = recorded(work, name)
                    group = f"{truth.model}, {truth.name}" if by_engine else truth.model
                    found[kind][group].append(float(row["measured"]) / float(row["predicted"]))
    lines = []
    for kind, models in sorted(found.items()):
        lines += [f"    {kind}:", *_lines_of(models, "      ")]
    return lines


def _lines_of(found: Mapping[str, Sequence[float]], indent: str) -> list[str]:
    """Return a line of YAML for each model or network."""
    return [
        f"{indent}{name}: [{', '.join(f'{value:.4f}' for value in sorted(values))}]"
        for name, values in sorted(found.items())
    ]


def _kind_of_batch(row: Row) -> str:
    """Return which residual of a whole point an error is; empty where it is none."""
    return str(row["kind"]) if row["scope"] == POINT and row["kind"] in BATCH_KINDS else ""


def _kind_of_load(row: Row) -> str:
    """Return the same of a load of a server.

    Throughput of random arrivals is their rate up to the capacity, and beyond it something else.
    """
    found = str(row["kind"])
    chosen = found.startswith(SERVED_KINDS) and found != OPEN_RATE
    return found if row["scope"] == POINT and chosen else ""


def _kind_of_host(row: Row) -> str:
    """Return which residual of a point that waits for the host an error is; empty: none."""
    return str(row["kind"]) if row["scope"] == POINT and row["kind"] in HOST_KINDS else ""


def _kind_of_residual(row: Row) -> str:
    """Return which residual an error is; empty where it is none: of another load or quantity."""
    kinds = {"batch tpot": TPOT, "batch ttft gpu": LONG, "batch ttft host": SHORT}
    return kinds.get(str(row["kind"]), "") if row["scope"] == POINT else ""


def host_speeds(work: Path) -> str:
    """Return the file of how fast recorded hosts were: the mean of the loop beside each run."""
    captures = ROOT / "captures"
    lines: dict[str, list[str]] = defaultdict(list)
    files = sorted(captures.rglob(host_speed_file("*") + "*"))
    for run in dict.fromkeys(file.parents[2].relative_to(captures).as_posix() for file in files):
        speed = speed_of(recorded(work, run))
        assert speed is not None, run
        lines[speed.clock].append(f"  {run}: {1e6 * speed.loop_s:.1f}\n")
    groups = (f"{clock}:\n" + "".join(of_clock) for clock, of_clock in sorted(lines.items()))
    return HOST_SPEEDS_INTRO + "".join(groups)
