"""Writes how far whole networks lie from the sum of their measured operations, and the models."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from nsight_prof.orchestrator.predict.networks import Measured, measured_networks
from nsight_prof.orchestrator.predict.run_folder import opened
from nsight_prof.parsers.build.load import load_run
from nsight_prof.parsers.cells import records
from nsight_prof.parsers.operations.networks import EAGER, read_network
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.studies.gemm_staircase import section as gemm_staircase
from nsight_prof.reports.studies.network_kernels import section as network_kernels

CAPTURES = Path(__file__).resolve().parents[2] / "captures"
SWEEP, STAIRCASE = "h100-network-kernels", "h200-gemm-staircase"
TRUTHS = (
    "prediction/networks-h100",
    "prediction/networks-h100-compiled",
    "prediction/networks-lstm-large-h100",
)
BEFORE = CAPTURES / "prediction" / "before" / "networks-h100.csv"
HOW = {
    "eager": "launched by the host",
    "graph": "CUDA graph",
    "compiled-graph": "compiled, CUDA graph",
}

INTRO = """\
# Predicting whole networks

`prof run network-kernels` measures convolutions, LSTMs, norms, softmax, pooling, elementwise
operations, linear layers and attention over their sizes; `prof predict` adds them up to a pass of a
network that nobody measured. It needs no GPU and no torch:

```
prof predict resnet-50 --on captures/h100-network-kernels --batch 1,16,64
prof predict mine.json --on runs/network-kernels          # a network of your own
prof predict --validate RUN --on runs/network-kernels     # against networks that RUN measured whole
```

Bundled lists of operations are `resnet-50` (also `-nchw`, `-tf32`), `vit-b-16`, `lstm-medium` and
`lstm-large`. One of your own comes from any torch module, on the meta device:
`python targets/static_compute.py mine.py:make --out mine.json`, where `make()` returns the module
and the inputs of one image or sequence. `--batch` multiplies what is listed.

## What is accounted for, and what is not

- **An operation** takes a smooth roofline (a fixed time, computing, moving through DRAM or L2),
  fitted to measured cases of its kind, type and layout, and moved by what near sizes differ from
  it. Of a shape that was measured at other batches only the batch is interpolated (tier T2).
- **A pass** is the sum of its operations. Activations are taken to be where the operation before
  left them; weights come from DRAM unless all of them and the largest activations fit the L2 cache.
- **Launched by the host** it takes what the host needs for all operations, by the smallest size of
  each, where that is longer, moved and bounded by what other networks needed beyond that.
- **Compiled**: operations between products are one kernel that moves its inputs and output once.
- **Not accounted for**: kernels that overlap (programmatic dependent launch, several streams);
  kernels that a compiler fuses into products, or convolutions that it turns into others; what the
  power limit takes under sustained load; how fast the host is at the time, which is what is missed
  most of passes that it launches: the same 125 operations of ViT-B/16 took it 3.5 ms or 5.5.
- An operation that no run has measured is refused.
"""
AGAINST = """
## Against networks measured whole

Recorded on an H100. Predictions were computed by committed code from the sweep, and committed
before the times of the networks were looked at; no time of a whole network is in any model.
ResNet-50 in bf16 channels-last, in torch's own order (`-nchw`) and in FP32 with TF32 (`-tf32`);
ViT-B/16 in bf16; LSTM language models of 2 x 650 and 2 x 1500 in fp16 over 35 tokens.

What the networks in CUDA graphs read had been freed when they were replayed: their times are of the
same kernels, but the process ended at an index that had been overwritten, before the larger LSTM
(mended since; it was recorded hours later). Compiled networks were recorded in a process of their
own.
"""
AGAIN = """
Passes that the host launches, predicted again: since then the host is moved by the median of what
other networks needed beyond their operations, and bounded so that networks which are left out lie
within (`parsers/operations/host_residuals.yaml`: 16 passes of five networks, three of which are a
ResNet-50). Each network is left out of what moves and bounds it; how was chosen with them at hand.
"""
MODELS = """
## Between the sizes

Each shape left out of the fit in turn (other shapes), and each batch between two others of a shape
(other batches). Mean absolute errors; hot: on buffers that were used just before.
"""
DELAY = """
## The delay factor

Time over a size is a smooth roofline times one plus a small oscillation, from waves of tiles and
from DRAM. The strongest period is searched in what the smooth part leaves; it counts as real where
its amplitude lies above the noise, where shuffled residuals explain as much in at most 1 % of 400
shuffles, and where sizes that were left out are predicted better with it. Period of waves: rows of
the pinned tile that fill all SMs once. It needs 24 sizes: memory-patterns and llm-kernels have
fewer of each kind, so that nothing can be said of them.
"""
TOGETHER = """
## Two kernels at the same time

