"""The entry to the offline engine."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from vllm import _failures
from vllm.engine.arg_utils import EngineArgs
from vllm.v1.engine.llm_engine import LLMEngine
from vllm.v1.metrics.reader import Counter, Gauge, Histogram

TINY = {"vocab_size": 512, "max_position_embeddings": 2048, "torch_dtype": "bfloat16"}


class Renderer:
    """Widens the place of an image to as many tokens as it has pixels by 28 x 28."""

    def __init__(self, config: dict[str, Any], args: dict[str, Any]) -> None:
        self._token, self._args = config.get("image_token_id"), args

    def render_cmpl(self, prompts: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return prompts as the engine takes them."""
        assert (Path(self._args["model"]) / "preprocessor_config.json").is_file()
        assert (Path(self._args["tokenizer"]) / "tokenizer.json").is_file()
        return [self._rendered(prompt) for prompt in prompts]

    def _rendered(self, prompt: dict[str, Any]) -> dict[str, Any]:
        images = iter(prompt["multi_modal_data"]["image"])
        ids: list[int] = []
        for token in prompt["prompt_token_ids"]:
            size = next(images).size if token == self._token else None
            ids += [token] * (1 if size is None else (size[0] // 28) * (size[1] // 28))
        return {"type": "multimodal", "prompt_token_ids": ids}


class LLM:
    """Starts an engine."""

    def __init__(self, model: str, *, disable_log_stats: bool = True, **kwargs: Any) -> None:
        kwargs = {"model": model, "disable_log_stats": disable_log_stats, **kwargs}
        args = vars(EngineArgs(**kwargs))
        _failures.call("LLM", kwargs, dict(os.environ))
        own = os.environ.get("VLLM_ENABLE_V1_MULTIPROCESSING", "1") == "1"
        mode = "eager" if args.get("enforce_eager") else "cuda-graphs"
        _failures.at_start(model, mode, own)
        path = Path(model) / "config.json"
        config: dict[str, Any] = json.loads(path.read_text()) if path.is_file() else TINY
        self.llm_engine = LLMEngine(args, {**config.get("text_config", {}), **config})
        self.llm_engine.renderer = Renderer(config, args)
        self._profiler = (args.get("profiler_config") or {}).get("profiler")
        self._statistics = not args["disable_log_stats"]
        self._estimates = bool(args.get("enable_mfu_metrics"))

    def start_profile(self) -> None:
        """Call cudaProfilerStart, as far as this torch can, and open ranges from here on."""
        self._profile("start")

    def stop_profile(self) -> None:
        """Call cudaProfilerStop."""
        self._profile("stop")

    def _profile(self, what: str) -> None:
        if self._profiler is None:
            raise RuntimeError("Profiling is not enabled. Please set --profiler-config to enable")
        _failures.call(f"{what}_profile")
        self.llm_engine.profiling = what == "start"
        torch = sys.modules.get("torch")
        if torch is None:
            return
        try:
            getattr(torch.cuda.profiler, what)()
        except Exception as error:  # vLLM warns too and goes on
            print(f"WARNING Failed to {what} profiler: {error}", file=sys.stderr)

    def get_metrics(self) -> list[Any]:
        """Return vLLM's metrics."""
        assert self._statistics, "Stat logging disabled"
        running, waiting = self.llm_engine.queues()
        counters = ["vllm:prompt_tokens", "vllm:generation_tokens"]
        counters += ["vllm:estimated_flops_per_gpu"] if self._estimates else []
        return [
            *(Counter(name, self.llm_engine.totals[name]) for name in counters),
            Counter("vllm:num_preemptions", 0),
            Gauge("vllm:num_requests_running", float(running)),
            Gauge("vllm:num_requests_waiting", float(waiting)),
            Gauge("vllm:kv_cache_usage_perc", self.llm_engine.kv_usage()),
            Gauge("vllm:engine_sleep_state", 1.0, {"sleep_state": "awake"}),
            Gauge("vllm:engine_sleep_state", 0.0, {"sleep_state": "discard_all"}),
            Histogram("vllm:request_prompt_tokens", 0, 0.0, {"+Inf": 0}),
        ]


for _name in ("start_profile", "stop_profile", "get_metrics"):
    if _failures.hidden(_name):
        delattr(LLM, _name)
