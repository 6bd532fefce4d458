"""Predictions that were committed before the truth was recorded, held against it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pandas as pd

from nsight_prof import load_run
from nsight_prof.parsers.cells import Row, records
from nsight_prof.parsers.predict.validation import HELD_OUT, POINT, QUANTITIES
from scripts.pages.accuracy import causes, peer
from scripts.pages.accuracy.before import batches, kernel_rows, server_rows, sums
from scripts.pages.accuracy.bounds import KV, REQUIRED, bound_words
from scripts.pages.accuracy.captures import recorded, validated
from scripts.pages.accuracy.engines import caches
from scripts.pages.accuracy.questions import (
    AGAIN,
    AGAIN_SERVER,
    AGAIN_TITLE,
    AT_HOST,
    BEFORE,
    BUSY_AGAIN_PAIRS,
    BUSY_AGAIN_SERVER,
    BUSY_AGAIN_TITLE,
    BUSY_PAIRS,
    BUSY_SERVER,
    BUSY_TITLE,
    EIGHTH_PAIRS,
    EIGHTH_SERVERS,
    EIGHTH_TITLE,
    ELSEWHERE,
    ENGINE,
    EVERY_SERVED,
    EXTENDED_PAIRS,
    EXTENDED_TITLE,
    FIFTH_SERVER,
    FOURTH_PAIR,
    FOURTH_SERVER,
    FOURTH_TITLE,
    H100_PAIRS,
    KNOWN,
    LATENT_PAIR,
    LATENT_TITLE,
    LATER,
    LOOP_UNKNOWN,
    NARROW_TITLE,
    NGRAM_PAIRS,
    NGRAM_TITLE,
    NINTH_PAIRS,
    NINTH_SERVERS,
    NINTH_TITLE,
    OTHERS_TITLE,
    SAME_PAIRS,
    SAME_SERVER,
    SAME_TITLE,
    SERVED,
    SERVED_MODELS,
    SEVENTH_PAIRS,
    SEVENTH_SERVERS,
    SEVENTH_TITLE,
    SIXTH_PAIRS,
    SIXTH_SERVERS,
    SIXTH_TITLE,
    SLICED,
    SLICES,
    SPLIT_AGAIN_SERVER,
    SPLIT_BEFORE,
    SPLIT_EIGHTH,
    SPLIT_H200,
    SPLIT_H200_LATER,
    SPLIT_H200_TITLE,
    SPLIT_SERVER,
    SPLIT_SEVENTH,
    SPLIT_SIXTH,
    THIRD_PAIR,
    THIRD_TITLE,
    TIMED_PAIRS,
    TIMED_SERVER,
    TIMED_SLICES_TITLE,
    TIMED_TITLE,
    TIMED_TOLD_SERVER,
    TIMED_TOLD_TITLE,
    WHOLE,
    WHOLE_MODEL,
    Committed,
)
from scripts.pages.accuracy.tables import error_numbers, markdown_table, percent
from scripts.pages.accuracy.texts import PEER

SAME_SERVED_MODEL = "llama-3.1-8b, its host told"
TIMED_MODELS = {"llama-3.1-8b, its host timed": TIMED_SERVER,
                "llama-3.1-8b, its host told again": TIMED_TOLD_SERVER,
                "llama-3.1-8b, its host told by a busy engine": BUSY_SERVER,
                "llama-3.1-8b, told by a busy engine again": BUSY_AGAIN_SERVER,
                "qwen3-14b, on a fourth machine": FOURTH_SERVER,
                "llama-3.1-8b, over two of them": SPLIT_SERVER,
                "qwen3-4b, on a fifth machine": FIFTH_SERVER,
                "qwen3-14b, over both GPUs of it": SPLIT_AGAIN_SERVER,
                **SIXTH_SERVERS, **SEVENTH_SERVERS, **EIGHTH_SERVERS,
                **NINTH_SERVERS}  # fmt: skip
for _machine in LATER:
    TIMED_MODELS |= _machine.servers
WITH_NARROW = ", its host told by a narrow engine"
"""Behind a truth that is predicted so beside the same without."""
NO_LOOP, NOT_KNOWN = ", no event loop", "not known"
"""Behind a server that is predicted without the event loop of another, and what that is called."""


def written_as(files: Committed, kind: str = "") -> str:
    """Return the name of a file of predictions without its end; `kind`: "-server" for loads."""
    hosts = "-hosts" if files.predicted.endswith(AT_HOST) else ""
    return f"{files.predicted.removesuffix(AT_HOST)}{kind}{hosts}"


def batch_errors(work: Path, written: Mapping[str, Committed]) -> pd.DataFrame:
    """Return the errors of committed predictions of batches, with the truth and case of each."""
    rows = []
    for model, files in written.items():
        source = recorded(work, f"{WHOLE}{files.truth}")
        both = batches(source.path, files.predicted)
        engine, shape = load_run(source.path).engines.iloc[0], source.full_shape
        assert shape is not None, source.path
        blocks = engine["kv_blocks"] / shape.cache_groups
        kv = both["kv_tokens"].iloc[0] / (blocks * engine["block_size"])
        of = {"model": model, "truth": f"{WHOLE}{files.truth}", "predicted": written_as(files)}
        kv_error = {"what": KV, "name": KV, "case": "", "error": kv - 1, "covered": math.nan}
        rows.append(of | kv_error)
        for column, what in QUANTITIES.items():
            measured, value = both[column], both[f"{column}_predicted"]
            low, high = both[f"{column}_low"], both[f"{column}_high"]
            inside = measured.between(low, high).astype(float).where(low.notna() & high.notna())
            long = both["prompt_tokens"].mul(both["batch"]).ge(1000)
            names = long.map({True: "ttft, 1,000 tokens and more", False: "ttft, fewer tokens"})
            found = pd.DataFrame({"error": value / measured - 1, "covered": inside})
            found = found.assign(case=both["case_predicted"], name=what, **of)
            rows += records(found.assign(what=names if what == "ttft" else what))
    return pd.DataFrame(rows)


def before_table(
    work: Path, written: Mapping[str, Committed], bounds: Mapping[str, float] = REQUIRED
) -> str:
    """Return the errors of committed predictions of models (label -> files), and of all of them."""
    errors = batch_errors(work, written)
    if len(written) > 1:
        errors = pd.concat([errors, errors.assign(model="all")])
    table = []
    for key, group in errors.groupby(["what", "model"], sort=False):
        off = group["error"].abs()
        covered = float(group["covered"].mean())
        table.append((
            *map(str, key), len(group), percent(float(off.mean())),
            bound_words(str(key[0]), float(off.mean()), bounds),
            percent(float(off.quantile(0.9))),
            f"{group['error'].mean():+.1%}", "–" if math.isnan(covered) else f"{covered:.0%}",
        ))  # fmt: skip
    heads = ("what", "model", "n", "MAPE", "required", "90th percentile", "bias",
             "within interval")  # fmt: skip
    return markdown_table(heads, sorted(table, key=lambda row: str(row[0])))


def pauses(work: Path) -> str:
    """Return the errors of TPOT over two GPUs, and against the median gap between two tokens."""
    rows = []
    for model, files in SPLIT_BEFORE.items():
        both = batches(recorded(work, f"{WHOLE}{files.truth}").path, files.predicted)
        both = both[both["batch"].mul(both["prompt_tokens"]).le(peer.STEP_TOKENS)]
        for column, against in (("tpot_p50_s", "TPOT"), ("itl_p50_s", "median gap")):
            off = both["tpot_p50_s_predicted"] / both[column] - 1
            numbers = percent(float(off.abs().mean())), percent(float(off.abs().max()))
            rows.append((model, against, str(len(off)), *numbers, f"{off.mean():+.1%}"))
    return markdown_table(("model", "held against", "n", "MAPE", "worst", "bias"), rows)


def predicted_before(work: Path) -> list[tuple[str, pd.DataFrame, Mapping[str, float]]]:
    """Return the errors of all that was predicted before: where, errors, and what is required."""
    single, split, *_ = ELSEWHERE.values()
    titles = LATENT_TITLE, EXTENDED_TITLE, NARROW_TITLE, AGAIN_TITLE, OTHERS_TITLE, SAME_TITLE
    latent, extended, narrow, again, others, same = (ELSEWHERE[title] for title in titles)
    before = {model: Committed(model, model) for model in BEFORE}
    by_narrow = batch_errors(work, again[0])
    by_narrow["truth"] += WITH_NARROW
    found: list[tuple[str, pd.DataFrame, Mapping[str, float]]] = [
        ("one H200", batch_errors(work, before), REQUIRED),
        ("one H100", batch_errors(work, single[0]), single[1]),
        ("two H100", batch_errors(work, split[0]), split[1]),
        ("one H200, latent attention", batch_errors(work, latent[0]), latent[1]),
        ("one H200, EAGLE head or LoRA", batch_errors(work, extended[0]), extended[1]),
        ("the same, and a narrow engine", batch_errors(work, narrow[0]), narrow[1]),
        ("another H100, and a narrow engine", by_narrow, again[1]),
        ("another H100, hosts of other days", batch_errors(work, others[0]), others[1]),
        ("an H200, and narrow engines there", batch_errors(work, same[0]), same[1]),
    ]
    for title, where in (
        (TIMED_TITLE, "an H200 of two, its host timed"),
        (TIMED_TOLD_TITLE, "the same, its host told"),
        (TIMED_SLICES_TITLE, "the same, host of other days"),
        (BUSY_TITLE, "an H200 of four, told by busy engines"),
        (BUSY_AGAIN_TITLE, "another H200 of four, told by busy engines"),
        (THIRD_TITLE, "a third H200, host of other days"),
        (FOURTH_TITLE, "a fourth H200, told by a busy engine"),
        (SIXTH_TITLE, "a sixth H200"),
        (SEVENTH_TITLE, "a seventh H200, told by busy engines"),
        (EIGHTH_TITLE, "an eighth H200, told by a busy engine"),
        (NINTH_TITLE, "a ninth machine's H100, told by a busy engine"),
        *(
            (machine.title, f"the {machine.name} H200, told by busy engines")
            for machine in LATER
            if machine.engines
        ),
        (SPLIT_H200_TITLE, "two H200"),
        (NGRAM_TITLE, "one H200, n-grams or LoRA again"),
    ):
        written, bounds = ELSEWHERE[title]
        found.append((where, batch_errors(work, written), bounds))
    loads = pd.DataFrame(_served(work))
    for (gpu, server), of_server in loads.groupby(["gpu", "server"], sort=False):
        found.append((f"server on an {gpu}, event loop {server}", of_server, REQUIRED))
    return found


def missed(work: Path) -> str:
    """Return what the points of the rows that miss what is asked wait for."""
    known = predicted_today(work)
    rows: list[tuple[str, ...]] = []
    for where, of_where, bounds in predicted_before(work):
        for what, of_what in of_where.groupby("what", sort=False):
            if "missed" in bound_words(str(what), float(of_what["error"].abs().mean()), bounds):
                rows += causes.rows(str(what), where, of_what, known)
    order = {what: place for place, what in enumerate(REQUIRED)}
    heads = ("what", "on", "of points that wait for", "n", "of the error", "MAPE", "bias",
             "MAPE today", "bias today")  # fmt: skip
    return markdown_table(heads, sorted(rows, key=lambda row: order[str(row[0])]))


@cache
def predicted_today(work: Path) -> dict[causes.Key, causes.Today]:
    """Return all that was predicted before by the models of today, each model left out.

    Loads of servers stand there twice: with the event loop of another model's server, and behind
    NO_LOOP without.
    """
    sliced = [*(pair for question in SLICED for pair in question.pairs), *H100_PAIRS, LATENT_PAIR]
    by_narrow = [((f"{SLICES}{name}", f"prediction/narrow-{name}"), (f"{WHOLE}{name}-again",))
                 for name in AGAIN.values()]  # fmt: skip
    found = {(truth, "", KV): causes.Today(error, "") for truth, *_, error in caches(work)}
    for behind, pairs in (
        (
            "",
            [
                *sliced,
                *EXTENDED_PAIRS,
                SPLIT_H200,
                SPLIT_H200_LATER,
                SPLIT_SIXTH,
                SPLIT_SEVENTH,
                SPLIT_EIGHTH,
                *NGRAM_PAIRS,
                *EVERY_SERVED,
                *SAME_PAIRS,
                *TIMED_PAIRS,
                *BUSY_PAIRS,
                *BUSY_AGAIN_PAIRS,
                THIRD_PAIR,
                FOURTH_PAIR,
                *SIXTH_PAIRS,
                *SEVENTH_PAIRS,
                *EIGHTH_PAIRS,
                *NINTH_PAIRS,
                *(pair for machine in LATER for pair in machine.pairs),
            ],
        ),
        (WITH_NARROW, by_narrow),
        (NO_LOOP, LOOP_UNKNOWN),
    ):
        for sources, truths in pairs:
            for truth in truths:
                errors = validated(work, truth, sources)
                points = errors[errors["sample"].eq(HELD_OUT) & errors["scope"].eq(POINT)]
                found |= dict(causes.today(truth + behind, points))
    return found


def _served(work: Path) -> list[Row]:
    """Return the errors of each load of a server that was predicted before."""
    before = {model: Committed(model, f"serve-{model}") for model in SERVED_MODELS}
    before["llama-3.1-8b on an H100"] = AGAIN_SERVER
    before[SAME_SERVED_MODEL] = SAME_SERVER
    before |= TIMED_MODELS
    rows = []
    for model, (predicted, name) in before.items():
        truth = f"prediction/{name}"
        gpu = "H100" if "H100" in recorded(work, truth).gpu_name else "H200"
        if model == SAME_SERVED_MODEL or model in TIMED_MODELS:
            gpu += model.partition(",")[2] and f",{model.partition(',')[2]}"
        found = server_rows(recorded(work, truth).path, predicted)
        of = {"model": model, "gpu": gpu,
              "predicted": written_as(Committed(predicted, name), "-server")}  # fmt: skip
        rows += [row | of | {"truth": _of_loop(truth, row["server"])} for row in found]
    return rows


def _of_loop(truth: str, server: object) -> str:
    """Return what a server is called in `predicted_today` with such an event loop."""
    return truth + NO_LOOP if server == NOT_KNOWN else truth


def before_server(work: Path) -> str:
    """Return the errors of a server's loads that were predicted before."""
    rows = _served(work)
    heads = ("load", "model", "event loop", "n", "MAPE", "required", "90th percentile", "bias",
             "within interval")  # fmt: skip
    table = []
    for row in sums(rows, ["model", "what", "server"]):
        mape, *others = error_numbers(row)
        required = bound_words(row["what"], row["mape"])
        table.append((row["what"], row["model"], row["server"], str(row["n"]), mape, required,
                      *others))  # fmt: skip
    return markdown_table(heads, table)


