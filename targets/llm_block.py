"""A transformer decoder in torch with NVTX phases: the workload of the top-kernels recipe.

The layers are those of a Llama model: RMSNorm, fused QKV projection, rotary embedding,
grouped-query attention with a KV cache, output projection and a gated MLP, between an embedding and
a sampling head. The defaults have the shapes of Llama-3.1-8B with two of its layers. Weights and
prompts are random.

Runs by itself, in any Python that has torch:

    python llm_block.py --batch 8 --prompt-len 1024 --decode-steps 16
    python llm_block.py --device cpu --preset tiny
    python llm_block.py --count-work    # FLOPs and bytes of prefill and decode, for MFU and MBU
    python llm_block.py --graphs        # decode steps are replayed as CUDA graphs

NVTX ranges: `warmup`, then `prefill` once and `decode` once round all its steps; inside of them
`step`, `embedding`, `layer`, `attention`, `mlp` and `head`. The CUDA profiler API brackets prefill
and decode, so that a profiler told to wait for it leaves the warm-up out. stdout gets one JSON line
with times, shapes and conditions, stderr one line for people.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import runpy
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

if not __package__:  # run as a file
    runpy.run_path(str(Path(__file__).resolve().parent / "standalone.py"))
from nsight_prof.targets.standalone import complain, need

need("torch")
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from nsight_prof.targets.static_compute import Count, write_beside_records

try:
    import nvtx
except ImportError:  # Without the package there are no phases, and the program is still the same.
    nvtx = None

BACKENDS = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "math": SDPBackend.MATH,
}
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
PRESETS: dict[str, dict[str, int]] = {
    "llama-3.1-8b": {
        "hidden": 4096,
        "heads": 32,
        "kv_heads": 8,
        "intermediate": 14336,
        "vocab": 128256,
    },
    "qwen2.5-0.5b": {
        "hidden": 896,
        "heads": 14,
        "kv_heads": 2,
        "intermediate": 4864,
        "vocab": 151936,
    },
    "tiny": {"hidden": 64, "heads": 4, "kv_heads": 2, "intermediate": 128, "vocab": 256},
}


@dataclass(frozen=True)
class Config:
    """Sizes of the model and of the run; lengths in tokens."""

    batch: int
    prompt_len: int
    decode_steps: int
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    intermediate: int
    vocab: int
    dtype: str
    attention: str
    device: str
    seed: int
    warmup: int
    count_work: bool = False
    graphs: bool = False

    @property
    def head_dim(self) -> int:
        """Width of one attention head."""
        return self.hidden // self.heads

    @property
    def qkv_width(self) -> int:
        """Output width of the fused QKV projection."""
        return (self.heads + 2 * self.kv_heads) * self.head_dim


def attention_backend(config: Config) -> contextlib.AbstractContextManager[object]:
    """Restrict attention to one back end.

    Left to itself, torch 2.11 takes cuDNN on an H200, which plans anew for each length of the KV
    cache: 30 ms of host time a decode step (seen with nsys 2025.3.1). `auto` shows that.
    """
    if config.attention == "auto" or config.device == "cpu":
        return contextlib.nullcontext()
    chosen: contextlib.AbstractContextManager[object] = sdpa_kernel(BACKENDS[config.attention])
    return chosen


def phase(name: str) -> contextlib.AbstractContextManager[object]:
    """Return an NVTX range called `name`."""
    return contextlib.nullcontext() if nvtx is None else nvtx.annotate(name)


class Layer(torch.nn.Module):
    """One decoder layer with its own KV cache of shape (batch, kv_heads, positions, head_dim)."""

    def __init__(self, config: Config, positions: int) -> None:
        super().__init__()
        c, self.config = config, config
        options = {"dtype": DTYPES[c.dtype], "device": c.device}

        def weight(rows: int, columns: int) -> torch.nn.Parameter:
            values = torch.randn(rows, columns, **options) / columns**0.5
            return torch.nn.Parameter(values, requires_grad=False)

        self.norm1 = torch.nn.Parameter(torch.ones(c.hidden, **options), requires_grad=False)
        self.norm2 = torch.nn.Parameter(torch.ones(c.hidden, **options), requires_grad=False)
        self.qkv = weight(c.qkv_width, c.hidden)
        self.out = weight(c.hidden, c.heads * c.head_dim)
        self.gate_up = weight(2 * c.intermediate, c.hidden)
        self.down = weight(c.hidden, c.intermediate)
        cache = (c.batch, c.kv_heads, positions, c.head_dim)
        self.register_buffer("keys", torch.zeros(cache, **options))
        self.register_buffer("values", torch.zeros(cache, **options))

    def forward(self, x: torch.Tensor, rotary: torch.Tensor, start: int) -> torch.Tensor:
        """Map (batch, tokens, hidden) to the same shape; `start` is the first token's position."""
        c = self.config
        with phase("attention"):
            x = x + self.attend(F.rms_norm(x, (c.hidden,), self.norm1), rotary, start)
        with phase("mlp"):
            gate, up = F.linear(F.rms_norm(x, (c.hidden,), self.norm2), self.gate_up).chunk(2, -1)
            return x + F.linear(F.silu(gate) * up, self.down)

    def attend(self, x: torch.Tensor, rotary: torch.Tensor, start: int) -> torch.Tensor:
        """Project, rotate, append to the cache, attend to all positions so far, project back."""
        c = self.config
        batch, tokens, _ = x.shape
        qkv = F.linear(x, self.qkv).view(batch, tokens, -1, c.head_dim).transpose(1, 2)
        q, k, v = qkv.split((c.heads, c.kv_heads, c.kv_heads), dim=1)
        end = start + tokens
        self.keys[:, :, start:end] = rotate(k, rotary)
        self.values[:, :, start:end] = v
        mixed = F.scaled_dot_product_attention(
            rotate(q, rotary),
            self.keys[:, :, :end],
            self.values[:, :, :end],
            is_causal=tokens > 1,
            enable_gqa=True,
        )
        return F.linear(mixed.transpose(1, 2).reshape(batch, tokens, -1), self.out)


