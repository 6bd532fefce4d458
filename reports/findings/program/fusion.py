"""Elementwise kernels in a row that pass data through memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pandas as pd

from nsight_prof.parsers.build.roofline import ceilings
from nsight_prof.parsers.cells import Row, number, records, text
from nsight_prof.parsers.names.torch_elements import torch_elements
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.analysis.kinds import NO_LIBRARY
from nsight_prof.reports.analysis.profiled import kernel_time
from nsight_prof.reports.analysis.timeline import chains
from nsight_prof.reports.findings.gain import of_gpu_time
from nsight_prof.reports.findings.model import Finding
from nsight_prof.reports.findings.program.launch_rules import SMALL_KERNELS
from nsight_prof.reports.findings.program.rule import (
    NSYS,
    Rule,
    Threshold,
    column,
    counters,
    measured,
    names_of,
)
from nsight_prof.reports.page import Evidence, Name, Number, Ref, Text, Value

ELEMENTWISE_CHAIN = Rule(
    key="elementwise_chain",
    question="Do elementwise kernels pass data through memory from one to the next?",
    requires="a trace with single launches",
    thresholds={
        "gain": Threshold(0.01, Text("prof: less than that is within the noise of two runs")),
        "cache": Threshold(
            2,
            Text(
                "prof: a launch that moves this many times what L2 holds leaves little of it "
                "there, so that the bytes of DRAM are those of its threads"
            ),
            "x",
        ),
        "repeats": Threshold(
            3,
            Text(
                "prof: launches of one kernel in a row up to which they may be steps of a chain; "
                "more of them, or each kernel of a row as often as the others, go over the items "
                "of a loop"
            ),
            "count",
        ),
        "inputs": Threshold(
            4,
            Text(
                "prof: bytes loaded for each byte stored up to which a kernel of the program's own "
                "may be elementwise; sums and stencils load more"
            ),
            "x",
        ),
        "whole": Threshold(
            80,
            Text(
                "prof: per cent of useful bytes in the sectors of such a kernel, as for scattered "
                "accesses"
            ),
            "%",
        ),
        "flow": Threshold(
            1.05,
            Text(
                "prof: stored over loaded bytes up to which the next kernel reads all that the one "
                "before wrote, or bytes loaded by both up to which they are the same data"
            ),
            "x",
        ),
        "parts": Threshold(
            2**30,
            Text(
                "prof: bytes of a launch from which on launches of one kernel in a row are parts "
                "of one tensor, which PyTorch divides so that indices fit into 32 bits"
            ),
            "B",
        ),
    },
    gain="time of the chains x bytes passed on, or loaded again, / bytes moved (a sum that each "
    "row of kernels adds to is passed on to the row that follows at once), as the accesses of "
    "threads were counted, else as DRAM read and wrote for launches of `cache` times what L2 holds "
    "and more. Without such counts: all but the longest kernel. A look-up of rows may begin a "
    "chain, and a sum may be in one, where bytes are known. Kernels of no known library count, "
    "with low confidence, where counters show that they load up to `inputs` times what they store, "
    "in whole sectors, without shared memory and atomics, or that DRAM bounds them.",
    action=Text(
        "Fuse the chain: torch.compile, or one Triton or CUDA kernel that reads its inputs once "
        "and writes its result once."
    ),
    advice=Text("do these steps in one pass over the data (torch.compile does so)"),
    disproof=Text(
        "The kernels work on different data, or what they pass on is needed elsewhere too, so that "
        "it must be written anyway."
    ),
)
OPTIMIZER_PASSES = Rule(
    key="optimizer_passes",
    question="Does Adam go over its state once for each operation of its formula?",
    requires="a trace with single launches, and counters of the optimizer's kernels",
    thresholds={
        "gain": ELEMENTWISE_CHAIN.thresholds["gain"],
        "passes": Threshold(
            7,
            Text(
                "PyTorch: a fused Adam reads parameters, gradients and two moments, and writes "
                "all of them but the gradients"
            ),
            "count",
        ),
        "counted": Threshold(
            0.8, Text("prof: part of their time that must have been counted to speak for all of it")
        ),
    },
    gain="time of the kernels of torch._foreach_* that Adam launches x (1 - `passes` x bytes of a "
    "moment / bytes that they move); a moment is what _foreach_lerp_ stores",
    action=Text(
        "Give the optimizer fused=True: one kernel then reads parameters, gradients and moments "
        "once and writes them once, where foreach goes over them for each operation."
    ),
    advice=Text("let the optimizer update its state in one pass (fused=True)"),
    disproof=Text(
        "The optimizer is one without a fused kernel, or what lies between its operations, such as "
        "a norm of its own, is needed."
    ),
)
FOREACH = r"^PyTorch foreach (?:mul|lerp|pointwise op|sqrt|div|add|maximum)\b"
"""Kernels of an optimizer that works on all tensors at once, operation by operation."""
OF_ADAM = ("PyTorch foreach lerp", "PyTorch foreach sqrt", "PyTorch foreach pointwise op")
"""Those of Adam's moments, of its denominator and of its step."""
BAGS = Text(
    "Sum rows while they are looked up: torch.nn.functional.embedding_bag for an embedding that is "
    "summed, else one kernel for both (torch.compile, Triton), which never writes the rows."
)
"""What to do about look-ups whose rows are summed."""
PARTS = Text(
    "Let one kernel do both, or pass less on: fewer parts with a longer loop in each (a smaller "
    "split K), sums within a block or by atomics, partial results in a smaller type: what is "
    "written to memory is read again by the next kernel."
)
"""What to do about kernels of which one works on partial results of the other."""
BY_ROWS = Text(
    "Lay the table out so that what is looked up together lies together: as contiguous rows "
    "(table.T.contiguous() once, before the loop), with the index along the first dimension, so "
    "that each look-up reads whole sectors. Then sum rows while they are looked up (embedding_bag)."
)
"""What to do about look-ups of numbers that lie far apart."""
BY_INDEX, SCATTERED = r"^\S+ (?:index|gather)", 50.0
"""Kernels that look up by index, and the per cent of useful bytes up to which numbers lie apart."""
FUSIBLE = ("elementwise", "copy", "norm", "rotary", "softmax", "quantize", "fill")
"""Categories of kernels that a compiler fuses with their neighbours."""
LOOK_UP, SUMS = "embedding", "reduction"
"""Categories of kernels that may begin a chain, and that may be in one where bytes are known."""
FUSED_LIBRARIES = ("Inductor", "XLA", "TensorRT", "Triton", "cuDNN", "cuBLAS")
"""Libraries whose kernels are the result of such fusion already, or are never part of it."""
CHAINS = 3
"""Chains that get a finding each."""
BY_BYTES = {"dram", "l2", "l1", "latency"}
"""Limits of kernels whose time follows the bytes that they move."""
EXACTLY = 0.01
"""Part by which bytes stored and bytes loaded may differ that are the same data."""
THREADS = ("global_load_bytes", "global_store_bytes")
DRAM = ("dram_read_bytes", "dram_write_bytes")
"""Columns of `counters`: what the threads of a launch load and store, and what DRAM does."""