@cache
def peer_rows(work: Path) -> list[Row]:
    """Return the errors of aiconfigurator beside those of prof, on the same points.

    Those that were predicted before have "today", by the models of today.
    """
    rows: list[Row] = []
    written = {model: model for model in BEFORE}
    written |= {truth: predicted for files, bounds in ELSEWHERE.values() if bounds
                for predicted, truth in files.values()}  # fmt: skip
    known = predicted_today(work)
    for truth, predicted in written.items():
        name = f"{WHOLE}{truth}"
        for row in peer.batches_before(recorded(work, name).path, predicted, truth):
            today = known.get((name, row["case"], row["name"]))
            rows.append(row | {"today": today.error if today else math.nan})
    for model in SERVED_MODELS:
        name = f"{SERVED}{model}"
        for row in peer.loops_before(recorded(work, name).path, model):
            today = known.get((_of_loop(name, row["server"]), row["case"], row["name"]))
            rows.append(row | {"today": today.error if today else math.nan})
    chosen = ((SLICED[0].pairs[0], ""), (KNOWN.pairs[1], "that of llama-3.1-8b"))
    for (sources, truths), server in chosen:
        found = pd.concat([validated(work, truth, sources) for truth in truths])
        found = found[found["sample"].eq(HELD_OUT)]
        rows += peer.held_out(found, "qwen2.5-7b", server)
    return rows


