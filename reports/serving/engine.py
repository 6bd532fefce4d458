"""What a run knows of its serving engine: the model's shape, how it is split, and the requests."""

from __future__ import annotations

import json
from dataclasses import dataclass

from nsight_prof.parsers.cells import Row, count, records, text
from nsight_prof.parsers.errors import ProfError
from nsight_prof.parsers.run.run import Run
from nsight_prof.parsers.serving.model_shape import ModelShape
from nsight_prof.parsers.serving.stored_weights import sees, stored_shape, told_to_quantize
from nsight_prof.reports.page.values import Text

PRODUCTS = {"vllm": "vLLM", "sglang": "SGLang"}
DTYPES = {"bfloat16": "bf16", "float16": "fp16"}
"""PyTorch's name of a type -> that of a Tensor Core roof."""


@dataclass(frozen=True)
class Engine:
    """One engine of a run. `shape` is None where the model is not known, and `reason` says why.

    `shard` is what one of `tensor_parallel` GPUs holds, `kv_tokens` what the KV cache holds and
    `max_model_len` the longest context (None: not known). With `sees` the model has a vision
    encoder, which `shape` leaves out.
    """

    model: str
    product: str
    version: str
    mode: str
    tensor_parallel: int
    shape: ModelShape | None
    shard: ModelShape | None
    reason: str
    kv_tokens: int | None
    max_model_len: int | None
    dummy_weights: bool
    sees: bool = False

    @property
    def dtype(self) -> str:
        """Type that layers multiply in, as the roofs name it; empty where they have none.

        Attention and the output projection stay in 16 bits where layers multiply in fp8: their
        time at that roof is a lower bound.
        """
        quantized = self.shape.quantized if self.shape else None
        if quantized is not None and not quantized.wide_inputs:
            return quantized.dtype
        return DTYPES.get(self.shape.dtype, "") if self.shape else ""


ENCODER = ("vision_encoder", "projector")
"""Ranges of the target round what a model that sees has before its language model."""
ENCODER_LEFT_OUT = Text(
    " The work is that of the language model alone: its vision encoder runs in the prefill, whose "
    "MFU is too low by that, and whose floor is too short."
)
ENCODER_APART = Text(
    " Work, MFU and floor are those of the language model: the vision encoder and the projector, "
    "which run in the prefill, are left out of its time and stand in the section “Work of the "
    "stages”."
)


@dataclass(frozen=True)
class Requests:
    """A batch of equal requests that were sent at once; `output_tokens` 0 is not known."""

    batch: int
    prompt_tokens: int
    output_tokens: int


def engine_of(run: Run) -> Engine | None:
    """Return the engine of the traced step, else the first that the run has; None without one."""
    rows = records(run.engines)
    if not rows:
        return None
    traced = [row for row in rows if text(row["source"]) == "trace"]
    return _engine((traced or rows)[0])


def traced_requests(run: Run) -> tuple[Requests, ...]:
    """Return the batches that ran under the trace, in their order; empty where not recorded."""
    points = run.serving_points
    done = points[(points["source"] == "trace") & (points["status"] == "ok")]
    traced = done[done["traced"].fillna(False).astype(bool)]
    found = []
    for row in records(traced):
        batch, prompt = count(row["batch"]), _prompt_tokens(run, row)
        if batch and prompt:
            found.append(Requests(batch, prompt, count(row["output_tokens"]) or 0))
    return tuple(found)


def _prompt_tokens(run: Run, point: Row) -> int | None:
    """Return the tokens of each prompt of a point, images included; as asked for where unknown."""
    requests = run.requests
    of_point = (requests["source"] == "trace") & (requests["case"] == point["case"])
    lengths = requests[of_point]["prompt_tokens"].dropna().unique()
    return int(lengths[0]) if len(lengths) == 1 else count(point["prompt_tokens"])


def product(served_by: object) -> str:
    """Return the name of an engine by what its server says of itself: vLLM where none did."""
    owner = text(served_by) or "vllm"
    return PRODUCTS.get(owner, owner)


def _engine(row: Row) -> Engine:
    parallel = count(row["tensor_parallel"]) or 1
    shape = shard = None
    reason, has_encoder = "", False
    try:
        asked = json.loads(text(row["args"]) or "{}")
        config = told_to_quantize(json.loads(text(row["model_config"]) or "{}"), asked)
        has_encoder = sees(config)
        dtype = text(row["dtype"]).removeprefix("torch.")
        shape = stored_shape(config, dtype, text(row["kv_cache_dtype"]) or "auto")
        shard = shape.shard(parallel)
    except ValueError as error:
        reason = f"the recorded configuration of the model is no JSON: {error}"
    except ProfError as error:
        reason = error.message
    return Engine(
        model=text(row["model"]),
        product=product(row["served_by"]),
        version=text(row["version"]),
        mode=text(row["mode"]),
        tensor_parallel=parallel,
        shape=shape,
        shard=shard,
        reason=reason,
        kv_tokens=_kv_tokens(row, shape),
        max_model_len=count(row["max_model_len"]),
        sees=has_encoder,
        dummy_weights=isinstance(row["dummy_weights"], bool | int) and bool(row["dummy_weights"]),
    )


def _kv_tokens(row: Row, shape: ModelShape | None) -> int | None:
    blocks, size = count(row["kv_blocks"]), count(row["block_size"])
    groups = shape.cache_groups if shape else 1
    return blocks * size // groups if blocks and size else None