@dataclass(frozen=True)
class Moved:
    """Bytes that one launch loads and stores, and the columns of `counters` that say so."""

    loaded: float
    stored: float
    columns: tuple[str, str]

    def times(self, launches: float) -> Moved:
        """Return the same for some launches."""
        return Moved(self.loaded * launches, self.stored * launches, self.columns)


@dataclass(frozen=True)
class Chain:
    """Kernels in a row, how often the row comes, and what one row moves.

    `passed` of its `moved` bytes go through memory from one kernel to the next; None where bytes
    are not known. `again`: what they load is loaded again by the next, rather than written for it;
    `is_partial`: they hand over partial results. `by_bytes`: bytes set the time of all its kernels,
    `by_dram`: those of DRAM. `at_roof` is the time of the other bytes at the roof of DRAM.
    """

    kernels: tuple[str, ...]
    times: int
    total: Number
    all_but_longest_ns: float
    moved: Number | None = None
    passed: Number | None = None
    by_bytes: bool = False
    by_dram: bool = False
    again: bool = False
    at_roof: Number = Number(None, "ns")
    is_partial: bool = False

    @property
    def throughput(self) -> Number:
        """Bytes moved per second."""
        assert self.moved is not None
        rate = number(self.moved.value) * self.times / number(self.total.value) * 1e9
        return Number(rate, "B/s", (*self.moved.refs, *self.total.refs))

    @property
    def saved(self) -> Number:
        """What a fused kernel saves, at the throughput of the chain where that is known."""
        if self.moved is None or self.passed is None:
            return Number(self.all_but_longest_ns, "ns", self.total.refs)
        share = number(self.passed.value) / number(self.moved.value)
        return Number(number(self.total.value) * share, "ns", self.throughput.refs)

    @property
    def saved_at_roof(self) -> Number:
        """What is saved where the other bytes move at the roof of DRAM; at least `saved`.

        That is possible where more than bytes sets the time now.
        """
        faster = number((self.total - self.at_roof).value)
        if self.moved is None or self.by_bytes or not faster > number(self.saved.value):
            return self.saved
        return Number(faster, "ns", (*self.total.refs, *column("roofs", "value")))


