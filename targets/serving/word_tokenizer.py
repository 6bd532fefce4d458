"""Writes a made-up tokenizer ("t0 t1 t2 …") for a server of a model that comes without one.

A server must turn tokens into text, so that it insists on a tokenizer. Dummy weights over a
configuration have none, and no network gives one. Prompts are token ids, so that only the text of
the answers is made up; its cost, one word a token, is like that of a real one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FILES = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "tekken.json", "vocab.json")
"""One of these in a model's folder means that it has a tokenizer."""
LONGEST = 1 << 20
"""Tokens of a sequence where the configuration does not say."""
END = "<eos>"


def has_tokenizer(model: Path) -> bool:
    """Tell whether a model's folder holds a tokenizer."""
    return any((model / name).is_file() for name in FILES)


def write_word_tokenizer(
    config: Mapping[str, Any], folder: Path, named: Mapping[int, str] | None = None
) -> None:
    """Write a word-level tokenizer of a model's vocabulary size, as Hugging Face tokenizers has it.

    Args:
        config: the model's config.json; vocab_size is needed, eos_token_id (one or several) and
            max_position_embeddings are used where they are given.
        folder: where it is written; it is made where it is missing. It must not be the model's:
            beside a config.json, transformers takes the model's own tokenizer class instead.
        named: special tokens with words of their own, by id.

    Raises:
        ValueError: the configuration names no vocabulary size, or the folder holds a config.json.
        OSError: the folder cannot be written to.
    """
    size = config.get("vocab_size")
    if not isinstance(size, int) or size < 2:
        raise ValueError("the model's config.json names no vocab_size, which a tokenizer needs")
    if (folder / "config.json").exists():
        raise ValueError(f"{folder} holds a config.json: its tokenizer class would be taken")
    end = _end(config.get("eos_token_id"), size)
    special = {end: END, **(named or {})}
    named_ids = [f"t{number}" for number in range(size)]
    for number, word in special.items():
        if number < size:
            named_ids[number] = word
    words = dict(zip(named_ids, range(size), strict=True))
    # The word for what the vocabulary does not know must be in it, also where token 0 ends a text.
    unknown = "t0" if end else "t1"
    longest = config.get("max_position_embeddings")
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder / "tokenizer.json", _tokenizer(words, special, unknown))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": END,
        "pad_token": END,
        "unk_token": unknown,
        "model_max_length": longest if isinstance(longest, int) else LONGEST,
        "clean_up_tokenization_spaces": False,
        "chat_template": "{% for m in messages %}{{ m['content'] }} {% endfor %}",
    }
    _write(folder / "tokenizer_config.json", settings)


def _end(told: Any, size: int) -> int:
    """Return the id of the end of a text, in the vocabulary whatever the configuration says."""
    first = told[0] if isinstance(told, list) and told else told
    return first if isinstance(first, int) and 0 <= first < size else size - 1


def _tokenizer(
    words: Mapping[str, int], special: Mapping[int, str], unknown: str
) -> dict[str, Any]:
    rules = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    added = [{"id": of, "content": word, **rules, "special": True} for of, word in special.items()]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": None,
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": dict(words), "unk_token": unknown},
    }


def _write(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(content), encoding="utf-8")
