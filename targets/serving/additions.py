"""What is made up beside a model: an EAGLE head or n-grams that draft tokens, and LoRA adapters.

How long they take does not depend on their values, but for one thing: how many drafted tokens are
accepted. That is an option (`--accept`), which vLLM's synthetic rejection sampling keeps to.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from nsight_prof.targets.serving.failures import EngineFailure
from nsight_prof.targets.serving.options import NGRAM, EngineOptions

HEAD, ADAPTER = "eagle-head", "adapter"
"""Folders of both."""
COPIED = (
    "hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "head_dim",
    "vocab_size", "max_position_embeddings", "rope_theta", "rope_scaling", "rms_norm_eps",
    "torch_dtype", "bos_token_id", "eos_token_id", "hidden_act",
)  # fmt: skip
"""Keys of the model's configuration that its head has too."""
PACKED = {"qkv_proj": ("q_proj", "k_proj", "v_proj"), "gate_up_proj": ("gate_proj", "up_proj")}
"""Matrices that vLLM multiplies as one, with one adapter each."""
LOOKED_UP = 8
"""Equal tokens at both ends of a prompt, in which n-grams are found: vLLM 0.20 looks the last 5 up
and proposes what follows them."""


def check_additions(config: Mapping[str, Any] | None, options: EngineOptions) -> None:
    """Refuse what cannot be made up for this model.

    Raises:
        EngineFailure: its configuration is not here, its layers are of an unknown kind, or options
            that belong together are not all given.
    """
    if options.speculative_tokens and options.accept is None:
        raise EngineFailure(
            "how many tokens a step gives each request is not given: made-up weights do not tell",
            f"add --accept, from 1 to {options.speculative_tokens + 1}",
            "unsupported",
        )
    by_ngrams = options.speculative_tokens > 0 and options.draft == NGRAM
    if by_ngrams and options.has_processes:
        raise EngineFailure(
            "made-up weights repeat no tokens but where they are set, in this process",
            "one GPU and --engine inline for --draft ngram",
            "unsupported",
        )
    if not options.adapters and (by_ngrams or not options.speculative_tokens):
        return
    known = config is not None and all(isinstance(config.get(key), int) for key in COPIED[:3])
    if config is None or not known or "kv_lora_rank" in config:
        raise EngineFailure(
            "the sizes of the model's layers are not known: no head and no adapter is made up",
            "give the folder of a dense decoder with its config.json",
            "unsupported",
        )


def additional_arguments(
    config: Mapping[str, Any] | None, options: EngineOptions, folder: Path
) -> dict[str, Any]:
    """Write what the options ask for into `folder`; return the arguments of vllm.LLM for it.

    Raises:
        EngineFailure: as `check_additions`; torch or safetensors is missing.
    """
    check_additions(config, options)
    found: dict[str, Any] = {}
    if options.speculative_tokens:
        found["speculative_config"] = {
            "method": options.draft,
            "num_speculative_tokens": options.speculative_tokens,
            "rejection_sample_method": "synthetic",
            "synthetic_acceptance_length": options.accept,
        }
    if config is not None and options.speculative_tokens and options.draft != NGRAM:
        found["speculative_config"]["model"] = str(write_head(config, folder / HEAD))
    if config is not None and options.adapters:
        write_adapter(config, options, folder / ADAPTER)
        found |= {
            "enable_lora": True,
            "max_loras": options.adapters,
            "max_lora_rank": options.adapter_rank,
            "lora_target_modules": list(options.adapter_modules),
        }
    return found


def write_head(config: Mapping[str, Any], folder: Path) -> Path:
    """Write the configuration of an EAGLE head of a model: one layer of its sizes, Llama's kind.

    It shares embedding and output projection with the model (EAGLE, arXiv 2401.15077).
    """
    folder.mkdir(parents=True, exist_ok=True)
    head = {key: config[key] for key in COPIED if config.get(key) is not None}
    head |= {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "num_hidden_layers": 1,
        "tie_word_embeddings": False,
    }
    (folder / "config.json").write_text(json.dumps(head), encoding="utf-8")
    return folder