def optimizer_passes(run: Run) -> list[Finding]:
    """Return a finding where Adam works by foreach operations that a fused kernel does in one."""
    rule, gpu_time = OPTIMIZER_PASSES, Number(kernel_time(run), "ns")
    names = run.kernels["short_name"].fillna("")
    rows = run.kernels[names.str.contains(FOREACH)]
    if not all(names.str.startswith(name).any() for name in OF_ADAM):
        return []
    moved = _moved_bytes(run)
    counted = rows[rows["kernel_id"].isin(list(moved))]
    total_ns, counted_ns = (float(of["total_ns"].sum()) for of in (rows, counted))
    each = [moved[text(row["kernel_id"])].times(number(row["calls"])) for row in records(counted)]
    is_moment = counted["short_name"].str.startswith(OF_ADAM[0])
    moment = sum(bytes_.stored for bytes_, at in zip(each, is_moment, strict=True) if at)
    if not moment or counted_ns < rule.limit("counted") * total_ns:
        return []
    ids = tuple(rows["kernel_id"])
    refs = counters(run, list(counted["kernel_id"]), THREADS)
    total = Number(total_ns, "ns", column("kernels", "total_ns"))
    bytes_ = Number(sum(b.loaded + b.stored for b in each), "B", refs)
    fused = Number(rule.limit("passes") * moment, "B", refs)
    saved = Number(total_ns * (1 - number(fused.value) / number(bytes_.value)), "ns", refs)
    if number(saved.value) < rule.limit("gain") * number(gpu_time.value):
        return []
    return [
        rule.finding(
            title=Text(
                "Adam goes over its state in {n} kernels, operation by operation", n=len(rows)
            ),
            verdict=Text(
                "Adam updates its state by {names}: they take {share} of the GPU time ({total}) "
                "and move {moved}, of which a fused kernel needs {needed}. It would save, at their "
                "throughput, about {gain} of the GPU time ({saved}).",
                names=names_of(zip(rows["kernel_id"], rows["short_name"], strict=True)),
                share=total.share_of(gpu_time),
                total=total,
                moved=bytes_,
                needed=fused,
                gain=saved.share_of(gpu_time),
                saved=saved,
            ),
            kernel_ids=ids,
            evidence=(
                measured(Text("time of these kernels"), total),
                measured(Text("bytes that they load and store"), bytes_, Text("ncu x launches")),
                measured(
                    Text("of these needed by a fused kernel"),
                    fused,
                    Text(
                        "{n} times what the kernels of a moment store", n=int(rule.limit("passes"))
                    ),
                ),
                measured(
                    Text("could save"), saved, Text("time x (1 - bytes needed / bytes moved)")
                ),
            ),
            confidence="medium",
            **of_gpu_time(saved, total, gpu_time),
        )
    ]


