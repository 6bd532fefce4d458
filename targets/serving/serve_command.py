"""The command of a vLLM server: our options of the engine in the words of `vllm serve`."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from nsight_prof.targets.serving.failures import VLLM, EngineFailure
from nsight_prof.targets.serving.healthy import HOST
from nsight_prof.targets.serving.models import Model
from nsight_prof.targets.serving.options import EngineOptions
from nsight_prof.targets.serving.word_tokenizer import has_tokenizer, write_word_tokenizer

NAME = VLLM
MODULE = "vllm.entrypoints.openai.api_server"
LEAST_MODEL_LEN = 4096
GIB = 1 << 30


def command(
    model: Model, options: EngineOptions, port: int, tokens: int, folder: Path, more: Sequence[str]
) -> list[str]:
    """Return the command of the server.

    Args:
        model: which it serves, under its name alone: no path gets into answers and metrics.
        options: of the engine; what is None is left to vLLM.
        port: that it listens at, of this machine only.
        tokens: longest sequence that will be asked for; the longest that it is prepared for is
            4096 where that suffices, since the model's own may need more KV cache than there is.
        folder: gets a made-up tokenizer where the model's folder has none.
        more: arguments that come last, so that they win.

    Raises:
        EngineFailure: no tokenizer can be made for the model.
    """
    words = [sys.executable, "-m", MODULE, "--model", model.path]
    words += ["--served-model-name", model.name, "--host", HOST, "--port", str(port)]
    words += ["--load-format", model.load_format, "--dtype", options.dtype]
    words += ["--tensor-parallel-size", str(options.tensor_parallel), "--seed", str(options.seed)]
    words += ["--max-model-len", str(options.max_model_len or longest(model, tokens))]
    words += ["--gpu-memory-utilization", f"{options.gpu_memory_utilization:g}"]
    given = {
        "--max-num-seqs": options.max_num_seqs,
        "--max-num-batched-tokens": options.max_num_batched_tokens,
        "--attention-backend": options.attention_backend,
        "--kv-cache-memory-bytes": None
        if options.kv_cache_gib is None
        else round(options.kv_cache_gib * GIB),
    }
    for option, value in given.items():
        words += [] if value is None else [option, str(value)]
    if options.mode == "eager":
        words.append("--enforce-eager")
    elif options.capture_sizes:
        words += ["--cudagraph-capture-sizes", *map(str, options.capture_sizes)]
    made = tokenizer_folder(model, folder)
    words += [] if made is None else ["--tokenizer", made]
    # Its own estimate of FLOPs and bytes, and no line of log for each request.
    return [*words, "--enable-mfu-metrics", "--disable-uvicorn-access-log", *more]


def environment() -> dict[str, str]:
    """Return what is set for the server: `environment.prepare` has set all."""
    return {}


def tokenizer_folder(model: Model, folder: Path) -> str | None:
    """Write a made-up tokenizer into `folder` and return it; None where the model has its own.

    Raises:
        EngineFailure: none can be made for the model.
    """
    if not model.local or model.config is None or has_tokenizer(Path(model.path)):
        return None
    try:
        write_word_tokenizer(model.config, folder)
    except ValueError as error:
        raise EngineFailure(
            f"the model {model.name} has no tokenizer, and none can be made up: {error}",
            "put one into the model's folder, or --server-args='--tokenizer FOLDER'",
        ) from error
    return str(folder)


def longest(model: Model, tokens: int) -> int:
    """Return the longest sequence that a server is prepared for, in tokens."""
    said = (model.config or {}).get("max_position_embeddings")
    least = min(LEAST_MODEL_LEN, said) if isinstance(said, int) else LEAST_MODEL_LEN
    return max(least, tokens)


def split(text: str) -> list[str]:
    """Return the words of --server-args.

    Raises:
        EngineFailure: a quote in it has no end.
    """
    try:
        return shlex.split(text)
    except ValueError as error:
        raise EngineFailure(
            f"--server-args {text!r} cannot be read: {error}", "quote it as for a shell"
        ) from error


def joined(words: Sequence[str]) -> list[str]:
    """Return a command line on which argparse takes a value of --server-args that begins with -."""
    found: list[str] = []
    rest = iter(words)
    for word in rest:
        value = next(rest, None) if word == "--server-args" else None
        found.append(word if value is None else f"{word}={value}")
    return found
