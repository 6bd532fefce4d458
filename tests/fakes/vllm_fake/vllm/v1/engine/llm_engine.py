"""The engine: schedules requests into steps and gives each a token per step."""

from __future__ import annotations

import atexit
import contextlib
import os
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from vllm import _failures
from vllm.sampling_params import RequestOutputKind, SamplingParams

BLOCK = 16


@dataclass
class RequestStateStats:
    """vLLM's own moments of a request: arrival by the wall clock, the others monotonic."""

    num_generation_tokens: int = 0
    arrival_time: float = 0.0
    queued_ts: float = 0.0
    scheduled_ts: float = 0.0
    first_token_ts: float = 0.0
    last_token_ts: float = 0.0
    first_token_latency: float = 0.0
    is_corrupted: bool = False


@dataclass
class _Request:
    name: str
    prompt: list[int]
    params: SamplingParams
    prefilled: int = 0
    tokens: list[int] = field(default_factory=list)
    stats: RequestStateStats = field(default_factory=RequestStateStats)


class _Queue:
    """A queue of vLLM's executor: its ZeroMQ context, once garbage, waits for its own sockets.

    At the interpreter's end pyzmq leaves contexts alone; with FAKE_VLLM_HANG_AT_EXIT not even then.
    """

    exiting = False

    def __init__(self) -> None:
        self.itself = self

    def __del__(self) -> None:
        if not _Queue.exiting:
            time.sleep(3600)


@atexit.register
def _notice_exit() -> None:
    _Queue.exiting = "FAKE_VLLM_HANG_AT_EXIT" not in os.environ


class EngineCore:
    """What ends the engine; with multiprocessing it holds a real child process."""

    def __init__(self, ranks: int) -> None:
        self.queue = _Queue() if ranks > 1 else None
        self.child: subprocess.Popen[bytes] | None = None
        if os.environ.get("VLLM_ENABLE_V1_MULTIPROCESSING", "1") == "1":
            wait = "import sys; sys.stdin.read()"
            self.child = subprocess.Popen([sys.executable, "-c", wait], stdin=subprocess.PIPE)
            _failures.call("child", self.child.pid)

    def shutdown(self) -> None:
        """End the child process."""
        _failures.call("shutdown")
        self.queue = None
        time.sleep(float(os.environ.get("FAKE_VLLM_SHUTDOWN_S", "0")))
        if self.child is not None:
            assert self.child.stdin is not None
            self.child.stdin.close()
            self.child.wait()