def elementwise_chains(run: Run, frame: pd.DataFrame, without: Sequence[str] = ()) -> list[Finding]:
    """Return findings for chains of elementwise kernels, the largest gain first.

    Kernels `without` are in none: another finding has them.

    Fused, what one kernel writes for the next is neither written nor read. Where these bytes are
    not known, the fused kernel is taken to need as long as the longest of the chain does. Tiny
    kernels are left to `small_kernels`.
    """
    rule = ELEMENTWISE_CHAIN
    streaming, moved = _streaming(run), _moved_bytes(run)
    uncounted = _like_counted(run, streaming, moved)
    handing = _handing_over(run, moved) - streaming
    streaming, moved = streaming | set(uncounted) | handing, {**moved, **uncounted}
    frame = _without_zeros(run, frame)
    merged = _merged(frame, moved)
    pieces = (frame["kernel_id"].value_counts() / merged["kernel_id"].value_counts()).dropna()
    frame, moved = merged, {key: moved[key].times(number(pieces.get(key, 1.0))) for key in moved}
    summing = frame["category"].isin((SUMS, LOOK_UP)) & frame["kernel_id"].isin(list(moved))
    in_program = frame["kernel_id"].isin(streaming)
    fusible = frame["category"].isin(FUSIBLE) | in_program | summing
    long = run.kernels["mean_ns"].astype(float) >= SMALL_KERNELS.limit("short")
    fusible &= frame["kernel_id"].isin(run.kernels.loc[long, "kernel_id"])
    fusible &= ~frame["library"].isin(FUSED_LIBRARIES) | in_program
    of_kernel = {text(row["kernel_id"]): row for row in records(run.kernels)}

    def flows(first: str, second: str) -> bool:
        former, latter = of_kernel[first], of_kernel[second]
        same = text(former["grid"]) == text(latter["grid"]) != ""
        (kind, elements), (next_kind, next_elements) = _elements(former), _elements(latter)
        same |= kind != next_kind and not elements.isdisjoint(next_elements)
        if text(latter["category"]) == LOOK_UP:
            return False
        if first in moved and second in moved:
            if _is_sum(moved[first]):
                return _again(moved[first], moved[second])
            # Bytes of DRAM leave out what caches held, so that they tell less.
            known = moved[first].columns == THREADS
            former_bytes, loaded = moved[first], moved[second].loaded
            passes = 0 < former_bytes.stored <= rule.limit("flow") * loaded
            return (same or known) and passes
        return same

    fusible &= ~frame["kernel_id"].isin(without)
    mask = fusible.to_numpy(dtype=np.bool_)
    table = chains(frame, mask, flows, int(rule.limit("repeats")))
    found = []
    for row in records(table.head(CHAINS)):
        chain = _chain(run, row, moved, frame)
        chain = replace(chain, is_partial=bool(handing & set(chain.kernels)))
        # Kernels that are not known, or sum, may do more than pass elements on, unless DRAM sets
        # their time.
        unknown = bool(streaming & set(chain.kernels))
        sums = any(of_kernel[key]["category"] in (LOOK_UP, SUMS) for key in chain.kernels)
        confidence = "medium" if chain.by_bytes and not unknown else "low"
        found.append(_finding(run, chain, confidence, chain.by_dram or not (unknown or sums)))
    limit = rule.limit("gain") * kernel_time(run)
    return [f for f in found if f.gain_ns >= limit or f.most_ns >= limit]


def _elements(row: Row) -> tuple[str, set[int]]:
    return torch_elements(text(row["name"]), text(row["grid"]), text(row["block"]))


