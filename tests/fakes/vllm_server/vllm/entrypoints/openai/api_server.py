"""A stand-in for vLLM's server: the same endpoints, an engine that only waits.

FAKE_VLLM names what it does wrong: "memory" and "argument" end it at its start, "never" leaves it
unhealthy, "dies-N" ends it after N answers, "fades-N" as well, but it hangs up on everybody first;
"rejects" answers 400, "stubborn" leaves a child behind that ignores SIGTERM, "bare" counts no
tokens in its pieces and has no /metrics.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
from collections import Counter
from typing import Any

from aiohttp import web

STEP_S = 0.002
FAULT = os.environ.get("FAKE_VLLM", "")
LABELS = '{engine="0",model_name="fake"}'
HISTOGRAMS = {
    "ttft": "time_to_first_token_seconds",
    "itl": "inter_token_latency_seconds",
    "tpot": "request_time_per_output_token_seconds",
    "e2e": "e2e_request_latency_seconds",
    "queue": "request_queue_time_seconds",
}


class Engine:
    """Counts what it has done; a step gives each running request one token."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.sums: dict[str, float] = dict.fromkeys(HISTOGRAMS, 0.0)
        self.seen: Counter[str] = Counter()
        self.running = 0
        self.fades = False

    def observe(self, name: str, value: float) -> None:
        self.sums[name] += value
        self.seen[name] += 1

    def text(self) -> str:
        lines = [
            f"vllm:num_requests_running{LABELS} {float(self.running)}",
            f"vllm:num_requests_waiting{LABELS} 0.0",
            f"vllm:kv_cache_usage_perc{LABELS} {self.running / 1000}",
            f"vllm:num_preemptions_total{LABELS} 0.0",
            f"vllm:prompt_tokens_total{LABELS} {float(self.counts['prompt'])}",
            f"vllm:generation_tokens_total{LABELS} {float(self.counts['output'])}",
            f"vllm:prefix_cache_hits_total{LABELS} 0.0",
            f"vllm:estimated_flops_per_gpu_total{LABELS} {self.counts['prompt'] * 1e9}",
            'vllm:cache_config_info{block_size="16",cache_dtype="auto",'
            'enable_prefix_caching="True",gpu_memory_utilization="0.5",num_gpu_blocks="100"} 1.0',
        ]
        for name, metric in HISTOGRAMS.items():
            lines += [f'vllm:{metric}_bucket{{le="+Inf"}} {self.seen[name]}']
            lines += [f"vllm:{metric}_sum{LABELS} {self.sums[name]}"]
            lines += [f"vllm:{metric}_count{LABELS} {self.seen[name]}"]
        return "\n".join(lines) + "\n"


ENGINE = Engine()


async def completions(request: web.Request) -> web.StreamResponse:
    asked = json.loads(await request.read())
    if FAULT == "rejects" or asked["max_tokens"] > 4000:
        error = {"message": "This model's maximum context length is 4096 tokens", "code": 400}
        return web.json_response({"error": error}, status=400)
    loop = asyncio.get_running_loop()
    # A chat is counted by its words, as a tokenizer of words would.
    said = asked.get("prompt") or [w for m in asked["messages"] for w in m["content"].split()]
    begin, prompt = loop.time(), len(said.split() if isinstance(said, str) else said)
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    ENGINE.running += 1
    first = last = begin
    for number in range(1, asked["max_tokens"] + 1):
        await asyncio.sleep(STEP_S)
        if ENGINE.fades and request.transport is not None:
            request.transport.abort()
            return response
        now = loop.time()
        first = now if number == 1 else first
        ENGINE.observe("ttft" if number == 1 else "itl", now - last)
        last = now
        event: dict[str, Any] = {"choices": [{"text": " t1", "finish_reason": None}]}
        if FAULT != "bare":
            event["usage"] = {"prompt_tokens": prompt, "completion_tokens": number}
        await response.write(f"data: {json.dumps(event)}\n\n".encode())
    ENGINE.running -= 1
    usage = {"prompt_tokens": prompt, "completion_tokens": asked["max_tokens"]}
    await response.write(f"data: {json.dumps({'choices': [], 'usage': usage})}\n\n".encode())
    await response.write(b"data: [DONE]\n\n")
    ENGINE.counts.update(prompt=prompt, output=asked["max_tokens"], answers=1)
    ENGINE.observe("e2e", last - begin)
    ENGINE.observe("queue", 0.0)
    ENGINE.observe("tpot", (last - first) / max(1, asked["max_tokens"] - 1))
    if FAULT.startswith(("dies-", "fades-")) and _over():
        said = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"
        print(f"(EngineCore pid=7) ERROR 01-01 00:00:00 [core.py:1] {said}", flush=True)
        if FAULT.startswith("dies-"):
            os._exit(1)
        ENGINE.fades = True
        loop.call_later(0.2, os._exit, 1)
    return response


def _over() -> bool:
    return ENGINE.counts["answers"] == int(FAULT.partition("-")[2])


async def health(_: web.Request) -> web.Response:
    return web.Response(status=503 if FAULT == "never" else 200)


async def metrics(_: web.Request) -> web.Response:
    if FAULT == "bare":
        return web.Response(status=404)
    return web.Response(text=ENGINE.text())


async def models(request: web.Request) -> web.Response:
    served = {"id": "fake-1b", "owned_by": "vllm", "max_model_len": request.app["max_model_len"]}
    return web.json_response({"object": "list", "data": [served]})


async def version(_: web.Request) -> web.Response:
    return web.json_response({"version": "0.20.2"})


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--host")
    parser.add_argument("--port", type=int)
    parser.add_argument("--max-model-len", type=int)
    parser.add_argument("--tokenizer")
    known, rest = parser.parse_known_args()
    print(f"fake server: {known} {rest}", flush=True)
    if FAULT == "memory":
        raise SystemExit(
            "ValueError: Free memory on device cuda:0 (3.0/139.8 GiB) on startup is less than "
            "desired GPU memory utilization (0.85, 118.8 GiB)."
        )
    if FAULT == "argument":
        parser.error("unrecognized arguments: --no-such-option")
    if FAULT == "stubborn":
        ignore = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
        code = ignore + "print(1, flush=True); time.sleep(60)"
        child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
        assert child.stdout is not None
        child.stdout.readline()
        print(f"child {child.pid}", flush=True)
    config = "dtype=torch.bfloat16, load_format=dummy, tensor_parallel_size=1"
    print(f"Initializing a V1 LLM engine (v0.20.2) with config: {config}", flush=True)
    app = web.Application()
    app["max_model_len"] = known.max_model_len
    app.add_routes([web.get("/health", health), web.get("/metrics", metrics)])
    app.add_routes([web.get("/v1/models", models), web.get("/version", version)])
    app.add_routes([web.post("/v1/completions", completions)])
    app.add_routes([web.post("/v1/chat/completions", completions)])
    web.run_app(app, host=known.host, port=known.port, print=None)


if __name__ == "__main__":
    main()
