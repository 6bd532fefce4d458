"""Inputs of an engine."""

from __future__ import annotations

from typing import Any

from vllm import _failures

if not _failures.hidden("tokens_input"):

    def tokens_input(prompt_token_ids: list[int]) -> dict[str, Any]:
        """Return a prompt of token ids."""
        return {"type": "token", "prompt_token_ids": prompt_token_ids}