def rotary_table(config: Config, positions: int) -> torch.Tensor:
    """Return cosines and sines, (2, positions, head_dim / 2), with base 500000 as in Llama 3."""
    half = torch.arange(0, config.head_dim, 2, device=config.device) / config.head_dim
    angles = torch.outer(torch.arange(positions, device=config.device), 500000.0**-half)
    return torch.stack((angles.cos(), angles.sin())).to(DTYPES[config.dtype])


def rotate(x: torch.Tensor, rotary: torch.Tensor) -> torch.Tensor:
    """Rotate (…, tokens, head_dim) by its positions' angles (Su et al., arXiv 2104.09864)."""
    a, b = x.chunk(2, -1)
    cos, sin = rotary
    return torch.cat((a * cos - b * sin, a * sin + b * cos), -1)


class Model(torch.nn.Module):
    """Embedding, layers, and a head that samples the next token of each sequence."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        positions = config.prompt_len + config.decode_steps
        options = {"dtype": DTYPES[config.dtype], "device": config.device}
        table = torch.randn(config.vocab, config.hidden, **options)
        self.embedding = torch.nn.Embedding.from_pretrained(table)
        self.layers = torch.nn.ModuleList(Layer(config, positions) for _ in range(config.layers))
        self.norm = torch.nn.Parameter(torch.ones(config.hidden, **options), requires_grad=False)
        head = torch.randn(config.vocab, config.hidden, **options) / config.hidden**0.5
        self.head = torch.nn.Parameter(head, requires_grad=False)
        self.rotary = rotary_table(config, positions)

    def forward(self, tokens: torch.Tensor, start: int) -> torch.Tensor:
        """Return the sampled next tokens, (batch, 1), after the tokens (batch, length)."""
        with phase("embedding"):
            x = self.embedding(tokens)
        rotary = self.rotary[:, start : start + tokens.shape[1]]
        for layer in self.layers:
            with phase("layer"):
                x = layer(x, rotary, start)
        with phase("head"):
            last = F.rms_norm(x[:, -1], (self.config.hidden,), self.norm)
            logits = F.linear(last, self.head)
            return torch.multinomial(torch.softmax(logits.float(), -1), 1)


class Timer:
    """Elapsed time of a phase in ms, by CUDA events; None on a CPU, where nothing is claimed."""

    def __init__(self, device: str) -> None:
        self.events = None
        if device == "cuda":
            self.events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]

    def __enter__(self) -> Timer:
        if self.events:
            self.events[0].record()
        return self

    def __exit__(self, *_: object) -> None:
        if self.events:
            self.events[1].record()

    @property
    def milliseconds(self) -> float | None:
        """Time between entry and exit on the GPU; waits for the GPU."""
        if not self.events:
            return None
        self.events[1].synchronize()
        return float(self.events[0].elapsed_time(self.events[1]))


def gemms(config: Config) -> list[dict[str, object]]:
    """List every GEMM as {name, stage, m (tokens), n (outputs), k (inputs), calls}."""
    c = config
    shapes = {
        "qkv": (c.qkv_width, c.hidden),
        "out": (c.hidden, c.heads * c.head_dim),
        "gate_up": (2 * c.intermediate, c.hidden),
        "down": (c.hidden, c.intermediate),
    }
    rows: list[dict[str, object]] = []
    for stage, tokens, runs in (
        ("prefill", c.batch * c.prompt_len, 1),
        ("decode", c.batch, c.decode_steps),
    ):
        for name, (n, k) in shapes.items():
            rows.append(_gemm(name, stage, (tokens, n, k), runs * c.layers))
        rows.append(_gemm("head", stage, (c.batch, c.vocab, c.hidden), runs))
    return rows


def _gemm(name: str, stage: str, shape: tuple[int, int, int], calls: int) -> dict[str, object]:
    m, n, k = shape
    return {"name": name, "stage": stage, "m": m, "n": n, "k": k, "calls": calls}


@contextlib.contextmanager
def profiler_range(device: str) -> Iterator[None]:
    """Bracket with cudaProfilerStart and cudaProfilerStop; both do nothing without a profiler."""
    if device == "cuda":
        torch.cuda.synchronize()
        torch.cuda.profiler.start()
    yield
    if device == "cuda":
        torch.cuda.synchronize()
        torch.cuda.profiler.stop()


def count_work(model: Model, prompt: torch.Tensor) -> dict[str, object]:
    """Run prefill and decode once more; return their FLOPs, weights and KV cache read."""
    c = model.config
    with Count(model) as counter:
        counter.enter("prefill")
        tokens = model(prompt, 0)
        for step in range(c.decode_steps):
            counter.enter("decode")
            tokens = model(tokens, c.prompt_len + step)
            end = c.prompt_len + step + 1
            caches = [t for layer in model.layers for t in (layer.keys, layer.values)]
            counter.add_cache([cache[:, :, :end] for cache in caches])
    return counter.result({"model": "llm_block", "device": c.device})


def graphed(model: Model, config: Config) -> tuple[torch.Tensor, list[torch.cuda.CUDAGraph]]:
    """Return the tokens that decoding starts from, and its steps as CUDA graphs.

    A graph holds for one length of the KV cache, so there is one for each step.
    """
    first = tokens = torch.zeros(config.batch, 1, dtype=torch.long, device=config.device)
    graphs: list[torch.cuda.CUDAGraph] = []
    pool = torch.cuda.graph_pool_handle()
    for step in range(config.decode_steps):
        graphs.append(torch.cuda.CUDAGraph())
        with torch.cuda.graph(graphs[-1], pool=pool):
            tokens = model(tokens, config.prompt_len + step)
    return first, graphs


@torch.inference_mode()
def run(config: Config) -> dict[str, object]:
    """Warm up, prefill, decode; return what was measured and under which conditions.

    With `count_work` the FLOPs and bytes of both go to static_compute.json.
    """
    torch.manual_seed(config.seed)
    model = Model(config)
    prompt = torch.randint(config.vocab, (config.batch, config.prompt_len), device=config.device)

    def decode(tokens: torch.Tensor, steps: int) -> None:
        for step in range(steps):
            with phase("step"):
                tokens = model(tokens, config.prompt_len + step)

    for _ in range(config.warmup):
        with phase("warmup"):
            decode(model(prompt, 0), min(2, config.decode_steps))
    first, graphs = graphed(model, config) if config.graphs else (None, [])
    prefill_timer, decode_timer = Timer(config.device), Timer(config.device)
    with profiler_range(config.device):
        with phase("prefill"), prefill_timer:
            tokens = model(prompt, 0)
        with phase("decode"), decode_timer:
            if first is None:
                decode(tokens, config.decode_steps)
            else:
                first.copy_(tokens)
                for graph in graphs:
                    with phase("step"):
                        graph.replay()
    if config.count_work:
        write_beside_records(count_work(model, prompt))
    prefill_ms, decode_ms = prefill_timer.milliseconds, decode_timer.milliseconds
    on_gpu = config.device == "cuda"
    return {
        "target": "llm_block",
        "config": asdict(config),
        "prefill_ms": prefill_ms,
        "decode_ms_per_step": decode_ms / config.decode_steps if decode_ms else None,
        "peak_memory_bytes": torch.cuda.max_memory_allocated() if on_gpu else None,
        "torch": torch.__version__,
        "gpu": torch.cuda.get_device_name() if on_gpu else None,
        "nvtx": nvtx is not None,
        "gemms": gemms(config),
    }


def parse_arguments(argv: list[str] | None = None) -> Config:
    """Turn the command line into a Config; a preset fills the sizes that are not given."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--preset", choices=sorted(PRESETS), default="llama-3.1-8b")
    for size in PRESETS["tiny"]:
        parser.add_argument(f"--{size.replace('_', '-')}", type=int, help="overrides the preset")
    for name, default, text in (
        ("batch", 8, "sequences"),
        ("prompt-len", 1024, "tokens of each prompt"),
        ("decode-steps", 16, "tokens to generate"),
        ("layers", 2, "decoder layers"),
        ("seed", 0, "of weights, prompts and sampling"),
        ("warmup", 2, "runs before the measured one"),
    ):
        parser.add_argument(f"--{name}", type=int, default=default, help=f"{text} ({default})")
    parser.add_argument("--dtype", choices=sorted(DTYPES), default="bf16")
    parser.add_argument("--attention", choices=["auto", *BACKENDS], default="flash")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument(
        "--count-work", action="store_true", help="count the FLOPs and bytes of both phases, behind"
    )
    parser.add_argument("--graphs", action="store_true", help="decode steps are CUDA graphs")
    given = vars(parser.parse_args(argv))
    preset = PRESETS[given.pop("preset")]
    config = Config(**{**given, **{k: given[k] or preset[k] for k in preset}})
    if config.hidden % config.heads or config.heads % config.kv_heads or config.head_dim % 2:
        parser.error("hidden must divide by heads, heads by kv-heads, and a head's width by 2")
    if min(config.batch, config.prompt_len, config.decode_steps, config.layers) < 1:
        parser.error("batch, prompt-len, decode-steps and layers must be at least 1")
    if config.graphs and config.device == "cpu":
        parser.error("--graphs needs a GPU")
    return config


def main(argv: list[str] | None = None) -> int:
    """Run once; exit code 1 with a reason where the device is missing or its memory too small."""
    config = parse_arguments(argv)
    if config.device == "cuda" and not torch.cuda.is_available():
        complain("torch sees no CUDA device", "--device cpu --preset tiny")
        return 1
    try:
        with attention_backend(config):
            result = run(config)
    except torch.OutOfMemoryError as error:
        complain(f"out of GPU memory: {error}", "a smaller --batch")
        return 1
    print(json.dumps(result))
    times = [result["prefill_ms"], result["decode_ms_per_step"]]
    shown = ["not timed" if t is None else f"{t:.2f} ms" for t in times]
    print(f"llm_block: prefill {shown[0]}, decode {shown[1]} a step", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
