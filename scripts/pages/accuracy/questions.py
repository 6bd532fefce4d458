"""What is predicted from what, and held against what: the recorded runs of captures/."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from nsight_prof.parsers.cells import Row
from scripts.pages.accuracy.bounds import REQUIRED
from scripts.pages.noise_floor import BOARDS, STARTS

KERNELS_RUNS = ("h200-llm-kernels", "h200-gemm-staircase")
TRACE, OFFLINE, SPLIT = "h200-vllm-kernels", "h200-vllm-baseline", "h200-vllm-tensor-parallel"
SERVER = "h200-vllm-serve"
SLICES, WHOLE, LAYERS = "prediction/slice-", "prediction/baseline-", "prediction/whole-"
"""Names of slices, engines, and whole models under nsys, without the model."""
BEFORE = ("llama-3.1-8b", "qwen3-14b", "qwen3-32b", "qwen3-4b", "mistral-7b-v0.3")
"""Models that were predicted before an engine served them."""
MIXTURE = "qwen3-30b-a3b"


class Committed(NamedTuple):
    """A prediction below captures/prediction/before, and the engine that it is held against."""

    predicted: str
    truth: str


Pair = tuple[tuple[str, ...], tuple[str, ...]]
"""Sources and truths: runs below captures/."""


@dataclass(frozen=True)
class Question:
    """What is predicted from what."""

    title: str
    pairs: tuple[Pair, ...]
    text: str = ""


EXCHANGED = "prediction/h100-collectives-x2"
H100_SLICE = f"{SLICES}llama-3.1-8b-h100"
LATENT = "deepseek-v2-lite"
LATENT_PAIR: Pair = (
    (f"{SLICES}{LATENT}", f"{SLICES}{LATENT}-untraced"), (f"{WHOLE}{LATENT}",)
)  # fmt: skip
"""Latent attention: a slice's trace, and 12 layers without one, of two loans."""
EXTENDED = ("llama-3.1-8b-eagle", "llama-3.1-8b-lora")
"""A head that drafts tokens, and adapters: what the slices and engines are called."""
NARROW = ("qwen3-8b-eagle", "qwen3-8b-lora")
"""The same of another model, with a narrow engine that told what the host needs."""
EXTENDED_PAIRS: tuple[Pair, ...] = tuple(
    ((f"{SLICES}{name}", f"{SLICES}llama-3.1-8b"), (f"{WHOLE}{name}",)) for name in EXTENDED
) + tuple(
    ((f"{SLICES}{name}", f"prediction/narrow-{name}"), (f"{WHOLE}{name}",)) for name in NARROW
)
SPLIT_H200: Pair = (
    (f"{SLICES}llama-3.1-8b-tp2-h200", "prediction/h200-collectives-x2"),
    (f"{WHOLE}llama-3.1-8b-tp2-h200",),
)
"""Two H200, with sources of the same machine, minutes before."""
SPLIT_H200_LATER: Pair = (
    (f"{SLICES}qwen3-14b-tp2-h200", "prediction/h200-collectives-x2"),
    (f"{WHOLE}qwen3-14b-tp2-h200",),
)
"""Two others, with the slice of a rank of minutes before and collectives of the first two."""
SPLIT_SIXTH: Pair = (
    (f"{SLICES}qwen3-32b-tp2-h200", "prediction/h200-collectives-x2"),
    (f"{WHOLE}qwen3-32b-tp2-sixth",),
)
"""Two of a sixth machine, likewise."""
SPLIT_SEVENTH: Pair = (
    (*SPLIT_H200_LATER[0], "prediction/narrow-qwen3-14b-tp2-seventh"),
    (f"{WHOLE}qwen3-14b-tp2-seventh",),
)
"""Two of a seventh, whose hosts a narrow engine over both told."""
SPLIT_EIGHTH: Pair = (
    (*SPLIT_H200_LATER[0], "prediction/narrow-qwen3-14b-tp2-eighth"),
    (f"{WHOLE}qwen3-14b-tp2-eighth",),
)
"""Two of an eighth, likewise."""
NGRAM_PAIRS: tuple[Pair, ...] = (
    (
        (f"{SLICES}llama-3.1-8b", f"{SLICES}llama-3.1-8b-ngram"), (f"{WHOLE}llama-3.1-8b-ngram",),
    ),
    (
        (f"{SLICES}llama-3.1-8b-lora", f"{SLICES}llama-3.1-8b"),
        (f"{WHOLE}llama-3.1-8b-lora-again",),
    ),
    (
        (f"{SLICES}mistral-7b-v0.3", f"{SLICES}mistral-7b-v0.3-ngram"),
        (f"{WHOLE}mistral-7b-v0.3-ngram",),
    ),
    (
        (
            f"{SLICES}llama-3.1-8b-lora1",
            "prediction/narrow-llama-3.1-8b-lora1",
            f"{SLICES}llama-3.1-8b",
        ),
        (f"{WHOLE}llama-3.1-8b-lora1",),
    ),
    (
        (
            f"{SLICES}llama-3.1-8b-lora1",
            "prediction/narrow-llama-3.1-8b-lora1-busy",
            f"{SLICES}llama-3.1-8b",
        ),
        (f"{WHOLE}llama-3.1-8b-lora1-busy",),
    ),
    (
        (
            f"{SLICES}mistral-7b-v0.3-lora4",
            "prediction/narrow-mistral-7b-v0.3-lora4-sixth",
            f"{SLICES}mistral-7b-v0.3",
        ),
        (f"{WHOLE}mistral-7b-v0.3-lora4-sixth",),
    ),
    (
        (f"{SLICES}qwen3-8b-lora", "prediction/narrow-qwen3-8b-lora-seventh"),
        (f"{WHOLE}qwen3-8b-lora-seventh",),
    ),
    (
        (
            f"{SLICES}llama-3.1-8b-lora1",
            "prediction/narrow-llama-3.1-8b-lora1-busy",
            f"{SLICES}llama-3.1-8b",
        ),
        (f"{WHOLE}llama-3.1-8b-lora1-seventh",),
    ),
    (
        (
            f"{SLICES}qwen3-8b-lora",
            "prediction/narrow-qwen3-8b-lora-tenth",
            f"{SLICES}qwen3-8b",
        ),
        (f"{WHOLE}qwen3-8b-lora-tenth",),
    ),
    (
        (f"{SLICES}llama-3.1-8b-eagle", "prediction/narrow-llama-3.1-8b-eagle-tenth"),
        (f"{WHOLE}llama-3.1-8b-eagle-tenth",),
    ),
    (
        (f"{SLICES}llama-3.1-8b", f"{SLICES}llama-3.1-8b-ngram"),
        (f"{WHOLE}llama-3.1-8b-ngram-tenth",),
    ),
    (
        (f"{SLICES}mistral-7b-v0.3", f"{SLICES}mistral-7b-v0.3-ngram"),
        (f"{WHOLE}mistral-7b-v0.3-ngram-tenth",),
    ),
)  # fmt: skip
"""N-grams, and adapters again, on that machine; n-grams of another model, and one adapter with a
narrow engine twice, on other ones. Of the second of these one batch was done when its time was up.
Four adapters of a third model. On a seventh machine eight adapters, and one with the narrow engine
of another day, cut off after 7 of 9 points."""
LOOKED_UP = {layers: f"{SLICES}llama-3.1-8b-ngram-{layers}" for layers in (4, 12, 20)}
"""Slices of several numbers of layers that look n-grams up, one after the other on one machine."""
DEEP = "prediction/deep-llama-3.1-8b-lora"
ADAPTED_ENGINES = {DEEP: DEEP} | {f"{SLICES}{name}": f"{WHOLE}{name}" for name in
                                  ("llama-3.1-8b-lora", "qwen3-8b-lora")}  # fmt: skip