def _merged(frame: pd.DataFrame, moved: dict[str, Moved]) -> pd.DataFrame:
    """Return launches in which parts of one tensor that a library divides are one."""
    limit = ELEMENTWISE_CHAIN.limit("parts")
    large = {key for key, each in moved.items() if each.loaded + each.stored >= limit}
    is_piece = frame["kernel_id"].isin(large)
    if not is_piece.any():
        return frame
    for name in ("kernel_id", "queue", "stage"):
        is_piece &= frame[name].eq(frame[name].shift())
    duration = frame["duration_ns"].groupby((~is_piece).cumsum()).sum()
    return frame[~is_piece].assign(duration_ns=duration.to_numpy()).reset_index(drop=True)


def _without_zeros(run: Run, frame: pd.DataFrame) -> pd.DataFrame:
    """Return launches without fills of what the next one adds to by atomics: a step of that sum."""
    adding = run.counters.loc[run.counters["atomic_instructions"] > 0, "kernel_id"]
    is_sum = frame["category"].eq(SUMS) & frame["kernel_id"].isin(adding)
    return frame[~(frame["category"].eq("fill") & is_sum.shift(-1, fill_value=False))]


def _is_sum(moved: Moved) -> bool:
    """Tell whether a kernel stores next to nothing of what it loads."""
    flow = ELEMENTWISE_CHAIN.limit("flow")
    return moved.stored * flow < moved.loaded * (flow - 1)


def _again(first: Moved, second: Moved) -> bool:
    """Tell whether a kernel reads as much as a sum before it did: the same data, it seems."""
    flow = ELEMENTWISE_CHAIN.limit("flow")
    same = first.loaded <= flow * second.loaded and second.loaded <= flow * first.loaded
    return same and _is_sum(first)


def _streaming(run: Run) -> set[str]:
    """Return the program's own kernels that may work on one element after another, as counted.

    They load few elements for each that they store, in whole sectors, and neither share them within
    a block nor add them up with atomics; or DRAM bounds them, and they load all but what L2 holds
    and store little: sums. What they compute is not known.
    """
    kernels = run.kernels["category"].eq("other") & run.kernels["library"].fillna("").isin(
        NO_LIBRARY
    )
    rows = run.counters[run.counters["kernel_id"].isin(run.kernels.loc[kernels, "kernel_id"])]
    inputs, efficiency = (ELEMENTWISE_CHAIN.limit(name) for name in ("inputs", "whole"))
    large = ELEMENTWISE_CHAIN.limit("cache") * number(run.gpus["l2_bytes"].max())
    found = set()
    for row in records(rows):
        loaded, stored = (number(row[name]) for name in THREADS)
        useful = (number(row[f"global_{kind}_efficiency_pct"]) for kind in ("load", "store"))
        private = number(row["shared_memory_bytes"]) == 0 == number(row["atomic_instructions"])
        each = 0 < loaded <= inputs * stored and all(p >= efficiency for p in useful)
        if (private and each) or (text(row["bound_by"]) == "dram" and loaded >= large):
            found.add(text(row["kernel_id"]))
    return found


def _handing_over(run: Run, moved: dict[str, Moved]) -> set[str]:
    """Return the program's own kernels of which one stores as many bytes as another loads: partial
    results, as of a sum that is split among blocks.
    """
    kernels = run.kernels["category"].eq("other") & run.kernels["library"].isin(NO_LIBRARY)
    in_program = [key for key in run.kernels.loc[kernels, "kernel_id"] if key in moved]
    large = ELEMENTWISE_CHAIN.limit("cache") * number(run.gpus["l2_bytes"].max())
    return {
        key
        for first in in_program
        for second in in_program
        if first != second
        and moved[first].columns == THREADS == moved[second].columns
        and moved[first].stored >= large
        and abs(moved[first].stored - moved[second].loaded) <= EXACTLY * moved[first].stored
        for key in (first, second)
    }


