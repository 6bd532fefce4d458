"""The operators of a decoder by its configuration, and the sizes that they are measured at."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
"""Tokens of steps within CUDA graphs: sizes that vLLM captures."""
PROMPTS = (1024, 2048, 4096, 8192)
"""Tokens of steps of prompts, beyond the graphs."""
CONTEXTS = (128, 1024, 4096)
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
CHUNKS = ((512, 2048), (2048, 2048), (2048, 6144), (512, 6144))
"""New tokens of a prompt, and tokens of it that are in the cache already."""
TOGETHER = ((4, 128), (8, 512), (16, 512), (4, 2048))
"""Prompts that one step reads, and tokens of each."""


@dataclass(frozen=True)
class Decoder:
    """One rank of a dense decoder: sizes as config.json has them."""

    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocabulary: int
    qk_norm: bool

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Decoder:
        """Return the sizes of a configuration that `layer_slice.cut` made."""
        return cls(
            config["hidden_size"], config["num_attention_heads"], config["num_key_value_heads"],
            config["head_dim"], config["intermediate_size"], config["vocab_size"],
            str(config.get("model_type")) in ("qwen3", "qwen3_moe"),
        )  # fmt: skip

    def products(self) -> dict[str, tuple[int, int]]:
        """Return (outputs, inputs) of the products by vLLM's names."""
        wide, grouped = self.heads * self.head_dim, self.kv_heads * self.head_dim
        return {
            "qkv_proj": (wide + 2 * grouped, self.hidden),
            "o_proj": (self.hidden, wide),
            "gate_up_proj": (2 * self.intermediate, self.hidden),
            "down_proj": (self.hidden, self.intermediate),
            "lm_head": (self.vocabulary, self.hidden),
        }

    def cache_bytes(self, tokens: int) -> int:
        """Return the bytes of keys and values of so many tokens in one layer, in 16 bits."""
        return 4 * tokens * self.kv_heads * self.head_dim


@dataclass(frozen=True)
class Attended:
    """What one step attends: `requests` prompts (or requests that generate, with one token each).

    Each brings `new` tokens to `before` tokens in the cache.
    """

    requests: int
    new: int
    before: int

    @property
    def stage(self) -> str:
        """Prompts or generation, as in table `bench`."""
        return "decode" if self.new == 1 and self.before else "prefill"


def attended(most_tokens: int) -> Iterator[Attended]:
    """Give the sizes of attention: batch by context, prompts alone and together, and chunks.

    Args:
        most_tokens: tokens that the cache of all requests may have.
    """
    for context in CONTEXTS:
        for batch in BATCHES:
            if batch * context <= most_tokens:
                yield Attended(batch, 1, context)
    for tokens in (16, 64, 256, *ROWS[-1:], *PROMPTS):
        yield Attended(1, tokens, 0)
    for requests, tokens in TOGETHER:
        yield Attended(requests, tokens, 0)
    for tokens, before in CHUNKS:
        yield Attended(1, tokens, before)