class LLMEngine:
    """Runs requests."""

    def __init__(self, args: dict[str, Any], hf_config: dict[str, Any]) -> None:
        self.engine_core = EngineCore(args.get("tensor_parallel_size") or 1)
        self.vllm_config = _config(args, hf_config)
        self.model_config = self.vllm_config.model_config
        self.totals: Counter[str] = Counter()
        self.profiling = False
        self._waiting: list[_Request] = []
        self._running: list[_Request] = []
        self._steps = 0
        if _failures.hidden("step"):
            self.step = None  # type: ignore[assignment]

    def add_request(self, request_id: str, prompt: Any, params: SamplingParams) -> str:
        """Queue a request."""
        ids = prompt["prompt_token_ids"]
        if not ids or max(ids) >= self.model_config.hf_config.values["vocab_size"]:
            raise ValueError(f"Token id {max(ids, default=None)} is out of vocabulary")
        if len(ids) + (params.max_tokens or 0) > self.model_config.max_model_len:
            raise ValueError(f"The decoder prompt (length {len(ids)}) is longer than the maximum")
        stats = RequestStateStats(arrival_time=time.time(), queued_ts=time.monotonic())
        self._waiting.append(_Request(request_id, ids, params, stats=stats))
        _failures.call("add_request", request_id, len(ids))
        return request_id

    def abort_request(self, request_ids: list[str]) -> None:
        """Take requests back."""
        gone = set(request_ids)
        self._waiting = [r for r in self._waiting if r.name not in gone]
        self._running = [r for r in self._running if r.name not in gone]

    def has_unfinished_requests(self) -> bool:
        """Whether a step has work."""
        return bool(self._waiting or self._running)

    def step(self) -> list[Any]:
        """Prefill what fits, or decode a token of each running request; return what came out."""
        self._steps += 1
        if self._steps == int(os.environ.get("FAKE_VLLM_HANG_AT", "0")):
            time.sleep(3600)
        _failures.in_step(
            self._steps,
            len(self._waiting) + len(self._running),
            self.engine_core.child is not None,
        )
        self._admit()
        prefill = [r for r in self._running if r.prefilled < len(r.prompt)]
        decode = [r for r in self._running if r.prefilled == len(r.prompt)]
        budget = self.vllm_config.scheduler_config.max_num_batched_tokens - len(decode)
        taken: list[tuple[_Request, int]] = []
        for request in prefill:
            part = min(budget, len(request.prompt) - request.prefilled)
            if part > 0:
                taken.append((request, part))
                budget -= part
        with self._range(taken, decode):
            time.sleep(float(os.environ.get("FAKE_VLLM_STEP_S", "0")))
            _multiply()
        for request, part in taken:
            request.prefilled += part
        ready = [r for r, _ in taken if r.prefilled == len(r.prompt)] + decode
        return [self._token(request) for request in ready]

    def _admit(self) -> None:
        config = self.vllm_config.scheduler_config
        while self._waiting and len(self._running) < config.max_num_seqs:
            request = self._waiting.pop(0)
            request.stats.scheduled_ts = time.monotonic()
            self._running.append(request)
            self.totals["vllm:prompt_tokens"] += len(request.prompt)

    def _token(self, request: _Request) -> Any:
        now = time.monotonic()
        request.tokens.append(7)
        self.totals["vllm:generation_tokens"] += 1
        self.totals["vllm:estimated_flops_per_gpu"] += 1000
        stats = request.stats
        stats.num_generation_tokens += 1
        stats.last_token_ts = now
        if len(request.tokens) == 1:
            stats.first_token_ts = now
            stats.first_token_latency = time.time() - stats.arrival_time
        wanted = (request.params.max_tokens or 16) - ("FAKE_VLLM_SHORT" in os.environ)
        finished = len(request.tokens) >= wanted
        if finished:
            self._running.remove(request)
        delta = request.params.output_kind is RequestOutputKind.DELTA
        completion = SimpleNamespace(
            token_ids=request.tokens[-1:] if delta else list(request.tokens),
            finish_reason="length" if finished else None,
        )
        return SimpleNamespace(
            request_id=request.name, outputs=[completion], finished=finished, metrics=stats
        )

    def kv_usage(self) -> float:
        """Return the part of the KV cache in use."""
        held = sum(-(-(r.prefilled + len(r.tokens)) // BLOCK) for r in self._running)
        return held / float(self.vllm_config.cache_config.num_gpu_blocks)

    def queues(self) -> tuple[int, int]:
        """Return how many requests run, and how many wait."""
        return len(self._running), len(self._waiting)

    @contextlib.contextmanager
    def _range(self, prefill: list[tuple[_Request, int]], decode: list[_Request]) -> Any:
        """Open the NVTX range that vLLM's worker opens round a step while it profiles."""
        tokens = sum(part for _, part in prefill)
        name = f"execute_context_{len(prefill)}({tokens})_generation_{len(decode)}({len(decode)})"
        torch: Any = sys.modules.get("torch")
        if not self.profiling:
            yield
            return
        _failures.call("range", name)
        pushed = False
        if torch is not None:
            with contextlib.suppress(RuntimeError):  # a torch without CUDA has no NVTX
                torch.cuda.nvtx.range_push(name)
                pushed = True
        yield
        if pushed:
            torch.cuda.nvtx.range_pop()


def _multiply() -> None:
    torch: Any = sys.modules.get("torch")  # to import it takes longer than all that a test does
    if torch is not None and "FAKE_VLLM_TORCH" in os.environ:
        torch.mm(torch.ones(8, 16), torch.ones(16, 4))


def _config(args: dict[str, Any], hf_config: dict[str, Any]) -> SimpleNamespace:
    """Return vLLM's configuration with its defaults filled in."""
    seqs = args.get("max_num_seqs") or 256
    sizes = args.get("cudagraph_capture_sizes") or [n for n in (1, 2, 4, 8, 16) if n <= 2 * seqs]
    length = args.get("max_model_len") or hf_config.get("max_position_embeddings", 2048)
    dtype = args.get("dtype", "auto")
    return SimpleNamespace(
        model_config=SimpleNamespace(
            dtype=f"torch.{hf_config.get('torch_dtype', 'bfloat16') if dtype == 'auto' else dtype}",
            max_model_len=length,
            hf_config=SimpleNamespace(values=hf_config, to_dict=lambda: hf_config),
        ),
        scheduler_config=SimpleNamespace(
            max_num_seqs=seqs,
            max_num_batched_tokens=args.get("max_num_batched_tokens") or 8192,
            async_scheduling=args.get("async_scheduling") is not False,
        ),
        cache_config=SimpleNamespace(
            num_gpu_blocks=int(os.environ.get("FAKE_VLLM_BLOCKS", "65536")),
            block_size=BLOCK,
            cache_dtype="auto",
            kv_cache_memory_bytes=args.get("kv_cache_memory_bytes"),
        ),
        attention_config=SimpleNamespace(backend=args.get("attention_backend")),
        compilation_config=SimpleNamespace(
            cudagraph_capture_sizes=[] if args.get("enforce_eager") else sizes
        ),
    )