def adapter_sizes(
    config: Mapping[str, Any], modules: tuple[str, ...]
) -> Iterator[tuple[str, int, int]]:
    """Yield path within a layer, outputs and inputs of each matrix that an adapter has a part of.

    `modules` are vLLM's names (qkv_proj), the paths those of the checkpoint (self_attn.q_proj).
    """
    hidden, wide, heads = (config[key] for key in COPIED[:3])
    head = config.get("head_dim") or hidden // heads
    grouped = (config.get("num_key_value_heads") or heads) * head
    sizes = {
        "q_proj": (heads * head, hidden), "k_proj": (grouped, hidden), "v_proj": (grouped, hidden),
        "o_proj": (hidden, heads * head), "gate_proj": (wide, hidden), "up_proj": (wide, hidden),
        "down_proj": (hidden, wide),
    }  # fmt: skip
    for module in modules:
        for name in PACKED.get(module, (module,)):
            owner = "self_attn" if name in ("q_proj", "k_proj", "v_proj", "o_proj") else "mlp"
            yield (f"{owner}.{name}", *sizes[name])


def write_adapter(config: Mapping[str, Any], options: EngineOptions, folder: Path) -> None:
    """Write an adapter with made-up weights, as peft stores it.

    Raises:
        EngineFailure: torch or safetensors is missing.
    """
    try:
        torch, safetensors = import_module("torch"), import_module("safetensors.torch")
    except ImportError as error:
        raise EngineFailure(
            f"no adapter can be written: {error}",
            "vLLM brings torch and safetensors",
            "unsupported",
        ) from error
    folder.mkdir(parents=True, exist_ok=True)
    rank, names = options.adapter_rank, []
    weights = {}
    for path, outputs, inputs in adapter_sizes(config, options.adapter_modules):
        names.append(path.rpartition(".")[2])
        for layer in range(config["num_hidden_layers"]):
            key = f"base_model.model.model.layers.{layer}.{path}"
            for part, size in (("lora_A", (rank, inputs)), ("lora_B", (outputs, rank))):
                weights[f"{key}.{part}.weight"] = torch.full(size, 1e-3, dtype=torch.bfloat16)
    safetensors.save_file(weights, folder / "adapter_model.safetensors")
    settings = {"peft_type": "LORA", "r": rank, "lora_alpha": rank, "target_modules": names}
    (folder / "adapter_config.json").write_text(json.dumps(settings), encoding="utf-8")


def adapters(count: int, folder: Path) -> list[Any]:
    """Return vLLM's LoRARequest of each of `count` adapters: the same weights in a place each."""
    if not count:
        return []
    request = import_module("vllm.lora.request").LoRARequest
    return [request(f"{ADAPTER}-{n}", n, str(folder / ADAPTER)) for n in range(1, count + 1)]


def repeated_token(llm: Any) -> int:
    """Let a model with made-up weights give the same token always; return it.

    All tokens get the same embedding, so that what is computed does not depend on them. So n-grams
    are found in each step, as many tokens are drafted in each, and times are those of other tokens.
    """
    llm.apply_model(_embed_all_alike)
    vllm = import_module("vllm")
    alone = vllm.SamplingParams(max_tokens=4, temperature=0.0, ignore_eos=True, detokenize=False)
    (answer,) = llm.generate([{"prompt_token_ids": [17, 18, 19, 20]}], alone, use_tqdm=False)
    return int(answer.outputs[0].token_ids[-1])


def _embed_all_alike(model: Any) -> None:
    with import_module("torch").inference_mode():
        for module in model.modules():
            if type(module).__name__ == "VocabParallelEmbedding":
                rows = module.weight
                rows.copy_(rows[:1].clone().expand_as(rows))


def repeating(prompt: list[int], token: int) -> list[int]:
    """Return a prompt that begins and ends with a token, as the model goes on with it."""
    ends = [token] * min(LOOKED_UP, len(prompt) // 2)
    return [*ends, *prompt[len(ends) : len(prompt) - len(ends)], *ends]