"""Traces of layers with adapters, and engines that had all of them; one is both."""
OPERATOR_RUNS = ("prediction/ops-llama-3.1-8b-h100", "prediction/ops-llama-3.1-8b-small-h100")
H100_CLASSES: dict[str, tuple[Pair, ...]] = {
    "one H100": (
        ((H100_SLICE,), (f"{WHOLE}llama-3.1-8b-h100",)),
        ((H100_SLICE,), (f"{WHOLE}llama-3.1-8b-h100-again",)),
        ((f"{SLICES}gemma-3-12b-h100",), (f"{WHOLE}gemma-3-12b-h100",)),
        ((f"{SLICES}gemma-3-12b-h100",), (f"{WHOLE}gemma-3-12b-h100-again",)),
    ),
    "one H100, fp8": (((f"{SLICES}qwen3-8b-fp8",), (f"{WHOLE}qwen3-8b-fp8-h100",)),),
    "one H100, w4a16": (
        ((f"{SLICES}qwen3-8b-w4a16-h100",), (f"{WHOLE}qwen3-8b-w4a16-h100",)),
        ((f"{SLICES}qwen3-8b-w4a16-h100",), (f"{WHOLE}qwen3-8b-w4a16-h100-again",)),
    ),
    "one H100, experts": (((f"{SLICES}qwen3-30b-a3b-h100",), (f"{WHOLE}qwen3-30b-a3b-h100",)),),
    "two H100": (
        ((f"{SLICES}qwen3-14b-tp2", EXCHANGED), (f"{WHOLE}qwen3-14b-tp2",)),
        ((f"{SLICES}llama-3.1-8b-tp2", EXCHANGED), (f"{WHOLE}llama-3.1-8b-tp2",)),
        ((f"{SLICES}llama-3.1-8b-tp2", EXCHANGED), (f"{WHOLE}llama-3.1-8b-tp2-again",)),
    ),
}
"""Engines on an H100 and over two, each from its slice, by what no residual has seen."""
H100_PAIRS: tuple[Pair, ...] = tuple(pair for of in H100_CLASSES.values() for pair in of)
QUESTIONS = (
    Question("Kernels of other models alone (T1)", ((KERNELS_RUNS, (TRACE, OFFLINE, *BOARDS)),)),
    Question(
        "With a recorded engine at batch 8 (T3)", (((*KERNELS_RUNS, TRACE), (OFFLINE, *BOARDS)),)
    ),
    Question(
        "With a recorded engine, and single requests of another start of it",
        (((*KERNELS_RUNS, TRACE, OFFLINE), BOARDS),),
    ),
    Question(
        "With 4 of the 28 layers of Qwen2.5-7B (T3)",
        (((*KERNELS_RUNS, f"{SLICES}qwen2.5-7b"), (OFFLINE, *BOARDS)),),
    ),
    Question(
        "With 4 layers of Llama-3.1-8B, Qwen3-14B, Qwen3-32B, Qwen3-4B and Mistral-7B (T3)",
        tuple(((*KERNELS_RUNS, f"{SLICES}{model}"), (f"{WHOLE}{model}",)) for model in BEFORE),
    ),
    Question(
        "Loads of a server: 1 to 128 clients, and 15 to 80 requests per second (T3)",
        (((*KERNELS_RUNS, TRACE, OFFLINE), (SERVER,)),),
    ),
    Question(
        "Loads of a server that served another model before, whose event loop is known (T3)",
        (
            (
                (*KERNELS_RUNS, f"{SLICES}llama-3.1-8b", TRACE, OFFLINE, SERVER),
                ("prediction/serve-llama-3.1-8b",),
            ),
            (
                (
                    *KERNELS_RUNS,
                    f"{SLICES}qwen2.5-7b",
                    f"{SLICES}llama-3.1-8b",
                    "prediction/serve-llama-3.1-8b",
                ),
                (SERVER,),
            ),
            *(
                (
                    (
                        *KERNELS_RUNS,
                        f"{SLICES}{model}",
                        f"{SLICES}llama-3.1-8b",
                        "prediction/serve-llama-3.1-8b",
                    ),
                    starts,
                )
                for model, starts in (
                    ("qwen3-4b", STARTS),
                    ("mistral-7b-v0.3", ("prediction/serve-mistral-7b-v0.3",)),
                )
            ),
        ),
        """
Three constants of the host were chosen on the servers of Llama-3.1-8B and Qwen2.5-7B. All of these
servers, three starts of that of Qwen3-4B among them, were at hand when the host got two speeds and
the event loop was read from vLLM's counters ([below](#where-first-tokens-of-servers-wait)): no
number of both is fitted to them, and that both are taken at all was seen to be better here. Before
that TTFT of the open loops was off by 14.1 % for the four servers, and by 21 % with the other two
starts; TPOT by 6.4 and 20 %.
""",
    ),
    Question(
        "Kernels and steps of all layers of three models, from 4 of them (T3)",
        (
            *(
                ((*KERNELS_RUNS, f"{SLICES}{model}"), (f"{LAYERS}{model}",))
                for model in ("llama-3.1-8b", "qwen3-8b")
            ),
            (
                (*KERNELS_RUNS, f"{SLICES}mistral-7b-v0.3-eleventh"),
                (f"{LAYERS}mistral-7b-v0.3",),
            ),
        ),
        """
The models were frozen before all layers of Qwen3-8B (`34f5dc00`) and of Mistral-7B (`4e38e138`)
were recorded; their kernels and steps were not written down before, as those of Llama-3.1-8B were.
Four layers and all layers of Mistral-7B ran on one GPU a minute apart: out of sample for what was
mended with the two others at hand:

- Steps had how long the GPU waits for the host under nsys: up to 19 ms of 41 in Qwen3-8B's, 4 of 10
  in Llama's, where predictions have the host without a profiler. They are now what the GPU does,
  kernels and gaps that do not wait, on both sides; TTFT and TPOT judge the host. By this alone
  steps went from 5.7 to 2.6 % (Llama) and from 10.6 to 4.0 % (Qwen3-8B).
- Whole engines read long prompts 3.7 to 3.9 % longer than slices say (the model that is scored is
  not among those that say so). Predictions of TTFT had that, kernels and steps had not.
- The power limit slows attention and the product after it 1.4 times as much as a step, norms and
  activations a quarter as much (seven slices; no whole engine is among them).
- Steps that generate run at a low clock for some 30 ms after prompts beyond the limit: products
  take 2 to 7 % longer, attention 8, in both engines to within 1 %, and small kernels 11. By the
  other engine alone the numbers are the same. Slices have it too, so that costs are drawn through
  the last steps of such batches: TPOT of 32 requests is off by 1.5 % in place of 1.8 (22 engines).

What stays of Qwen3-8B is its board: products took 5 to 7 % longer than in its slice, on another
machine, from the first layer on, at 43 against 33 degrees and 1.5 against 1.6 GHz under the limit;
Llama's two boards differ by 0 to 2 %.
""",
    ),
    Question(
        "With 4 of the 48 layers of Qwen3-30B-A3B, a mixture of experts (T3)",
        (((*KERNELS_RUNS, f"{SLICES}{MIXTURE}"), (f"{WHOLE}{MIXTURE}",)),),
        """
Weights are made up in both, and tokens were spread over the experts at random
(VLLM_MOE_ROUTING_SIMULATION_STRATEGY=uniform_random), so that nothing is said here of how uneven
the routing of real weights is. The code that reads such slices was committed before they were
recorded; these numbers were computed after it, and the rule for what the host needs, with its
interval, was changed with this recording at hand: in sample. Nothing else moves or narrows them: no
residual has seen a mixture. Prompts of a few thousand tokens wait for the host, which is slower
under the profiler.
""",
    ),
    Question(
        "With 4 of the 27 layers of DeepSeek-V2-Lite, which has latent attention (T3)",
        (LATENT_PAIR,),
    ),
    Question(
        "With 4 layers, beside an EAGLE head or with adapters (T3)",
        EXTENDED_PAIRS,
        """
The points of the predictions above, by the models as they are now, which were changed with these
engines at hand: steps that check drafts heat the GPU by all their tokens, steps of prompts beside
requests that generate are read from the trace of a head (they alone show the power limit there),
and what a head needs of the host is bounded by the slowest steps of its slice. In sample.
""",
    ),
    Question(
        "With the operators of Llama-3.1-8B at its own shapes, on an H100 (T2)",
        ((OPERATOR_RUNS, (f"{WHOLE}llama-3.1-8b-h100",)),),
    ),
    Question(
        "Engines on an H100 and over two, with the models of today (T2, T3)",
        H100_PAIRS,
        """
The points of the predictions above, predicted again by the models as they are now.
""",
    ),
    Question(
        "Two H200, and n-grams and adapters on one, with the models of today (T2, T3)",
        (SPLIT_H200, SPLIT_H200_LATER, SPLIT_SIXTH, SPLIT_SEVENTH, SPLIT_EIGHTH, *NGRAM_PAIRS),
        """
The same for the engines of eight machines with H200. N-grams have the slice of 4 layers that
looked them up beside the one without drafts: what its steps take beyond their kernels is what each
step waits for, and [moves with the speed of the
core](#how-long-steps-wait-that-look-n-grams-up-by-layers). Nothing is fitted to these engines.
""",
    ),
)
SLICED = (QUESTIONS[3], QUESTIONS[4])
"""Questions whose predictions rest on slices."""
WHOLE_QUESTION = QUESTIONS[7]
"""Kernels and steps of whole engines, from their slices."""
EXPERTS = QUESTIONS[8]
"""A mixture of experts on an H200."""
KNOWN = QUESTIONS[6]
"""A server whose event loop another model told."""
SERVED_MODELS = ("llama-3.1-8b", "qwen3-4b", "mistral-7b-v0.3")
"""Models whose server was predicted before it was recorded."""
SERVED, WHOLE_MODEL = "prediction/serve-", "llama-3.1-8b"
ENGINE = f"{LAYERS}{WHOLE_MODEL}"
BATCHES = {"qwen2.5-7b": (OFFLINE, *BOARDS)} | {model: (f"{WHOLE}{model}",) for model in BEFORE}
SERVERS = {"qwen2.5-7b": (SERVER,)} | {model: (f"{SERVED}{model}",) for model in SERVED_MODELS}
"""Recorded engines and servers of each model."""
OPERATORS_OF = {
    "from the slice of the same model on an H200 (T0)": (
        (*KERNELS_RUNS, f"{SLICES}llama-3.1-8b"), H100_SLICE,
    ),
    "from kernels of other models on an H200 (T0)": (KERNELS_RUNS, H100_SLICE),
}  # fmt: skip
"""Sources that predict the operators of a slice on another GPU, by how they are called."""
EXACT_OPERATORS = {"of this model by themselves (T2)": (OPERATOR_RUNS, H100_SLICE)}
"""Operators at exactly the shapes of a model, and the slice that they are held against."""
SPLIT_BEFORE = {
    "qwen3-14b": Committed("qwen3-14b-tp2", "qwen3-14b-tp2"),
    "llama-3.1-8b": Committed("llama-3.1-8b-tp2", "llama-3.1-8b-tp2"),
    "llama-3.1-8b, started again": Committed("llama-3.1-8b-tp2", "llama-3.1-8b-tp2-again"),
}
"""Models over two GPUs: what was predicted of them, and their engines."""
LATENT_TITLE = "DeepSeek-V2-Lite on an H200, from a slice on one (T3)"
EXTENDED_TITLE = "With an EAGLE head and with LoRA adapters on an H200, from slices (T3)"
NARROW_TITLE = "Qwen3-8B with an EAGLE head and with LoRA adapters, from narrow engines too (T3)"
AGAIN = {
    "llama-3.1-8b": "llama-3.1-8b-h100",
    "qwen3-8b in w4a16": "qwen3-8b-w4a16-h100",
    "gemma-3-12b": "gemma-3-12b-h100",
}
"""Engines that were started again on another H100, a day after the first ones."""
SPLIT_H200_TITLE = "Over two H200, from a slice of one rank and collectives (T2)"
NGRAM_AGAIN = (
    "llama-3.1-8b-ngram", "mistral-7b-v0.3-ngram", "llama-3.1-8b-lora-again", "llama-3.1-8b-lora1",
    "llama-3.1-8b-lora1-busy", "mistral-7b-v0.3-lora4-sixth", "qwen3-8b-lora-seventh",
    "llama-3.1-8b-lora1-seventh", "qwen3-8b-lora-tenth", "llama-3.1-8b-eagle-tenth",
    "llama-3.1-8b-ngram-tenth", "mistral-7b-v0.3-ngram-tenth",
)  # fmt: skip
NGRAM_TITLE = "By n-grams, and with LoRA adapters or a head again, on an H200 (T3)"
AGAIN_TITLE = "On another H100 again, hosts told by narrow engines minutes before (T3)"
OTHERS_TITLE = "The same engines, hosts told by engines of other days (T3)"
FIRST_TITLE = "The same engines, as predicted before the first start (T3)"
SAME_TITLE = "On an H200, minutes after narrow engines on the same machine (T3)"
SAME = {
    "llama-3.1-8b": "llama-3.1-8b-same",
    "qwen3-14b": "qwen3-14b-same",
    "qwen3-8b-lora": "qwen3-8b-lora-same",
}
"""Engines that were started on the machine that had told of its host minutes before."""
SAME_SERVER = Committed("llama-3.1-8b-same", "serve-llama-3.1-8b-same")
SAME_LOOP = "prediction/serve-qwen3-4b-same"
"""The server of another model there, whose event loop was taken."""
SAME_PAIRS: tuple[Pair, ...] = tuple(
    ((f"{SLICES}{model}", f"prediction/narrow-{name}"), (f"{WHOLE}{name}",))
    for model, name in SAME.items()
)
SAME_SERVED: Pair = (
    (*SAME_PAIRS[0][0], SAME_LOOP), (f"prediction/{SAME_SERVER.truth}",)
)  # fmt: skip
TIMED = {"llama-3.1-8b": "llama-3.1-8b-timed", "qwen3-14b": "qwen3-14b-timed"}
"""Engines on a machine of two H200 whose host's loop was timed beside sources and truths."""
AT_HOST = "@host"
"""Behind a prediction that is read where the loop beside its truth says (NAME-hosts.csv)."""
TIMED_TITLE = (
    "On an H200 of two, minutes after narrow engines there, host by the loop beside it (T3)"
)
TIMED_TOLD_TITLE = "The same, host as the narrow engines told it (T3)"
TIMED_SLICES_TITLE = "The same, from slices of other days alone, written on that machine (T3)"
TIMED_SERVER = Committed(f"llama-3.1-8b-timed-narrow{AT_HOST}", "serve-llama-3.1-8b-timed")
TIMED_TOLD_SERVER = Committed("llama-3.1-8b-timed-narrow", "serve-llama-3.1-8b-timed")
TIMED_PAIRS: tuple[Pair, ...] = tuple(
    ((f"{SLICES}{model}", f"prediction/narrow-{name}"), (f"{WHOLE}{name}",))
    for model, name in TIMED.items()
)
TIMED_SERVED: Pair = (
    (*TIMED_PAIRS[0][0], SAME_LOOP), (f"prediction/{TIMED_SERVER.truth}",)
)  # fmt: skip
TOLD_PAIRS: tuple[Pair, ...] = (
    *EXTENDED_PAIRS[len(EXTENDED) :],
    *(((f"{SLICES}{name}", f"prediction/narrow-{name}"), (f"{WHOLE}{name}-again",))
      for name in AGAIN.values()),
    *SAME_PAIRS,
    *TIMED_PAIRS,
)  # fmt: skip
"""Engines whose host a narrow engine had told, its GPU idle."""
BUSY = {
    "llama-3.1-8b": "llama-3.1-8b-busy",
    "qwen3-14b": "qwen3-14b-busy",
    "mistral-7b-v0.3": "mistral-7b-v0.3-busy",
}
"""Engines whose host narrow engines told whose GPU was kept busy."""
BUSY_TITLE = "On an H200 of four, minutes after narrow engines with a busy GPU there (T3)"
BUSY_SERVER = Committed("llama-3.1-8b-busy", "serve-llama-3.1-8b-busy")
BUSY_PAIRS: tuple[Pair, ...] = tuple(
    ((f"{SLICES}{model}", f"prediction/narrow-{name}"), (f"{WHOLE}{name}",))
    for model, name in BUSY.items()
)
BUSY_SERVED: Pair = (
    (*BUSY_PAIRS[0][0], SAME_LOOP), (f"prediction/{BUSY_SERVER.truth}",)
)  # fmt: skip
BUSY_AGAIN = {model: f"{name}-again" for model, name in BUSY.items()}
"""The same on another machine of four, hours later."""
BUSY_AGAIN_TITLE = "The same on another machine, hours later (T3)"
BUSY_AGAIN_SERVER = Committed("llama-3.1-8b-busy-again", "serve-llama-3.1-8b-busy-again")
BUSY_AGAIN_PAIRS: tuple[Pair, ...] = tuple(
    ((f"{SLICES}{model}", f"prediction/narrow-{name}"), (f"{WHOLE}{name}",))
    for model, name in BUSY_AGAIN.items()
)
BUSY_AGAIN_SERVED: Pair = (
    (*BUSY_AGAIN_PAIRS[0][0], SAME_LOOP), (f"prediction/{BUSY_AGAIN_SERVER.truth}",)
)  # fmt: skip
THIRD_PAIR: Pair = ((f"{SLICES}llama-3.1-8b",), (f"{WHOLE}llama-3.1-8b-later",))
"""An engine on a third machine, predicted from a slice of another day alone."""
DENSE_TOLD: tuple[Pair, ...] = (
    *SAME_PAIRS[:2], *TIMED_PAIRS, *BUSY_PAIRS, *BUSY_AGAIN_PAIRS, THIRD_PAIR,
)  # fmt: skip
"""Those of dense models on an H200, of other machines than the first engines of these models."""
H100_SERVED: Pair = (
    (H100_SLICE, "prediction/narrow-llama-3.1-8b-h100"), (f"{SERVED}llama-3.1-8b-h100",)
)  # fmt: skip
FOURTH_TITLE = "On a fourth machine, minutes after a narrow engine with a busy GPU there (T3)"
FOURTH_SERVER = Committed("qwen3-14b-served", "serve-qwen3-14b")
FOURTH_PAIR: Pair = (
    (f"{SLICES}qwen3-14b", "prediction/narrow-qwen3-14b-served"), (f"{WHOLE}qwen3-14b-served",),
)  # fmt: skip
FOURTH_SERVED: Pair = ((*FOURTH_PAIR[0], SAME_LOOP), (f"prediction/{FOURTH_SERVER.truth}",))
"""An engine and a server of Qwen3-14B there."""
SPLIT_SERVER = Committed("llama-3.1-8b-tp2-served", "serve-llama-3.1-8b-tp2-h200")
SPLIT_SERVED: Pair = ((*SPLIT_H200[0], SAME_LOOP), (f"prediction/{SPLIT_SERVER.truth}",))
"""A server over two GPUs there, with the slice and collectives of another machine."""
FIFTH_SERVER = Committed("qwen3-4b-served", "serve-qwen3-4b-busy")
FIFTH_SERVED: Pair = (
    (f"{SLICES}qwen3-4b", "prediction/narrow-qwen3-4b-busy", f"prediction/{FOURTH_SERVER.truth}"),
    (f"prediction/{FIFTH_SERVER.truth}",),
)
SPLIT_AGAIN_SERVER = Committed("qwen3-14b-tp2-served", "serve-qwen3-14b-tp2-h200")
SPLIT_AGAIN_SERVED: Pair = (
    (*SPLIT_H200_LATER[0], SAME_LOOP), (f"prediction/{SPLIT_AGAIN_SERVER.truth}",)
)  # fmt: skip
"""On a fifth machine, of two H200: a server whose host a busy engine told, one over both GPUs."""
SIXTH_TITLE = (
    "On a sixth machine: Qwen3-8B from a slice there, others from slices of other days (T3)"
)
SIXTH = {
    "qwen3-8b": "qwen3-8b-sixth",
    "mistral-7b-v0.3": "mistral-7b-v0.3-sixth",
    "qwen2.5-7b": "qwen2.5-7b-sixth",
}
SIXTH_PAIRS: tuple[Pair, ...] = (
    ((f"{SLICES}qwen3-8b", "prediction/narrow-qwen3-8b-sixth"), (f"{WHOLE}qwen3-8b-sixth",)),
    ((f"{SLICES}mistral-7b-v0.3",), (f"{WHOLE}mistral-7b-v0.3-sixth",)),
    ((f"{SLICES}qwen2.5-7b",), (f"{WHOLE}qwen2.5-7b-sixth",)),
)
SIXTH_FIRST = "prediction/serve-mistral-7b-v0.3-sixth"
"""The server of that machine whose event loop the others have."""
SIXTH_SERVERS = {
    "mistral-7b-v0.3, on a sixth machine": Committed(
        "mistral-7b-v0.3-sixth", "serve-mistral-7b-v0.3-sixth"
    ),
    "qwen3-8b, on a sixth machine": Committed("qwen3-8b-sixth", "serve-qwen3-8b-sixth"),
    "qwen2.5-7b, on a sixth machine": Committed("qwen2.5-7b-sixth", "serve-qwen2.5-7b-sixth"),
    "qwen3-32b, on a sixth machine": Committed("qwen3-32b-tp2-sixth", "serve-qwen3-32b-tp2-sixth"),
}
SIXTH_SERVED: tuple[Pair, ...] = (
    (
        (*(f"{SLICES}mistral-7b-v0.3",), f"prediction/{FIFTH_SERVER.truth}"),
        ("prediction/serve-mistral-7b-v0.3-sixth",),
    ),
    (
        (*(f"{SLICES}qwen3-8b", "prediction/narrow-qwen3-8b-sixth"), SIXTH_FIRST),
        ("prediction/serve-qwen3-8b-sixth",),
    ),
    ((*(f"{SLICES}qwen2.5-7b",), SIXTH_FIRST), ("prediction/serve-qwen2.5-7b-sixth",)),
    (
        (*(f"{SLICES}qwen3-32b-tp2-h200", "prediction/h200-collectives-x2"), SIXTH_FIRST),
        ("prediction/serve-qwen3-32b-tp2-sixth",),
    ),
)
SEVENTH_TITLE = "On a seventh machine, minutes after narrow engines with a busy GPU there (T3)"
SEVENTH = {"llama-3.1-8b": "llama-3.1-8b-seventh", "mistral-7b-v0.3": "mistral-7b-v0.3-seventh"}
SEVENTH_PAIRS: tuple[Pair, ...] = tuple(
    ((f"{SLICES}{model}", f"prediction/narrow-{name}"), (f"{WHOLE}{name}",))
    for model, name in SEVENTH.items()
)
SEVENTH_ALONE_TITLE = "Engines of the seventh machine, as predicted without their narrow ones"
SEVENTH_ALONE = {
    f"{model}, host not told": Committed(f"{name}-alone", name)
    for model, name in (
        ("qwen3-14b, over two", "qwen3-14b-tp2-seventh"), ("qwen3-8b-lora", "qwen3-8b-lora-seventh")
    )
}  # fmt: skip
SEVENTH_FIRST = "prediction/serve-llama-3.1-8b-seventh"
"""The server of that machine whose event loop that of Qwen3-4B has."""
SEVENTH_SERVERS = {
    f"{model}, on a seventh machine": Committed(name, f"serve-{name}")
    for model, name in (
        ("llama-3.1-8b", "llama-3.1-8b-seventh"),
        ("qwen3-14b over two", "qwen3-14b-tp2-seventh"),
        ("qwen3-4b", "qwen3-4b-seventh"),
    )
}
LOOP_BEFORE_SEVENTH = "prediction/serve-qwen3-8b-sixth"
SEVENTH_SERVED: tuple[Pair, ...] = (
    ((*SEVENTH_PAIRS[0][0], LOOP_BEFORE_SEVENTH), (SEVENTH_FIRST,)),
    ((*SPLIT_SEVENTH[0], LOOP_BEFORE_SEVENTH), ("prediction/serve-qwen3-14b-tp2-seventh",)),
    (
        (f"{SLICES}qwen3-4b", "prediction/narrow-qwen3-4b-seventh", SEVENTH_FIRST),
        ("prediction/serve-qwen3-4b-seventh",),
    ),
)
EIGHTH_TITLE = "On an eighth machine, minutes after narrow engines with a busy GPU there (T3)"
EIGHTH = {"llama-3.1-8b": "llama-3.1-8b-eighth"}
EIGHTH_PAIRS: tuple[Pair, ...] = (
    (
        (f"{SLICES}llama-3.1-8b", "prediction/narrow-llama-3.1-8b-eighth"),
        (f"{WHOLE}llama-3.1-8b-eighth",),
    ),
)
EIGHTH_ALONE_TITLE = "An engine of the eighth machine, as predicted without its narrow one"
EIGHTH_ALONE = {
    "qwen3-14b, over two, host not told": Committed(
        "qwen3-14b-tp2-eighth-alone", "qwen3-14b-tp2-eighth"
    )
}
EIGHTH_SERVERS = {
    f"{model}, on an eighth machine": Committed(name, f"serve-{name}")
    for model, name in (
        ("llama-3.1-8b", "llama-3.1-8b-eighth"),
        ("qwen3-14b over two", "qwen3-14b-tp2-eighth"),
        ("qwen3-4b", "qwen3-4b-eighth"),
    )
}
EIGHTH_SERVED: tuple[Pair, ...] = (
    ((*EIGHTH_PAIRS[0][0], LOOP_BEFORE_SEVENTH), ("prediction/serve-llama-3.1-8b-eighth",)),
    ((*SPLIT_EIGHTH[0], LOOP_BEFORE_SEVENTH), ("prediction/serve-qwen3-14b-tp2-eighth",)),
    (
        (f"{SLICES}qwen3-4b", "prediction/narrow-qwen3-4b-eighth", LOOP_BEFORE_SEVENTH),
        ("prediction/serve-qwen3-4b-eighth",),
    ),
)
NINTH_TITLE = "On a ninth machine, an H100, minutes after a narrow engine there (T3)"
NINTH = {"llama-3.1-8b": "llama-3.1-8b-h100-ninth"}
NINTH_PAIRS: tuple[Pair, ...] = (
    (
        (H100_SLICE, "prediction/narrow-llama-3.1-8b-h100-ninth"),
        (f"{WHOLE}llama-3.1-8b-h100-ninth",),
    ),
)
CARRIED_TITLE = "On an H100, from runs of an H200 (T0)"
NINTH_CARRIED_TITLE = "Engines of the ninth machine's H100, from slices of an H200 (T0)"
NINTH_CARRIED = {
    model: Committed(f"{name}-h100-ninth-from-h200", f"{name}-h100-ninth")
    for model, name in (
        ("qwen3-4b", "qwen3-4b"), ("mistral-7b-v0.3", "mistral-7b-v0.3"),
        ("qwen3-8b", "qwen3-8b"), ("qwen3-14b", "qwen3-14b"),
        ("qwen3-8b with 8 adapters", "qwen3-8b-lora"),
        ("llama-3.1-8b with an EAGLE head", "llama-3.1-8b-eagle"),
    )
}  # fmt: skip
NINTH_SERVERS = {
    "llama-3.1-8b, on a ninth machine": Committed(
        "llama-3.1-8b-h100-ninth", "serve-llama-3.1-8b-h100-ninth"
    )
}
NINTH_SERVED: tuple[Pair, ...] = (
    (NINTH_PAIRS[0][0], ("prediction/serve-llama-3.1-8b-h100-ninth",)),
)


