"""What a prediction assumes or does not know, in words."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial

import pandas as pd

from nsight_prof.parsers.cells import records
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.page import Text, Verbatim

_WIDENED = partial(
    Text,
    "steps are moved and bounded by what other models that were served took beyond such "
    "predictions; {dtype} is in none of it, so that what operators may miss widens the intervals "
    "(docs/accuracy.md of prof)",
)
NOTES: dict[str, Callable[..., Text]] = {
    "beyond-context": partial(
        Text,
        "requests of {tokens} tokens are longer than the model's context of {limit} "
        "(max_position_embeddings): an engine refuses them unless it is told otherwise",
    ),
    "checkpoint-scales": partial(
        Text,
        "the matrices of the layers are in {dtype}, activations by a scale of the checkpoint; the "
        "output projection stays in 16 bits. The lower bound takes the quantization of activations "
        "to be merged with what is before it",
    ),
    "event-loop": partial(
        Text, "the event loop of the server is that of {run}, which served {model}"
    ),
    "expert-spread": partial(
        Text,
        "assumed: tokens spread over the experts by the power law of the imported tables (exponent "
        "1.01), whichever the model's router does; the interval holds an even spread and a steeper "
        "one, where these were measured",
    ),
    "free-norms": partial(
        Text,
        "assumed: the norms of queries and keys cost nothing beside the rotary embedding that they "
        "are fused with",
    ),
    "gpu-alone": partial(
        Text,
        "the time to first token is that of the GPU alone: no recorded engine served this model "
        "and tells what the host adds",
    ),
    "imported": partial(
        Text,
        "{kinds}: from imported tables, measured by others with another version of the engine; "
        "their intervals say how well the tables follow themselves",
    ),
    "moved": partial(
        Text,
        "steps are moved and bounded by what other models that were served took beyond such "
        "predictions, as {models} models that are left out need it for 90 % (docs/accuracy.md of "
        "prof)",
    ),
    "moved-extended": partial(_WIDENED, dtype="EAGLE, LoRA"),
    "moved-type": _WIDENED,
    "moved-ranks": partial(_WIDENED, dtype="TP"),
    "adapters": partial(
        Text,
        "the GPU holds {count} LoRA adapters of rank {rank} ({modules}) at once, as many as the "
        "recorded engine held; all requests use one, in turn",
    ),
    "drafts": partial(
        Text,
        "{drafted} tokens are drafted for each request in each step ({drafter}), which gives "
        "{accept} tokens on average: as --accept says, since no run does",
        drafter="EAGLE",
    ),
    "draft-passes": partial(
        Text,
        "{model} drafts as its slice shows it, issued like prompts within CUDA graphs; no recorded "
        "engine drafted so",
    ),
    "host-speed": partial(
        Text,
        "the host's time per step comes from {runs} (in brackets: the time of a fixed Python loop "
        "on that host; –: not timed, so the host's time is not scaled to another host)",
    ),
    "host-speed-asked": partial(
        Text,
        "predicted for a host that takes {time} for that loop, in {own}; the runs' was in {other}",
    ),
    "host-speed-range": partial(
        Text,
        "the speed of your host is not known: intervals allow for host times that differ by {low} "
        "to {high}, as on recorded hosts; give it by --host-speed",
    ),
    "network-unknown": partial(Text, "{network} ({launch}) is not predicted: {reason}"),
    "ngram": partial(
        Text,
        "between steps the host looks n-grams up, while the GPU waits; no run told how long, and "
        "it is taken to need no time: prof run layer-slice --set target.args.draft=ngram tells it",
    ),
    "no-gaps": partial(
        Text,
        "the gaps between kernels are not known and taken as none: add a recorded engine, or the "
        "run of prof run roofline",
    ),
    "no-server": partial(
        Text,
        "no recorded server (prof run vllm-serve) tells its event loop, so that requests and "
        "tokens take it as long as in the median of recorded servers (vLLM 0.20)",
    ),
    "not-speculative": partial(
        Text,
        "predicted without speculative decoding: each step gives a token of a request, though the "
        "model has layers that propose more (num_nextn_predict_layers)",
    ),
    "one-by-one": partial(
        Text,
        "operations follow each other: what overlaps (programmatic dependent launch, several "
        "streams) is not known, and neither is what the power limit takes under sustained load",
    ),
    "open-loop": partial(
        Text,
        "assumed: requests of an open loop come at random for {time}, {least} of them at least",
    ),
    "other-engine": partial(
        Text,
        "the recorded engine served another model, or on another number of GPUs: what its kernels "
        "take beyond the benchmark is carried over, and how well that holds is not known",
    ),
    "half-way": partial(
        Text,
        "the host issues prompts of batches at a speed half way between what was measured and that "
        "of other models (geometric mean)",
    ),
    "other-hosts": partial(
        Text,
        "the host issues prompts of batches as fast as those of other models, of servers half way "
        "between that and what was measured (geometric mean)",
    ),
    "traced-hosts": partial(
        Text,
        "prompts of batches are issued in the part of the time that the trace says which other "
        "models needed whose layers are launched so (experts, latent attention, drafts, adapters)",
    ),
    "other-gpu": partial(
        Text,
        "nothing was measured on {gpu}: each operator reaches the part of the roofline that it "
        "reached on {measured}, and no interval says how well that holds; the lower bound is the "
        "datasheet's roofline",
    ),
    "products-chosen": partial(
        Text,
        "products are from where their outputs and inputs were measured, own cases first; others "
        "from what misses least of shapes that are left out of it: own cases {own}, imported "
        "tables {tables}",
    ),
    "rank-wait": partial(
        Text,
        "each step that generates takes {time} longer than the kernels of one rank: what ranks of "
        "other models over two GPUs waited for each other",
    ),
    "rounds": partial(Text, "assumed: each client of a closed loop sends {requests} requests"),
    "same-chip": partial(
        Text, "what other models took was recorded on {gpu}, which has the same chip"
    ),
    "settings": partial(
        Text,
        "predicted for weights in {dtype}, a KV cache in {cache}, {part} of the GPU's memory for "
        "the engine, batches of at most {requests} requests, CUDA graphs, and prompts that share "
        "nothing: what was not asked for is vLLM's default, or that of the recorded engine",
    ),
    "short-prompts": partial(
        Text,
        "prompts that take the GPU less than the host needs to issue them come later than "
        "predicted: no recorded point of so short prompts tells by how much",
    ),
    "small-operators": partial(
        Text,
        "assumed: small operators take {time} and {part} of the bandwidth; the imported tables "
        "have none",
    ),
    "some-wait": partial(
        Text,
        "of {requests} requests some wait: the engine runs at most {most} at a time, as the "
        "recorded engine did or as vLLM does by itself; --max-num-seqs says another limit",
    ),
    "step-limit": partial(Text, "assumed: steps of at most {tokens} tokens, vLLM's own limit"),
    "steps-unknown": partial(Text, "steps and points ({sample}) are not predicted: {reason}"),
    "token-scales": partial(
        Text,
        "the matrices of the layers are in {dtype}, activations by a scale of each token; the "
        "output projection stays in 16 bits. The lower bound takes the quantization of activations "
        "to be merged with what is before it",
    ),
    "usual-batches": partial(
        Text,
        "assumed: batch {batches}, since no load was given (--batch, --concurrency, --rate or "
        "--workload)",
    ),
    "usual-lengths": partial(
        Text,
        "assumed: prompts of {prompt} and answers of {output} tokens (--prompt, --output)",
    ),
    "wide-inputs": partial(
        Text,
        "the matrices of the layers are in {dtype}, and are multiplied in 16 bits; the output "
        "projection stays in 16 bits",
    ),
}
"""Sentences by the key of a note (table `predicted_notes`)."""


def sentences(notes: pd.DataFrame) -> tuple[Text, ...]:
    """Return the sentences of table `predicted_notes`."""
    return tuple(NOTES[row["note"]](**json.loads(row["values"])) for row in records(notes))


def notes_of(run: Run) -> tuple[Text, ...]:
    """Return what is to be known of a run; one that has no such table says it in English."""
    as_written = (Text("{note}", note=Verbatim(note)) for note in run.manifest.assumptions)
    return sentences(run.predicted_notes) or tuple(as_written)