Kernels of small grids on two streams. Predicted, with nothing fitted to pairs: the longest of
either alone, of the FLOPs and the bytes of both at the highest rates that any kernel alone
reached, and, where their threads are not all resident at once, of the sum of their slots. Wide
fills the FMA pipe of an SM with one block, narrow a quarter of it, copy moves data through DRAM.
Blocks of both are taken to be spread evenly over the SMs. Different kernels that each have a block
for every SM take longer than that, some longer than one after the other: two blocks of one kernel
may share an SM while another SM has none, which was not measured.
"""


def networks_page() -> str:
    """Return the page; tables whose captures are not there are left out."""
    with tempfile.TemporaryDirectory() as folder:
        runs = dict(_runs(Path(folder)))
        studies = {STAIRCASE: gemm_staircase, SWEEP: network_kernels}
        numbers: dict[str, Mapping[str, Any]] = {
            name: section.numbers
            for name, study in studies.items()
            if name in runs and (section := study.section(runs[name])) is not None
        }
        parts = [INTRO]
        truths = [Path(folder) / name for name in TRUTHS if name in runs]
        if truths and BEFORE.is_file():
            parts += [AGAINST, *_against(truths)]
            if SWEEP in runs:
                parts += [AGAIN, _again(Path(folder) / SWEEP, truths[0])]
        if SWEEP in numbers:
            parts += [MODELS, _models(numbers[SWEEP]["models"])]
        parts += [DELAY, _delays(numbers)]
        if SWEEP in numbers and numbers[SWEEP]["side_by_side"]:
            parts += [TOGETHER, _together(numbers[SWEEP]["side_by_side"])]
    return "".join(parts)


def _runs(work: Path) -> Iterator[tuple[str, Run]]:
    for name in (SWEEP, *TRUTHS, STAIRCASE):
        if (CAPTURES / name).is_dir():
            shutil.copytree(CAPTURES / name, work / name)
            opened(work / name)
            yield name, load_run(work / name)


def _against(truths: Sequence[Path]) -> Iterator[str]:
    """Give the errors of networks by how they are launched, and of each point."""
    before = {(r["network"], r["batch"], r["launch"]): r for r in records(pd.read_csv(BEFORE))}
    rows = []
    measured = [point for truth in truths for point in measured_networks(opened(truth))]
    for name, batch, launch, seconds in measured:
        if row := before.get((name, batch, launch)):
            rows.append({
                "network": name, "batch": batch, "launch": launch, "measured": seconds,
                "predicted": row["seconds"], "error": row["seconds"] / seconds - 1,
                "covered": row["low"] <= seconds <= row["high"], "tier": row["tier"],
            })  # fmt: skip
    yield "\n" + _sums(pd.DataFrame(rows))
    every = [[r["network"], str(r["batch"]), HOW[r["launch"]], _ms(r["measured"]),
              _ms(r["predicted"]), _signed(r["error"]), r["tier"]] for r in rows]  # fmt: skip
    heads = ["network", "batch", "how", "measured, ms", "predicted, ms", "error", "tier"]
    yield "\n" + _table(heads, every)


def _again(sweep: Path, truth: Path) -> str:
    """Return the errors of passes that the host launches, each network left out in turn."""
    measured, rows = Measured((opened(sweep),)), []
    for name, batch, launch, seconds in measured_networks(opened(truth)):
        if launch == EAGER:
            time = measured.time(read_network(name).at(batch), launch, unseen=name).seconds
            rows.append({
                "network": name, "launch": launch, "error": time.seconds / seconds - 1,
                "covered": time.low <= seconds <= time.high,
            })  # fmt: skip
    return "\n" + _sums(pd.DataFrame(rows))


def _sums(points: pd.DataFrame) -> str:
    """Return errors by how networks are launched, of each network and of all."""
    sums = []
    for launch, how in HOW.items():
        of_launch = points[points["launch"] == launch]
        groups = [(str(n), g) for n, g in of_launch.groupby("network", sort=False)]
        for name, group in [*groups, ("**all**", of_launch)]:
            if len(group):
                sums.append([how, name, str(len(group)), _percent(group["error"].abs().mean()),
                             _signed(group["error"].mean()),
                             _percent(group["covered"].mean(), 0)])  # fmt: skip
    return _table(["how", "network", "n", "MAPE", "bias", "within interval"], sums)


def _models(models: Mapping[str, Any]) -> str:
    rows = []
    for name, model in models.items():
        errors = {known: [abs(c["error"]) for c in model["held_out"] if c["known_shape"] is known]
                  for known in (True, False)}  # fmt: skip
        rows.append([name, str(model["cases"]), _mean(errors[True]), _mean(errors[False])])
    return "\n" + _table(["operation", "cases", "other batches", "other shapes"], rows)


def _delays(numbers: Mapping[str, Mapping[str, Any]]) -> str:
    rows = []
    for name, of_run in numbers.items():
        for one in of_run["delay_factors"]:
            rows.append([
                name, one["name"], f"{one['period']:,.4g}",
                "–" if one["period_of_waves"] is None else f"{one['period_of_waves']:,.4g}",
                f"{_percent(one['amplitude'])} ± {_percent(2 * one['amplitude_error'])}",
                "yes" if one["fades"] else "no", _percent(one["noise"]),
                f"{_percent(one['left_out_error_smooth'])} → {_percent(one['left_out_error'])}",
                "yes" if one["real"] else "no",
            ])  # fmt: skip
    heads = ["run", "sweep", "period", "period of waves", "amplitude", "fades", "noise",
             "error left out, without → with", "real"]  # fmt: skip
    return "\n" + _table(heads, rows)


def _together(pairs: Mapping[str, Any]) -> str:
    rows = [
        [name, _us(p["in_turn_s"]), _us(p["together_s"]), _us(p["predicted_s"]), p["bound_by"],
         _signed(p["error"])]
        for name, p in pairs.items()
    ]  # fmt: skip
    mean = float(np.mean([abs(p["error"]) for p in pairs.values()]))
    heads = ["kernels x blocks", "one after the other, us", "two streams, us", "predicted, us",
             "bound", "error"]  # fmt: skip
    return "\n" + _table(heads, rows) + f"\nMean absolute error: {_percent(mean)}.\n"


def _mean(values: Sequence[float]) -> str:
    return _percent(float(np.mean(values))) if values else "–"


def _percent(value: float, digits: int = 1) -> str:
    return f"{100 * value:.{digits}f}%"


def _signed(value: float) -> str:
    return f"{100 * value:+.1f}%"


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:,.3g}"


def _us(seconds: float) -> str:
    return f"{1e6 * seconds:,.4g}"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"
