"""A stand-in for SGLang's server, over that for vLLM's: what it is asked, in SGLang's own words.

Words and fields are those of SGLang 0.5.11: srt/server_args.py, srt/entrypoints/http_server.py
(/v1/models, /model_info, /start_profile), srt/observability/metrics_collector.py. /server_info is
what a real one answered.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from aiohttp import web

sys.path.insert(0, str(Path(__file__).parents[2] / "vllm_server"))
from vllm.entrypoints.openai import api_server as vllm  # noqa: E402

FIXTURES = Path(__file__).parents[3] / "fixtures" / "sglang"
LABELS = '{engine_type="unified",model_name="fake",pp_rank="0",tp_rank="0"}'
HISTOGRAMS = {
    "ttft": "time_to_first_token_seconds",
    "itl": "inter_token_latency_seconds",
    "e2e": "e2e_request_latency_seconds",
    "queue": "queue_time_seconds",
}


async def metrics(_: web.Request) -> web.Response:
    engine = vllm.ENGINE
    values = {
        "num_running_reqs": engine.running,
        "num_queue_reqs": 0,
        "token_usage": engine.running / 1000,
        "prompt_tokens_total": engine.counts["prompt"],
        "generation_tokens_total": engine.counts["output"],
    }
    lines = [f"sglang:{name}{LABELS} {float(value)}" for name, value in values.items()]
    for name, metric in HISTOGRAMS.items():
        lines += [f'sglang:{metric}_bucket{{le="+Inf"}} {engine.seen[name]}']
        lines += [f"sglang:{metric}_sum{LABELS} {engine.sums[name]}"]
        lines += [f"sglang:{metric}_count{LABELS} {engine.seen[name]}"]
    return web.Response(text="\n".join(lines) + "\n")


async def models(request: web.Request) -> web.Response:
    known = request.app["known"]
    card = {"id": known.served_model_name, "object": "model", "owned_by": "sglang"}
    card |= {"root": known.served_model_name, "max_model_len": known.context_length}
    return web.json_response({"object": "list", "data": [card]})


async def server_info(request: web.Request) -> web.Response:
    known = request.app["known"]
    info = json.loads((FIXTURES / "server_info.json").read_text(encoding="utf-8"))
    return web.json_response(info | {"model_path": known.model_path, "api_key": "secret"})


async def model_info(request: web.Request) -> web.Response:
    return web.json_response({"model_path": request.app["known"].model_path})


async def start_profile(request: web.Request) -> web.Response:
    print(f"start_profile {json.dumps(await request.json())}", flush=True)
    return web.Response(text="Start profiling.\n")


async def stop_profile(_: web.Request) -> web.Response:
    print("stop_profile", flush=True)
    return web.Response(text="Stop profiling. This will take some time.\n")


def main() -> None:
    parser = argparse.ArgumentParser()
    for option in ("--model-path", "--served-model-name", "--host", "--load-format"):
        parser.add_argument(option)
    for option in ("--port", "--context-length"):
        parser.add_argument(option, type=int)
    known, rest = parser.parse_known_args()
    print(f"fake server: {known} {rest}", flush=True)
    print("Load weight end. type=Qwen2ForCausalLM, dtype=torch.bfloat16", flush=True)
    app = web.Application()
    app["known"] = known
    app.add_routes([web.get("/health", vllm.health), web.get("/metrics", metrics)])
    app.add_routes([web.get("/v1/models", models), web.get("/server_info", server_info)])
    app.add_routes([web.get("/model_info", model_info)])
    app.add_routes([web.post("/v1/completions", vllm.completions)])
    app.add_routes([web.post("/start_profile", start_profile)])
    app.add_routes([web.post("/stop_profile", stop_profile)])
    web.run_app(app, host=known.host, port=known.port, print=None)


if __name__ == "__main__":
    main()
