"""Generates with a few layers of one rank of a model: what the whole model takes follows from it.

    python layer_slice.py --model llama-3.1-8b --layers 4
    python layer_slice.py --model Qwen/Qwen3-32B --layers 4 --ranks 8
    python layer_slice.py --model llama-3.1-8b --narrow --untraced-only
    python layer_slice.py --model llama-3.1-8b --narrow --untraced-only --busy-step 4.8

The engine serves a configuration that was cut to `--layers` layers and to the heads, feed-forward
and vocabulary of one of `--ranks` GPUs of tensor parallelism; weights are made up. Batches of all
sizes are timed without a profiler and once more, all of them, between vLLM's start_profile and
stop_profile. So few layers wait for the host: the time of a step is that of its kernels, which the
trace has, and what the host needs for it, which engines of two numbers of layers tell.

Records are those of offline.py; key `prof_slice` of the engine's configuration says what it was
cut from. Runs by itself in any Python that has vLLM 0.20 or newer.
"""

from __future__ import annotations

import json
import math
import runpy
import sys
import tempfile
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

if not __package__:  # run as a file
    runpy.run_path(str(Path(__file__).resolve().parents[1] / "standalone.py"))
from nsight_prof.targets.harness.options import Parser, positive, whole
from nsight_prof.targets.serving.busy_gpu import BusyGpu
from nsight_prof.targets.serving.conditions import conditions, visible_gpus
from nsight_prof.targets.serving.ending import close, run_to_the_end
from nsight_prof.targets.serving.engine import (
    EngineOptions,
    add_engine_arguments,
    engine_options,
    make_engine,
)
from nsight_prof.targets.serving.failures import EngineFailure
from nsight_prof.targets.serving.models import Model, find_model
from nsight_prof.targets.serving.offline import Point, Run, params, with_records, write_failure
from nsight_prof.targets.serving.records import Records

TARGET = "vllm-layer-slice"
SLICE = "prof_slice"
"""Key of the cut configuration that says what it was cut from."""
STEP_TOKENS = 8192
"""Most tokens of a step, where vLLM is not told otherwise."""
DIVIDED = ("num_attention_heads", "intermediate_size")
"""Keys that the ranks share: they must divide them."""
DENSE_FIRST, DENSE_LAYERS = "first_k_dense_replace", "mlp_only_layers"
"""Keys that name layers without experts beside such with them: the first ones, or any."""
LATENT = "kv_lora_rank"
"""Key of models with latent attention, whose heads have several sizes (DeepSeek-V2)."""
FIXED_HEADS = ("qwen2", "qwen2_moe")
"""Model types of which vLLM 0.20 does not read head_dim."""
NARROWED = (
    "hidden_size", "intermediate_size", "moe_intermediate_size", "num_attention_heads",
    "num_key_value_heads",
)  # fmt: skip
"""Keys that a narrow engine changes: how often the host launches does not depend on them."""
BUSY = "busy-gpu"
"""Experiment of points in which the GPU of a narrow engine is kept busy, and key that says it."""
NARROW = 128
"""Width of its feed-forward, the least of quantized weights, which come in groups of 128."""