def _like_counted(run: Run, streaming: set[str], moved: dict[str, Moved]) -> dict[str, Moved]:
    """Return what kernels move that were not counted, by those that are like them.

    They are the program's own, of the grid and the number of launches of one that streams at the
    bandwidth of DRAM; the nearest in time tells how much they move in theirs.
    """
    unknown = run.kernels[run.kernels["category"].eq("other")]
    counted = set(run.counters["kernel_id"])
    by_dram = set(run.counters.loc[run.counters["bound_by"] == "dram", "kernel_id"]) & streaming
    alike: dict[tuple[str, float], list[Row]] = {}
    for row in records(unknown[unknown["kernel_id"].isin(by_dram)]):
        alike.setdefault((text(row["grid"]), number(row["calls"])), []).append(row)
    found = {}
    for row in records(unknown[~unknown["kernel_id"].isin(counted)]):
        mean = number(row["mean_ns"])
        others = alike.get((text(row["grid"]), number(row["calls"])), [])
        if others:
            near = min(others, key=lambda like: abs(number(like["mean_ns"]) - mean))
            found[text(row["kernel_id"])] = moved[text(near["kernel_id"])].times(
                mean / number(near["mean_ns"])
            )
    return found


def _moved_bytes(run: Run) -> dict[str, Moved]:
    """Return what each kernel loads and stores, as far as counters tell.

    Where the accesses of threads were not counted it is what DRAM read and wrote, of launches
    that move several times what L2 holds: of those, caches keep little.
    """
    found: dict[str, Moved] = {}
    large = ELEMENTWISE_CHAIN.limit("cache") * number(run.gpus["l2_bytes"].max())
    for row in records(run.counters):
        for names, minimum in ((THREADS, 0.0), (DRAM, large)):
            loaded = number(row[names[0]])
            if not loaded:  # asynchronous copies to shared memory are no loads of threads
                loaded = max(loaded, number(row[DRAM[0]]))
            moved = Moved(loaded, number(row[names[1]]), names)
            if moved.loaded + moved.stored >= minimum:
                found.setdefault(text(row["kernel_id"]), moved)
    return found


def _of_dram(run: Run) -> dict[str, Moved]:
    """Return what DRAM reads and writes for launches that move several times what L2 holds."""
    large = ELEMENTWISE_CHAIN.limit("cache") * number(run.gpus["l2_bytes"].max())
    found = {
        text(row["kernel_id"]): Moved(number(row[DRAM[0]]), number(row[DRAM[1]]), DRAM)
        for row in records(run.counters)
    }
    return {key: each for key, each in found.items() if each.loaded + each.stored >= large}


def _accumulated(frame: pd.DataFrame, kernels: tuple[str, ...], each: Sequence[Moved]) -> float:
    """Return the bytes that a row passes on to the next one: the sum that its last kernel adds to.

    Such a kernel loads what the one before stores, and as much again as it stores itself.
    """
    *_, former, last = each
    adds = last.loaded * ELEMENTWISE_CHAIN.limit("flow") >= former.stored + last.stored
    if not adds or not former.stored * ELEMENTWISE_CHAIN.limit("flow") >= last.stored:
        return 0.0
    ends = frame["kernel_id"].eq(kernels[-1])
    repeated = ends & frame["kernel_id"].shift(-1).eq(kernels[0])
    return 2 * last.stored * float(repeated.sum() / max(1, ends.sum()))


