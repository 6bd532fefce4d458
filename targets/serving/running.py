"""A server that runs already, by its URL: nothing is started, and nothing is ended."""

from __future__ import annotations

import http.client
import json
import os
import urllib.error
import urllib.request
from argparse import ArgumentTypeError
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from nsight_prof.targets.serving.failures import EngineFailure
from nsight_prof.targets.serving.models import Model, find_model

START_HINT = (
    "start it first (`vllm serve MODEL`, or another OpenAI-compatible server), or leave "
    "target.url out: prof starts one"
)
KEY = "OPENAI_API_KEY"
LOCAL = ("127.0.0.1", "localhost", "::1")
TIMEOUT_S = 10.0


class Running:
    """A server of somebody else, with what `healthy.Server` offers.

    Attributes:
        lines: of its log, which is not at hand: empty.
        ended: "": whether it still runs is seen in its answers alone.
    """

    lines: tuple[str, ...] = ()
    ended = ""

    def start(self) -> None:
        """It runs."""

    def wait_healthy(self, healthy: Callable[[], bool], timeout_s: float) -> None:
        """Its model was asked for already, and not each server has a page for its health."""

    def died(self, doing: str) -> EngineFailure:
        """Return that it does not answer any more."""
        return EngineFailure(f"the server does not answer any more {doing}", START_HINT)

    def end(self) -> None:
        """Leave it as it is."""


def server_url(text: str) -> str:
    """Return the URL of a server without a slash or /v1 at its end.

    Raises:
        ArgumentTypeError: it is none.
    """
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ArgumentTypeError(f"{text!r} is no URL of a server: http://127.0.0.1:8000")
    return text.rstrip("/").removesuffix("/v1")


def is_local(url: str) -> bool:
    """Tell whether a server is on this machine, so that its GPUs are those that are seen here."""
    return urlsplit(url).hostname in LOCAL


def headers() -> dict[str, str]:
    """Return what each request carries: the key of the variable OPENAI_API_KEY, if it is set."""
    key = os.environ.get(KEY)
    return {"Authorization": f"Bearer {key}"} if key else {}


def served_model(url: str, wanted: str) -> tuple[Model, Mapping[str, Any]]:
    """Return the model that a server names at /v1/models, and all that it says of it.

    Args:
        url: of the server, as `server_url` gives it.
        wanted: the name that is taken if the server has several; else its first one is.

    Raises:
        EngineFailure: the server cannot be reached, or names no model.
    """
    models = _models(url)
    if not models:
        raise EngineFailure(f"the server at {url} names no model at /v1/models", START_HINT)
    said = next((one for one in models if one["id"] == wanted), models[0])
    # SGLang has the name again there, and its folder elsewhere.
    sglang = said.get("owned_by") == "sglang"
    root = _found(url, "/model_info").get("model_path") if sglang else said.get("root")
    config = None
    if is_local(url) and isinstance(root, str) and (Path(root) / "config.json").is_file():
        config = find_model(root).config
    return Model(said["id"], said["id"], config, local=False, dummy=False), said


def _found(url: str, path: str) -> dict[str, Any]:
    """Return the JSON object that a server has at a path; {} where it has none."""
    try:
        with urllib.request.urlopen(_asked(url, path), timeout=TIMEOUT_S) as answer:
            found = json.load(answer)
    except (OSError, http.client.HTTPException, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _asked(url: str, path: str) -> urllib.request.Request:
    return urllib.request.Request(url + path, headers=headers())


def _models(url: str) -> list[dict[str, Any]]:
    try:
        with urllib.request.urlopen(_asked(url, "/v1/models"), timeout=TIMEOUT_S) as answer:
            found = json.load(answer)["data"]
    except urllib.error.HTTPError as error:
        hint = f"its key is expected in the variable {KEY}: name it in target.env"
        raise EngineFailure(
            f"the server at {url} answers /v1/models with HTTP {error.code}",
            hint if error.code in (401, 403) else START_HINT,
        ) from error
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        raise EngineFailure(f"no server answers at {url}: {reason}", START_HINT) from error
    except (ValueError, KeyError, TypeError) as error:
        raise EngineFailure(
            f"what answers at {url}/v1/models is no OpenAI-compatible server", START_HINT
        ) from error
    return [one for one in found if isinstance(one, dict) and isinstance(one.get("id"), str)]