@dataclass(frozen=True)
class Machine:
    """A machine with H200s, whose narrow engines ran minutes before what is predicted.

    Attributes:
        name: what names of its runs end in.
        engines: models of its engines on one GPU, each with a narrow engine.
        loops: the server whose event loop a server has, by model.
        alone: engines that were predicted without their narrow ones too, by how they are called.
    """

    name: str
    engines: tuple[str, ...]
    loops: Mapping[str, str]
    alone: Mapping[str, str] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """The title of the predictions of its engines."""
        return f"On {self._a()} machine, minutes after narrow engines with a busy GPU there (T3)"

    @property
    def alone_title(self) -> str:
        """The title of the predictions that did without narrow engines."""
        return f"Engines of the {self.name} machine, as predicted without their narrow ones"

    @property
    def pairs(self) -> tuple[Pair, ...]:
        """Its engines, and the slices and narrow engines that they are predicted from."""
        return tuple((self._sources(m), (f"{WHOLE}{m}-{self.name}",)) for m in self.engines)

    @property
    def served(self) -> tuple[Pair, ...]:
        """Its servers, and what they are predicted from."""
        return tuple(
            ((*self._sources(model), loop), (f"{SERVED}{model}-{self.name}",))
            for model, loop in self.loops.items()
        )

    @property
    def servers(self) -> dict[str, Committed]:
        """What was written down of its servers, by how they are called."""
        return {
            f"{model}, on {self._a()} machine": Committed(
                f"{model}-{self.name}", f"serve-{model}-{self.name}"
            )
            for model in self.loops
        }

    @property
    def written(self) -> dict[str, tuple[dict[str, Committed], Mapping[str, float]]]:
        """What was written down of its engines, and what is required, by title."""
        names = {model: f"{model}-{self.name}" for model in self.engines}
        engines = {model: Committed(name, name) for model, name in names.items()}
        found = {self.title: engines} if engines else {}
        if self.alone:
            found[self.alone_title] = {
                f"{words}, host not told": Committed(f"{name}-{self.name}-alone",
                                                     f"{name}-{self.name}")
                for words, name in self.alone.items()
            }  # fmt: skip
        return {title: (of_title, REQUIRED) for title, of_title in found.items()}

    def _sources(self, model: str) -> tuple[str, ...]:
        return f"{SLICES}{model}", f"prediction/narrow-{model}-{self.name}"

    def _a(self) -> str:
        return f"{'an' if self.name[0] in 'ae' else 'a'} {self.name}"