def cut(config: Mapping[str, Any], layers: int, ranks: int) -> dict[str, Any]:
    """Return the configuration of `layers` layers of one of `ranks` GPUs of tensor parallelism.

    Heads and feed-forward are divided as Megatron-LM divides them (arXiv 1909.08053), key and value
    heads down to one, and the vocabulary is rounded up.

    Raises:
        EngineFailure: there are fewer layers, they are of several kinds whose share would differ,
            or the ranks do not divide the model.
    """
    whole_model = {key: config.get(key) for key in ("num_hidden_layers", *DIVIDED, "vocab_size")}
    lacking = [key for key, value in whole_model.items() if not isinstance(value, int)]
    if lacking:
        raise EngineFailure(
            f"the configuration has no {', '.join(lacking)}: its layers cannot be cut",
            "give the config.json of a decoder with one kind of layer",
            "unsupported",
        )
    heads, hidden = config["num_attention_heads"], config.get("hidden_size", 0)
    kv_heads = config.get("num_key_value_heads") or heads
    uneven = [key for key in DIVIDED if config[key] % ranks]
    if uneven or (kv_heads % ranks and ranks % kv_heads):
        raise EngineFailure(
            f"{ranks} ranks do not divide {', '.join(uneven) or 'num_key_value_heads'}",
            "use a tensor parallel size that divides heads and feed-forward",
            "unsupported",
        )
    if ranks > 1 and config.get("model_type") in FIXED_HEADS:
        raise EngineFailure(
            f"vLLM takes the size of a head of {config['model_type']} from hidden_size, which the "
            "ranks do not divide",
            "leave --ranks out, or measure another model",
            "unsupported",
        )
    if layers > config["num_hidden_layers"]:
        raise EngineFailure(
            f"the model has {config['num_hidden_layers']} layers, fewer than {layers}",
            "a smaller --layers",
            "unsupported",
        )
    period = config.get("sliding_window_pattern")
    if isinstance(period, int) and layers % period:
        raise EngineFailure(
            f"each {period}th layer attends to all tokens, others to a window: {layers} layers "
            "have another share of them",
            f"--layers {-(-layers // period) * period}",
            "unsupported",
        )
    if config.get(DENSE_LAYERS) or layers <= (config.get(DENSE_FIRST) or 0):
        raise EngineFailure(
            "some layers have experts and others have none: these few do not tell both",
            "measure it whole: prof run vllm-kernels --set target.args.model=MODEL",
            "unsupported",
        )
    if ranks > 1 and config.get("moe_intermediate_size"):
        raise EngineFailure(
            f"how {ranks} ranks divide experts is not known here",
            "leave --ranks out",
            "unsupported",
        )
    size = {} if LATENT in config else {"head_dim": config.get("head_dim") or hidden // heads}
    found = (
        dict(config)
        | size
        | {
            "num_hidden_layers": layers,
            "num_attention_heads": heads // ranks,
            "num_key_value_heads": max(1, kv_heads // ranks),
            "intermediate_size": config["intermediate_size"] // ranks,
            "vocab_size": -(-config["vocab_size"] // ranks),
            SLICE: {"layers": config["num_hidden_layers"], "tensor_parallel": ranks},
        }
    )
    if isinstance(config.get("layer_types"), list):
        found["layer_types"] = config["layer_types"][:layers]
    if isinstance(config.get("max_window_layers"), int):
        found["max_window_layers"] = min(config["max_window_layers"], layers)
    return found


def narrowed(config: Mapping[str, Any], gpus: int = 1) -> dict[str, Any]:
    """Return the configuration with all its layers, each as narrow as its kernels allow.

    Each of `gpus` that share it has so much. Key `prof_slice` keeps the widths. Heads of latent
    attention stay: kernels need their number.
    """
    widths = {key: config[key] for key in NARROWED if isinstance(config.get(key), int)}
    heads, kv_heads = widths["num_attention_heads"], widths.get("num_key_value_heads") or 1
    found = dict(config)
    found |= {key: gpus * NARROW for key in widths if key.endswith("intermediate_size")}
    if LATENT in config:
        found["hidden_size"] = 4 * NARROW
    else:
        group = max(1, heads // kv_heads)  # query heads of a key head: their kernels differ
        found |= {"num_attention_heads": gpus * group, "hidden_size": group * config["head_dim"]}
        found |= {"num_key_value_heads": gpus} if "num_key_value_heads" in widths else {}
    found[SLICE] = dict(config[SLICE]) | {"narrowed": widths}
    return found


def points(args: Namespace) -> Iterator[Point]:
    """Give the batches: single prompts of all lengths, and all batches of all contexts.

    The first requests of a batch generate while the prompts of the last are read: they get so many
    tokens more that all of them generate together at the end.
    """
    each = math.ceil(args.accept or 1)  # tokens of a step
    for prompt in args.prompts:
        yield Point(1, prompt, args.output_tokens * each)
    for context in args.contexts:
        for batch in args.batches:
            if batch * context <= args.most_tokens:
                meanwhile = batch * context // (args.max_num_batched_tokens or STEP_TOKENS)
                yield Point(batch, context, (args.output_tokens + meanwhile) * each)


def parse_arguments(argv: Sequence[str]) -> Namespace:
    """Return the command line's values; exit code 2 with a reason where it is wrong."""
    parser = Parser(description=(__doc__ or "").split("\n\n")[0], allow_abbrev=False)

    def sizes(flag: str, default: tuple[int, ...], text: str) -> None:
        text += f" ({' '.join(map(str, default))})"
        parser.add_argument(flag, type=positive, nargs="+", default=default, metavar="N", help=text)

    add = parser.add_argument
    add("--layers", type=positive, default=4, metavar="N", help="layers that are left (4)")
    add("--narrow", action="store_true", help="all layers, of one key head: what the host needs")
    text = "GPUs that share a narrow engine (1)"
    add("--narrow-gpus", type=positive, default=1, metavar="N", help=text)
    text = "ms that the GPU of a narrow engine is kept busy in a step: single prompts once more"
    add("--busy-step", type=float, default=0.0, metavar="MS", help=text)
    text = "the same of each token of a prompt, where these take longer, in us (0)"
    add("--busy-token", type=float, default=0.0, metavar="US", help=text)
    add("--ranks", "--tensor-parallel", type=positive, default=1, metavar="N",
        help="GPUs that share the model (1)")  # fmt: skip
    sizes("--batches", (1, 2, 4, 8, 16, 32, 64, 128), "requests that generate at once")
    sizes("--contexts", (128, 1024, 4000), "tokens of their prompts")
    sizes("--prompts", (16, 64, 200, 512, 2048, 8000), "tokens of prompts that come alone")
    text = "of all prompts of a batch: larger ones are left out (131072)"
    add("--most-tokens", type=positive, default=131072, metavar="N", help=text)
    add("--output-tokens", type=positive, default=8, metavar="N", help="of each request (8)")
    add("--warmups", type=whole, default=1, metavar="N", help="runs of each batch before (1)")
    add("--repeats", type=whole, default=3, metavar="N", help="timed without a profiler (3)")
    add("--untraced-only", action="store_true", help="no profiler: for what the host needs")
    add("--out", metavar="FILE", help="records go there (the variable PROF_RESULTS)")
    add_engine_arguments(parser, without=("profiler", "weights", "tensor_parallel"))
    args = parser.parse_args(argv)
    args.argv, args.weights, args.tensor_parallel = list(argv), "dummy", args.narrow_gpus
    if args.narrow_gpus > 1 and not args.narrow:
        parser.error("--narrow-gpus is of a narrow engine: add --narrow, or see --ranks")
    if args.busy_step and (args.narrow_gpus > 1 or not args.narrow):
        parser.error("--busy-step is of a narrow engine on one GPU: add --narrow")
    return args


def options_of(args: Namespace) -> EngineOptions:
    """Return how the engine is made: as long as the longest request needs."""
    return engine_options(args, profiler=not args.untraced_only)


def run(args: Namespace, records: Records) -> int:
    """Start the engine of the slice, time all batches, end the engine; 0 where one was timed."""
    records.conditions(conditions(args.argv, args.seed, visible_gpus()))
    model = find_model(args.model, "dummy")
    config = configuration(model)
    if args.narrow:
        whole_model = cut(config, config.get("num_hidden_layers", 0), args.ranks)
        config = narrowed(whole_model, args.narrow_gpus)
        if args.busy_step:
            config[SLICE][BUSY] = {"step_s": args.busy_step / 1e3, "token_s": args.busy_token / 1e6}
    else:
        config = cut(config, args.layers, args.ranks)
    every = list(dict.fromkeys(points(args)))
    longest = max(-(-(point.tokens + args.speculative_tokens) // 256) * 256 for point in every)
    longest = args.max_model_len or min(longest, config.get("max_position_embeddings") or longest)
    begin = records.now()
    with tempfile.TemporaryDirectory(prefix="prof-slice-") as folder:
        sliced = Path(folder) / model.name.rsplit("/", 1)[-1]
        sliced.mkdir()
        (sliced / "config.json").write_text(json.dumps(config), encoding="utf-8")
        busy = None
        try:
            if args.busy_step:
                busy = _busy_gpu(config)
            options = replace(options_of(args), model=str(sliced), max_model_len=longest)
            engine = make_engine(options, records.begin)
        except EngineFailure as failure:
            write_failure(records, every[0], params(every[0], args), failure)
            raise
    records.phase(None, "start engine", begin, records.now())
    try:
        records.engine(engine.facts())
        timed = Run(engine, records, args)
        fitting = [point for point in every if timed.fits(point)]
        if busy is not None:
            busy.calibrate()
        for point in fitting:
            timed.warm_up(point)
            timed.untraced(point)
            if busy is not None and point.batch == 1:
                busy.on = True
                timed.untraced(replace(point, experiment=BUSY))
                busy.on = False
        if not args.untraced_only:
            timed.traced(fitting)
    finally:
        begin = records.now()
        close(engine)
        records.phase(None, "end engine", begin, records.now())
    print(json.dumps({"target": TARGET, "model": model.name, "cases": timed.shown}))
    return 0 if timed.shown else 1


def _busy_gpu(config: Mapping[str, Any]) -> BusyGpu:
    """Return what keeps the GPU of a narrow engine busy.

    Raises:
        EngineFailure: this vLLM has other classes.
    """
    busy = BusyGpu(config["num_hidden_layers"], **config[SLICE][BUSY])
    try:
        busy.install()
    except (ImportError, AttributeError) as error:
        raise EngineFailure(
            f"the GPU cannot be kept busy in this vLLM: {error}",
            "vLLM 0.20 with FlashAttention is known; leave --busy-step out",
            "unsupported",
        ) from error
    return busy


def configuration(model: Model) -> dict[str, Any]:
    """Return the model's config.json; that of a hub name as transformers finds it.

    Raises:
        EngineFailure: it is not found.
    """
    if model.config is not None:
        return model.config
    try:
        found = import_module("transformers").AutoConfig.from_pretrained(model.path)
        return dict(found.to_dict())
    except (ImportError, OSError, ValueError) as error:
        raise EngineFailure(
            f"the configuration of {model.path} is not found: {error}",
            "name a folder that holds config.json",
        ) from error


def main(argv: Sequence[str] | None = None) -> int:
    """Run; exit code 1 with a reason where vLLM fails, 3 where it is not installed."""
    args = parse_arguments(sys.argv[1:] if argv is None else argv)
    return run_to_the_end(lambda: with_records(args, TARGET, run), options_of(args).has_processes)


if __name__ == "__main__":
    sys.exit(main())