def _chain(run: Run, row: Row, moved: dict[str, Moved], frame: pd.DataFrame) -> Chain:
    kernels = tuple(str(key) for key in row["kernels"])
    times = int(number(row["times"]))
    total = Number(row["total_ns"], "ns", column("launches", "duration_ns"))
    chain = Chain(kernels, times, total, number(row["saved_ns"]))
    bounds = set(run.counters.loc[run.counters["kernel_id"].isin(kernels), "bound_by"])
    if bounds == {"dram"}:  # what caches held takes none of their time
        of_dram = _of_dram(run)
        moved = {**moved, **of_dram} if all(key in of_dram for key in kernels) else moved
    if not all(key in moved for key in kernels):
        return chain
    each = [moved[key] for key in kernels]
    both = sum(bytes_.loaded + bytes_.stored for bytes_ in each)
    again = [_again(*pair) for pair in zip(each, each[1:], strict=False)]
    passed = sum(
        b.loaded if twice else a.stored + min(a.stored, b.loaded)
        for a, b, twice in zip(each, each[1:], again, strict=False)
    )
    if not both > 0:
        return chain
    if not any(again):
        passed += _accumulated(frame, kernels, each)
    names = tuple(dict.fromkeys(name for bytes_ in each for name in bytes_.columns))
    refs = counters(run, kernels, names)
    roof = ceilings(run.roofs).memory.get("dram")
    roof_refs = (*refs, *column("roofs", "value"))
    return Chain(
        *(kernels, times, total, chain.all_but_longest_ns),
        Number(both, "B", refs),
        Number(passed, "B", refs),
        bounds <= BY_BYTES,
        bounds == {"dram"},
        all(again),
        Number(times * (both - passed) / roof.value * 1e9 if roof else None, "ns", roof_refs),
    )


def _finding(run: Run, chain: Chain, confidence: str, known: bool) -> Finding:
    gpu_time = Number(kernel_time(run), "ns")
    names = dict(zip(run.kernels["kernel_id"], run.kernels["short_name"], strict=True))
    ids = tuple(dict.fromkeys(chain.kernels))
    n, share = len(chain.kernels), chain.total.share_of(gpu_time)
    first = str(names.get(ids[0], ids[0]))
    what, title = _words(run, chain)
    looked_up = text(_category(run, ids[0])) == LOOK_UP and chain.moved is not None
    useful = _useful(run, ids[0])
    remedy = {"action": BAGS} if looked_up else {"action": PARTS} if chain.is_partial else {}
    if useful.value is not None:  # the bytes of the others are then no matter beside these
        remedy = {"action": BY_ROWS}
        title = partial(
            Text, "{n} kernels in a row look up numbers that lie apart and pass them on: {first}, …"
        )
    return ELEMENTWISE_CHAIN.finding(
        title=title(n=n, first=Name(first, Ref("kernels", ids[0]))),
        headline=Text("{what} in a row take {share} of the GPU time", what=what, share=share),
        verdict=Text(
            "{what} run back to back {times}: {names}. They take "
            "{share} of the GPU time ({total}). {saving}",
            what=what,
            times=Text("{n} time", "{n} times", n=chain.times),
            names=names_of((key, str(names.get(key, key))) for key in ids),
            share=share,
            total=chain.total,
            saving=_saving(chain, gpu_time)
            if useful.value is None
            else Text(
                "The first gathers numbers one by one: of the sectors that it loads {useful} are "
                "used. {saving}",
                useful=useful,
                saving=_saving(chain, gpu_time),
            ),
        ),
        kernel_ids=ids,
        evidence=(
            Evidence(
                Text("kernels in the chain"),
                Number(n, "count", column("launches", "start_ns")),
                Text("2 or more"),
                NSYS,
            ),
            measured(
                Text("runs of the chain"),
                Number(chain.times, "count", column("launches", "start_ns")),
            ),
            measured(Text("time of the chains"), chain.total),
            *_gain_evidence(chain),
        ),
        confidence=confidence,
        **remedy,
        **of_gpu_time(
            chain.saved_at_roof if known or useful.value is not None else chain.saved,
            chain.total,
            gpu_time,
            chain.saved_at_roof,
        ),
    )


def _useful(run: Run, kernel_id: str) -> Number:
    """Return the useful part of the sectors that a look-up by index loads, where it is small."""
    kernel = run.kernels.loc[run.kernels["kernel_id"] == kernel_id, "short_name"]
    row = run.counters[run.counters["kernel_id"] == kernel_id]
    useful = number(row["global_load_efficiency_pct"].max())
    if not (kernel.str.contains(BY_INDEX).any() and useful <= SCATTERED):
        return Number(None, "%")
    return Number(useful, "%", counters(run, [kernel_id], ("global_load_efficiency_pct",)))