TENTH = Machine(
    "tenth",
    ("llama-3.1-8b", "qwen3-4b", "qwen3-8b", "qwen3-14b"),
    {"llama-3.1-8b": LOOP_BEFORE_SEVENTH, "qwen3-4b": LOOP_BEFORE_SEVENTH},
    {
        "qwen3-8b with 8 adapters": "qwen3-8b-lora",
        "llama-3.1-8b with an EAGLE head": "llama-3.1-8b-eagle",
    },
)
ELEVENTH = Machine("eleventh", (), {"qwen3-4b": LOOP_BEFORE_SEVENTH})
LATER = (TENTH, ELEVENTH)
"""Machines from the tenth on."""
SERVERS_RECORDED = (
    SERVER, *(f"{SERVED}{model}" for model in SERVED_MODELS), *STARTS[1:], SAME_LOOP,
    f"{SERVED}llama-3.1-8b-h100", *(f"prediction/{served.truth}" for served in
    (SAME_SERVER, TIMED_SERVER, BUSY_SERVER, BUSY_AGAIN_SERVER, FOURTH_SERVER, FIFTH_SERVER)),
)  # fmt: skip
"""Servers on one GPU whose event loop is known, with as many layers as their models have."""
EVERY_SERVED: tuple[Pair, ...] = (
    *KNOWN.pairs, SAME_SERVED, TIMED_SERVED, BUSY_SERVED, BUSY_AGAIN_SERVED, H100_SERVED,
    FOURTH_SERVED, SPLIT_SERVED, FIFTH_SERVED, SPLIT_AGAIN_SERVED, *SIXTH_SERVED,
    *SEVENTH_SERVED, *EIGHTH_SERVED, *NINTH_SERVED,
    *(pair for machine in LATER for pair in machine.served),
)  # fmt: skip
LOOPS = (*SERVERS_RECORDED, SIXTH_FIRST, LOOP_BEFORE_SEVENTH, SEVENTH_FIRST)
LOOP_UNKNOWN: tuple[Pair, ...] = tuple(
    (tuple(name for name in sources if name not in LOOPS), truths)
    for sources, truths in EVERY_SERVED
)
"""The same servers, where no recorded one tells the event loop."""
THIRD_TITLE = "On a third machine, whose host nobody told (T3)"
AGAIN_SERVER = Committed("llama-3.1-8b-h100-again", "serve-llama-3.1-8b-h100")
ELSEWHERE = {
    "On an H100, from a slice on one (T3)": (
        {
            "llama-3.1-8b": Committed("llama-3.1-8b-h100", "llama-3.1-8b-h100"),
            "qwen3-8b in fp8": Committed("qwen3-8b-fp8-h100", "qwen3-8b-fp8-h100"),
            "qwen3-8b in w4a16": Committed("qwen3-8b-w4a16-h100", "qwen3-8b-w4a16-h100"),
            "gemma-3-12b": Committed("gemma-3-12b-h100", "gemma-3-12b-h100"),
            "qwen3-30b-a3b": Committed("qwen3-30b-a3b-h100", "qwen3-30b-a3b-h100"),
        },
        REQUIRED,
    ),
    "Over two H100, from a slice of one rank and measured collectives (T2)": (
        SPLIT_BEFORE, REQUIRED | {"tpot": 0.05},
    ),
    CARRIED_TITLE: (
        {
            "llama-3.1-8b": Committed("llama-3.1-8b-h100-from-h200", "llama-3.1-8b-h100"),
            "qwen3-8b": Committed("qwen3-8b-h100-from-h200", "qwen3-8b-h100"),
            "qwen2.5-7b": Committed("qwen2.5-7b-h100-from-h200", "qwen2.5-7b-h100"),
            "gemma-3-12b": Committed("gemma-3-12b-h100-from-h200", "gemma-3-12b-h100"),
            "qwen3-30b-a3b": Committed("qwen3-30b-a3b-h100-from-h200", "qwen3-30b-a3b-h100"),
        },
        {},
    ),
    LATENT_TITLE: ({LATENT: Committed(LATENT, LATENT)}, REQUIRED),
    EXTENDED_TITLE: ({name: Committed(name, name) for name in EXTENDED}, REQUIRED),
    NARROW_TITLE: ({name: Committed(name, name) for name in NARROW}, REQUIRED),
    AGAIN_TITLE: (
        {model: Committed(f"{name}-again", f"{name}-again") for model, name in AGAIN.items()},
        REQUIRED,
    ),
    FIRST_TITLE: (
        {model: Committed(name, f"{name}-again") for model, name in AGAIN.items()},
        REQUIRED,
    ),
    OTHERS_TITLE: (
        {model: Committed(f"{name}-others", f"{name}-again") for model, name in AGAIN.items()},
        REQUIRED,
    ),
    SAME_TITLE: ({model: Committed(name, name) for model, name in SAME.items()}, REQUIRED),
    TIMED_TITLE: (
        {model: Committed(f"{name}-narrow{AT_HOST}", name) for model, name in TIMED.items()},
        REQUIRED,
    ),
    TIMED_TOLD_TITLE: (
        {model: Committed(f"{name}-narrow", name) for model, name in TIMED.items()}, REQUIRED,
    ),
    TIMED_SLICES_TITLE: (
        {model: Committed(name, name) for model, name in TIMED.items()}, REQUIRED,
    ),
    BUSY_TITLE: ({model: Committed(name, name) for model, name in BUSY.items()}, REQUIRED),
    BUSY_AGAIN_TITLE: (
        {model: Committed(name, name) for model, name in BUSY_AGAIN.items()}, REQUIRED,
    ),
    THIRD_TITLE: (
        {"llama-3.1-8b": Committed("llama-3.1-8b-later", "llama-3.1-8b-later")}, REQUIRED,
    ),
    FOURTH_TITLE: (
        {"qwen3-14b": Committed("qwen3-14b-served", "qwen3-14b-served")}, REQUIRED,
    ),
    SIXTH_TITLE: ({model: Committed(name, name) for model, name in SIXTH.items()}, REQUIRED),
    SEVENTH_TITLE: ({model: Committed(name, name) for model, name in SEVENTH.items()}, REQUIRED),
    SEVENTH_ALONE_TITLE: (SEVENTH_ALONE, REQUIRED),
    EIGHTH_TITLE: ({model: Committed(name, name) for model, name in EIGHTH.items()}, REQUIRED),
    EIGHTH_ALONE_TITLE: (EIGHTH_ALONE, REQUIRED),
    NINTH_TITLE: ({model: Committed(name, name) for model, name in NINTH.items()}, REQUIRED),
    NINTH_CARRIED_TITLE: (NINTH_CARRIED, {}),
    **{title: written for machine in LATER for title, written in machine.written.items()},
    SPLIT_H200_TITLE: (
        {
            "llama-3.1-8b": Committed("llama-3.1-8b-tp2-h200", "llama-3.1-8b-tp2-h200"),
            "qwen3-14b": Committed("qwen3-14b-tp2-h200", "qwen3-14b-tp2-h200"),
            "qwen3-32b": Committed("qwen3-32b-tp2-sixth", "qwen3-32b-tp2-sixth"),
            "qwen3-14b, host told": Committed("qwen3-14b-tp2-seventh", "qwen3-14b-tp2-seventh"),
            "qwen3-14b, host told again": Committed("qwen3-14b-tp2-eighth", "qwen3-14b-tp2-eighth"),
        },
        REQUIRED | {"tpot": 0.05},
    ),
    NGRAM_TITLE: (
        {name: Committed(name, name) for name in NGRAM_AGAIN},
        REQUIRED,
    ),
}  # fmt: skip
"""Predictions for another GPU or several: title -> files by model, and the required errors."""
PEER_ELSEWHERE: dict[str, tuple[str, Row]] = {
    "llama-3.1-8b-h100": ("llama-3.1-8b", {}),
    "qwen3-8b-fp8-h100": ("qwen3-8b", {"gemm_quant_mode": "fp8"}),
    "qwen3-8b-w4a16-h100": ("qwen3-8b", {"gemm_quant_mode": "int4_wo"}),
    "gemma-3-12b-h100": ("gemma-3-12b", {}),
    "qwen3-14b-tp2": ("qwen3-14b", {"tp_size": 2}),
    "llama-3.1-8b-tp2": ("llama-3.1-8b", {"tp_size": 2}),
    "llama-3.1-8b-tp2-again": ("llama-3.1-8b", {"tp_size": 2}),
    "qwen3-30b-a3b-h100": ("qwen3-30b-a3b", {"moe_tp_size": 1, "moe_ep_size": 1}),
}
"""Engines on H100 by name: the model, and what aiconfigurator is told beside its points."""
OPERATORS = "operators-of-aiconfigurator"
"""Run of its imported tables."""
SYSTEM, VERSION = "h200_sxm", "0.24.0"
