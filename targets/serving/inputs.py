"""Prompts of random tokens: a time depends on how many there are, not on which."""

from __future__ import annotations

import random

# Left out: the first ids and the last ones, where tokenizers keep special tokens.
FIRST, LAST = 16, 1024


def random_prompts(batch: int, tokens: int, vocabulary: int, seed: int) -> list[list[int]]:
    """Return `batch` prompts of `tokens` ids below `vocabulary`; equal seeds give equal prompts.

    Raises:
        ValueError: a size below 1.
    """
    if min(batch, tokens, vocabulary) < 1:
        raise ValueError(f"no prompts: batch {batch}, tokens {tokens}, vocabulary {vocabulary}")
    first = min(FIRST, vocabulary // 4)
    ids = range(first, max(first + 1, vocabulary - min(LAST, vocabulary // 4)))
    source = random.Random(seed)
    return [source.choices(ids, k=tokens) for _ in range(batch)]
