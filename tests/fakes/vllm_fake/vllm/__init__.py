"""A stand-in for vLLM 0.20 without a GPU; ../README.md says what it can do."""

import os

from vllm import _failures

__version__ = os.environ.get("FAKE_VLLM_VERSION", "0.20.2")

_failures.at_import()

from vllm.engine.arg_utils import EngineArgs  # noqa: E402
from vllm.entrypoints.llm import LLM  # noqa: E402
from vllm.sampling_params import SamplingParams  # noqa: E402

__all__ = ["LLM", "EngineArgs", "SamplingParams", "__version__"]