def _category(run: Run, kernel_id: str) -> str:
    return text(run.kernels.loc[run.kernels["kernel_id"] == kernel_id, "category"].iloc[0])


def _words(run: Run, chain: Chain) -> tuple[Text, Callable[..., Text]]:
    """Return what the kernels of a chain are, and its title, which takes `n` and `first`."""
    n = len(chain.kernels)
    if chain.again:
        return Text("{n} kernels that load the same data", n=n), partial(
            Text, "{n} kernels in a row read the same data again: {first}, …"
        )
    if chain.is_partial:
        return Text("{n} kernels, of which one writes what the next reads,", n=n), partial(
            Text, "{n} kernels in a row pass partial results through memory: {first}, …"
        )
    if {_category(run, key) for key in chain.kernels} & {LOOK_UP, SUMS}:
        return Text("{n} kernels, sums or look-ups among them,", n=n), partial(
            Text, "{n} kernels in a row pass intermediate results through memory: {first}, …"
        )
    return Text("{n} elementwise kernels", n=n), partial(
        Text, "{n} elementwise kernels in a row pass data through memory: {first}, …"
    )


def _saving(chain: Chain, gpu_time: Number) -> Text:
    """Say what the gain rests on, and what it is."""
    saved, at_roof = chain.saved, chain.saved_at_roof
    if chain.moved is None or chain.passed is None:
        return Text(
            "Their bytes were not counted, so one kernel is taken to need as long as the longest "
            "of them: it would save at most {gain} of the GPU time ({saved}).",
            gain=saved.share_of(gpu_time),
            saved=saved,
        )
    values: dict[str, Value] = {
        "passed": chain.passed,
        "between": Text("are loaded again") if chain.again else Text("pass between them"),
        "moved": chain.moved,
        "rate": chain.throughput,
        "gain": saved.share_of(gpu_time),
        "saved": saved,
    }
    if at_roof == saved:
        return Text(
            "{passed} of the {moved} that they move {between}. One kernel that keeps these "
            "on the chip would save, at their {rate}, about {gain} of the GPU time ({saved}).",
            **values,
        )
    return Text(
        "{passed} of the {moved} that they move {between}. One kernel that keeps these on "
        "the chip would save, at their {rate}, about {gain} of the GPU time ({saved}), and at most "
        "{most} ({most_ns}) at the roof of DRAM.",
        most=at_roof.share_of(gpu_time),
        most_ns=at_roof,
        **values,
    )


def _gain_evidence(chain: Chain) -> list[Evidence]:
    """Return what the gain (at their throughput, at most) is computed from."""
    save, saved, at_roof = Text("could save"), chain.saved, chain.saved_at_roof
    if chain.moved is None or chain.passed is None:
        formula = Text("time of the chains - that of the longest kernel of each")
        return [measured(save, saved, formula)]
    found = [
        measured(
            Text("bytes that a chain moves"),
            chain.moved,
            Text("ncu: loaded and stored, the sum over its kernels"),
        ),
        measured(
            Text("of these passed on through memory"),
            chain.passed,
            Text("ncu: stored by one kernel + what the next loads of it"),
        ),
        measured(
            Text("throughput of the chain"),
            chain.throughput,
            Text("bytes x times / time of the chains"),
        ),
        measured(save, saved, Text("times x bytes passed on / throughput")),
    ]
    if chain.at_roof.value is not None:
        formula = Text("times x (bytes moved - passed on) / roof, if they come from DRAM")
        label = Text("the other bytes at the roof of DRAM")
        found.append(measured(label, chain.at_roof, formula))
    if at_roof != saved:
        formula = Text("time of the chains - the other bytes at the roof")
        found.append(measured(Text("could save at the roof of DRAM"), at_roof, formula))
    return found