def against_peer(work: Path) -> str:
    """Return the errors of aiconfigurator beside those of prof, by quantity and model."""
    other = peer.peer()
    words = {"aiconfigurator": other["aiconfigurator"], "systems": " and ".join(other["systems"]),
             "tables": ", ".join(other["tables"])}  # fmt: skip
    heads = ("what", "model", "event loop", "n", "MAPE of prof", "of aiconfigurator", "nearer",
             "of prof today", "nearer today", "worst of prof", "of aiconfigurator", "bias of prof",
             "of aiconfigurator")  # fmt: skip
    refused = [f"It refuses {model}: {why}.\n" for model, why in other.get("refused", {}).items()]
    return "\n".join(
        [PEER.format(**words), *refused, markdown_table(heads, peer.sums(peer_rows(work)))]
    )


def before_kernels(work: Path) -> str:
    """Return the errors of a whole engine's operators and steps that were predicted before."""
    rows = list(kernel_rows(recorded(work, ENGINE), WHOLE_MODEL))
    found = [r | {"kind": "all"} for r in sums(rows, ["scope"])] + sums(rows, ["scope", "kind"])
    heads = ("of", "steps", "n", "MAPE", "90th percentile", "bias", "within interval")
    return markdown_table(
        heads, [(r["scope"], r["kind"], str(r["n"]), *error_numbers(r)) for r in found]
    )
