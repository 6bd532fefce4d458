"""The languages of summaries; a module of its own so that `prof run --help` needs no pydantic."""

from __future__ import annotations

from typing import Literal, get_args

Language = Literal["en", "ko", "zh"]
LANGUAGES: tuple[str, ...] = get_args(Language)
