"""Reads a decoder's config.json into its shape: what its layers are and how many parameters.

Known are the families of `FAMILIES`: decoders of pre-normed attention and gated feed-forward
layers, dense or with experts. Anything else is refused and never guessed, since every number of a
static analysis follows from the shape. Merged projections and their names are those that vLLM gives
them (qkv_proj, gate_up_proj), so that modules, GEMM shapes and ranges of a trace meet.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nsight_prof.parsers.errors import ArtifactUnreadable, UsageError

BYTES = {
    "float32": 4.0,
    "bfloat16": 2.0,
    "float16": 2.0,
    "fp8": 1.0,
    "fp8_e4m3": 1.0,
    "fp8_e5m2": 1.0,
}
"""Bytes of a value in memory, by the name of its type (PyTorch's, or vLLM's of a KV cache)."""


@dataclass(frozen=True)
class Family:
    """How one `model_type` differs: biases of q, k and v, norms of q and k, experts' keys.

    `norms` of a layer; `alternates`: of its layers some attend to a window and some to all tokens;
    `latent`: keys and values are kept as one vector (`Latent`).
    """

    qkv_bias: bool = False
    attention_bias_key: bool = False
    qk_norm: bool = False
    experts_key: str = ""
    expert_width_key: str = ""
    norms: int = 2
    alternates: bool = False
    latent: bool = False


FAMILIES = {
    "llama": Family(attention_bias_key=True),
    "mistral": Family(),
    "qwen2": Family(qkv_bias=True),
    "qwen3": Family(attention_bias_key=True, qk_norm=True),
    "mixtral": Family(experts_key="num_local_experts", expert_width_key="intermediate_size"),
    "qwen2_moe": Family(
        qkv_bias=True, experts_key="num_experts", expert_width_key="moe_intermediate_size"
    ),
    "qwen3_moe": Family(
        attention_bias_key=True,
        qk_norm=True,
        experts_key="num_experts",
        expert_width_key="moe_intermediate_size",
    ),
    "gemma3_text": Family(attention_bias_key=True, qk_norm=True, norms=4, alternates=True),
    "deepseek_v2": Family(
        experts_key="n_routed_experts", expert_width_key="moe_intermediate_size", latent=True
    ),
}
"""`model_type` of config.json -> what the family adds (modules of transformers 4.57)."""


@dataclass(frozen=True)
class Experts:
    """A mixture of experts: `used` of `count` experts a token, in `layers` of the layers.

    `width` is the intermediate size of one expert, `shared_width` that of the expert that every
    token uses (0: none), which has a gate of its own where it is `shared_gated`. The first `dense`
    layers have no experts.
    """

    count: int
    used: int
    width: int
    shared_width: int
    layers: int
    shared_gated: bool = True
    dense: int = 0


@dataclass(frozen=True)
class Latent:
    """Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1).

    The KV cache holds one vector of `rank` + `rope` values a token and layer, which all heads
    share. Of a head, queries and keys have `nope` values without and `rope` with a rotary
    embedding, and values have `value`. `query_rank`: queries come from a vector of so many values;
    0: from the hidden state.
    """

    rank: int
    rope: int
    nope: int
    value: int
    query_rank: int = 0

    @property
    def cached(self) -> int:
        """Values that the KV cache holds of a token in a layer."""
        return self.rank + self.rope

    @property
    def expanded(self) -> int:
        """Products for each head, query and key where keys and values are computed (prompts)."""
        return self.nope + self.rope + self.value

    @property
    def absorbed(self) -> int:
        """The same where queries are brought to the latent vector instead (decode)."""
        return 2 * self.rank + self.rope


PACKED = {"qkv_proj": 3, "gate_up_proj": 2}
"""Matrices that are multiplied as one, and of how many: an adapter shrinks for each by itself."""
ADAPTED = ("qkv_proj", "o_proj", "gate_up_proj", "down_proj")
"""Matrices that LoRA adapters change where nothing else is said, by vLLM's names."""


@dataclass(frozen=True)
class Adapters:
    """LoRA adapters (arXiv 2106.09685) of one rank: so many fit the GPU at once (max_loras).

    `modules`: matrices that they change, by vLLM's names (qkv_proj).
    """

    count: int
    rank: int
    modules: tuple[str, ...] = ADAPTED

    def values(self, line: Linear) -> int:
        """Return the values of one adapter beside one matrix; 0: it does not change it."""
        name = line.path.rpartition(".")[2]
        packed = PACKED.get(name, 1)
        return self.rank * (packed * line.inputs + line.outputs) if name in self.modules else 0


@dataclass(frozen=True)
class Linear:
    """A matrix that tokens are multiplied with: y = x W^T, W of `outputs` x `inputs` values.

    `layers`: how many layers have it. Of `copies` of it in a layer (experts) a token uses `used`.
    `parameters` and `active_parameters` (those that a token meets) are of all layers.
    """

    path: str
    outputs: int
    inputs: int
    layers: int = 1
    bias: bool = False
    copies: int = 1
    used: int = 1

    @property
    def values(self) -> int:
        """Values of the matrices of all layers, without biases."""
        return self.outputs * self.inputs * self.layers * self.copies

    @property
    def parameters(self) -> int:
        """Parameters of all layers, with biases."""
        return self.values + (self.outputs * self.layers * self.copies if self.bias else 0)

    @property
    def stays_wide(self) -> bool:
        """Whether vLLM never quantizes it: routers, and the gate of a shared expert."""
        return self.path.endswith(("mlp.gate", "shared_expert_gate"))

    @property
    def active(self) -> int:
        """Values that one token is multiplied with, over all layers."""
        return self.outputs * self.inputs * self.layers * self.used


@dataclass(frozen=True)
class Quantized:
    """How the matrices of the layers are quantized; all else stays in the model's own type.

    `dynamic`: the scale of each token's activations is computed in every step; else it stands in
    the checkpoint. `value_bytes` of a weight, with its part of a group's scale. `wide_inputs`:
    weights alone are quantized, and are multiplied in the model's own type.
    """

    dtype: str
    dynamic: bool
    value_bytes: float = 1.0
    wide_inputs: bool = False


@dataclass(frozen=True)
class ModelShape:
    """The shape of a decoder, or with `tensor_parallel` > 1 the part of it that one GPU holds.

    `window`: tokens that attention sees at most; None: all. With `global_every` each so many-th
    layer sees all tokens in spite of it. `norms`: of the hidden state, a layer. `tied`: the output
    projection is the embedding table. `weight_bytes` and `kv_bytes` are bytes a value; where
    `quantized` is given, the former is that of activations, embeddings, routers and the output
    projection. `drafted`: tokens that an EAGLE head proposes in each step for each request.
    """

    model_type: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocabulary: int
    tied: bool
    dtype: str
    weight_bytes: float
    kv_bytes: float
    qkv_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    window: int | None = None
    experts: Experts | None = None
    tensor_parallel: int = 1
    quantized: Quantized | None = None
    norms: int = 2
    global_every: int = 0
    latent: Latent | None = None
    drafted: int = 0
    adapters: Adapters | None = None

    def shard(self, tensor_parallel: int) -> ModelShape:
        """Return what one of `tensor_parallel` GPUs holds, as Megatron and vLLM split a model.

        Heads, feed-forward and vocabulary are divided, norms and routers are on every GPU, and so
        are key-value heads where there are fewer of them than GPUs.

        Raises:
            UsageError: the heads or the feed-forward layers cannot be divided so.
        """
        if tensor_parallel == 1:
            return self
        if not self._divides(tensor_parallel):
            raise UsageError(
                f"a model of {self.heads} heads ({self.kv_heads} for keys and values) cannot be "
                f"split over {tensor_parallel} GPUs",
                "use a tensor parallel size that divides the number of heads",
            )
        split = self.experts and dataclasses.replace(
            self.experts,
            width=self.experts.width // tensor_parallel,
            shared_width=self.experts.shared_width // tensor_parallel,
        )
        return dataclasses.replace(
            self,
            heads=self.heads // tensor_parallel,
            kv_heads=max(1, self.kv_heads // tensor_parallel),
            intermediate=self.intermediate // tensor_parallel,
            vocabulary=-(-self.vocabulary // tensor_parallel),
            experts=split,
            tensor_parallel=self.tensor_parallel * tensor_parallel,
        )

    def with_layers(self, layers: int) -> ModelShape:
        """Return the model with as many layers; experts in all but the first stay in them."""
        mixture = self.experts
        if mixture is not None and mixture.layers == self.layers - mixture.dense:
            mixture = dataclasses.replace(mixture, layers=layers - mixture.dense)
        return dataclasses.replace(self, layers=layers, experts=mixture)

    def _divides(self, gpus: int) -> bool:
        widths = [self.heads, self.intermediate, *([self.experts.width] if self.experts else ())]
        if gpus < 1 or any(width % gpus for width in widths):
            return False
        return self.kv_heads % gpus == 0 or gpus % self.kv_heads == 0

    def spans(self) -> tuple[tuple[int | None, int], ...]:
        """Return (window, layers) of each kind of attention that the layers have."""
        seeing_all = self.layers // self.global_every if self.global_every else 0
        if self.window is None or not seeing_all:
            return ((self.window, self.layers),)
        return ((self.window, self.layers - seeing_all), (None, seeing_all))

    @property
    def cache_groups(self) -> int:
        """Groups of layers, each of which takes KV cache blocks of its own for the same tokens.

        A block holds as many layers as the rarest kind of attention has (vLLM 0.20:
        v1/core/kv_cache_utils.py).
        """
        rarest = min(layers for _, layers in self.spans())
        return sum(-(-layers // rarest) for _, layers in self.spans())

    def linears(self) -> tuple[Linear, ...]:
        """Return the matrices of the layers in the order of a forward pass, without the head."""
        if self.latent is not None:
            return (*self._latent(self.latent), *self._dense(), *self._routed())
        wide, grouped = self.heads * self.head_dim, self.kv_heads * self.head_dim
        return (
            Linear(
                "layers.*.self_attn.qkv_proj",
                wide + 2 * grouped,
                self.hidden,
                self.layers,
                self.qkv_bias,
            ),
            Linear("layers.*.self_attn.o_proj", self.hidden, wide, self.layers, self.output_bias),
            *self._dense(),
            *self._routed(),
        )

    def _latent(self, latent: Latent) -> tuple[Linear, ...]:
        """Return the matrices of latent attention; those to the latent vectors are not divided."""
        path, layers = "layers.*.self_attn", self.layers
        queries, hidden = self.heads * self.head_dim, self.hidden
        if latent.query_rank:
            width = latent.query_rank + latent.cached
            found = [
                Linear(f"{path}.fused_qkv_a_proj", width, hidden, layers),
                Linear(f"{path}.q_b_proj", queries, latent.query_rank, layers),
            ]
        else:
            found = [
                Linear(f"{path}.kv_a_proj_with_mqa", latent.cached, hidden, layers),
                Linear(f"{path}.q_proj", queries, hidden, layers),
            ]
        each = latent.nope + latent.value
        return (
            *found,
            Linear(f"{path}.kv_b_proj", self.heads * each, latent.rank, layers),
            Linear(f"{path}.o_proj", hidden, self.heads * latent.value, layers),
        )

    def head(self) -> Linear:
        """Return the projection to the vocabulary, which only sampled positions go through."""
        return Linear("lm_head", self.vocabulary, self.hidden)

    def norm_parameters(self) -> int:
        """Return the parameters of all norms: of layers, the last, q and k or latent vectors."""
        of_heads = 2 * self.head_dim * self.layers if self.qk_norm else 0
        if self.latent is not None:
            of_heads = (self.latent.rank + self.latent.query_rank) * self.layers
        return (self.norms * self.layers + 1) * self.hidden + of_heads

    def embedding_parameters(self) -> int:
        """Return the parameters of the table of token embeddings."""
        return self.vocabulary * self.hidden

    def parameters(self) -> int:
        """Return all parameters; a tied output projection counts once."""
        head = 0 if self.tied else self.head().parameters
        inside = sum(linear.parameters for linear in self.linears())
        return inside + head + self.embedding_parameters() + self.norm_parameters()

    def parameter_bytes(self) -> float:
        """Return the bytes of all parameters in memory, with those of head and adapters."""
        base = self.parameters() * self.weight_bytes - sum(map(self.saved, self.linears()))
        added = self.eagle_values() if self.drafted else 0
        if self.adapters:
            of_lines = sum(self.adapters.values(line) * line.layers for line in self.linears())
            added += self.adapters.count * of_lines
        return base + added * self.weight_bytes

    @property
    def extended(self) -> bool:
        """Whether a head drafts tokens beside it, or adapters change it."""
        return bool(self.drafted or self.adapters)

    def eagle_values(self) -> int:
        """Return the values of an EAGLE head: a layer, and what joins embedding and hidden state.

        The output projection and the embedding are the model's own (arXiv 2401.15077, section 4).
        """
        layer = dataclasses.replace(
            self, layers=1, experts=None, latent=None, qk_norm=False, norms=1,
        )  # fmt: skip
        return sum(line.parameters for line in layer.linears()) + 2 * self.hidden**2 + self.hidden

    def saved(self, line: Linear) -> float:
        """Return the bytes that a matrix, of all layers, takes less than in the model's type."""
        if self.quantized is None or line.stays_wide:
            return 0.0
        return line.values * (self.weight_bytes - self.quantized.value_bytes)

    def kv_bytes_per_token(self) -> float:
        """Return the bytes of the KV cache that one token takes: a key and a value per layer."""
        layers = self.layers + (1 if self.drafted else 0)
        if self.latent is not None:
            return layers * self.latent.cached * self.kv_bytes
        return 2 * layers * self.kv_heads * self.head_dim * self.kv_bytes

    def _dense(self) -> tuple[Linear, ...]:
        layers = self.layers - (self.experts.layers if self.experts else 0)
        if layers == 0:
            return ()
        return _gated("layers.*.mlp", self.hidden, self.intermediate, layers, bias=self.mlp_bias)

    def _routed(self) -> tuple[Linear, ...]:
        mixture = self.experts
        if mixture is None:
            return ()
        path, layers = "layers.*.mlp", mixture.layers
        router = Linear(f"{path}.gate", mixture.count, self.hidden, layers)
        up, down = _gated(f"{path}.experts", self.hidden, mixture.width, layers, mixture)
        shared: tuple[Linear, ...] = ()
        if mixture.shared_width:
            gate = Linear(f"{path}.shared_expert_gate", 1, self.hidden, layers)
            shared_expert = _gated(
                f"{path}.shared_expert", self.hidden, mixture.shared_width, layers
            )
            shared = (*([gate] if mixture.shared_gated else []), *shared_expert)
        return (router, up, down, *shared)


def _gated(
    path: str, hidden: int, width: int, layers: int, mixture: Experts | None = None, *,
    bias: bool = False,
) -> tuple[Linear, Linear]:  # fmt: skip
    """Return the two matrices of a gated feed-forward layer (SwiGLU): gate and up are one."""
    copies, used = (mixture.count, mixture.used) if mixture else (1, 1)
    return (
        Linear(f"{path}.gate_up_proj", 2 * width, hidden, layers, bias, copies, used),
        Linear(f"{path}.down_proj", hidden, width, layers, bias, copies, used),
    )


def read_model_shape(path: Path, dtype: str = "", kv_cache_dtype: str = "auto") -> ModelShape:
    """Return the shape of the model whose config.json (or its folder) is `path`.

    Raises:
        ArtifactUnreadable: no such file, no JSON, or as `model_shape`.
    """
    file = path / "config.json" if path.is_dir() else path
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ArtifactUnreadable(
            f"{file} cannot be read as a model's configuration: {error}",
            "give the config.json of the model, or its folder",
        ) from error
    return model_shape(config, dtype, kv_cache_dtype)


def model_shape(
    config: Mapping[str, Any], dtype: str = "", kv_cache_dtype: str = "auto"
) -> ModelShape:
    """Return the shape that a Hugging Face configuration describes.

    Args:
        config: the content of config.json.
        dtype: type of weights and activations where it is not that of the configuration.
        kv_cache_dtype: type of the KV cache; "auto" is the type of the activations.

    Raises:
        ArtifactUnreadable: a family, quantization or mixture of layers that is not known here.
    """
    kind = str(config.get("model_type", ""))
    family = FAMILIES.get(kind)
    if family is None:
        raise _unknown(f"model type {kind or '(none)'}", f"known are {', '.join(FAMILIES)}")
    _refuse(config)
    # Older versions of transformers write torch_dtype, newer ones dtype.
    dtype_name = dtype or str(config.get("dtype") or config.get("torch_dtype") or "")
    heads, hidden = _integer(config, "num_attention_heads"), _integer(config, "hidden_size")
    layers = _integer(config, "num_hidden_layers")
    kv_heads = _integer(config, "num_key_value_heads", heads)
    if heads % kv_heads:
        raise _unknown(
            f"{heads} attention heads over {kv_heads} of keys and values",
            "num_key_value_heads must divide num_attention_heads",
        )
    attention_bias = family.attention_bias_key and bool(config.get("attention_bias"))
    latent = _latent(config) if family.latent else None
    head_dim = latent.nope + latent.rope if latent else hidden // heads
    return ModelShape(
        model_type=kind,
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=1 if latent else kv_heads,
        head_dim=head_dim if latent else _integer(config, "head_dim", head_dim),
        intermediate=_integer(config, "intermediate_size"),
        vocabulary=_integer(config, "vocab_size"),
        tied=bool(config.get("tie_word_embeddings", False)),
        dtype=_normalized(dtype_name),
        weight_bytes=_bytes(dtype_name),
        kv_bytes=_bytes(dtype_name if kv_cache_dtype in ("", "auto") else kv_cache_dtype),
        qkv_bias=family.qkv_bias or attention_bias,
        output_bias=attention_bias,
        mlp_bias=bool(config.get("mlp_bias", False)),
        qk_norm=family.qk_norm,
        window=_window(config),
        experts=_experts(config, family, layers),
        norms=family.norms,
        global_every=_global_every(config) if family.alternates else 0,
        latent=latent,
    )


def _refuse(config: Mapping[str, Any]) -> None:
    """Refuse what would change the shape of some layers or the bytes of some weights."""
    # compression_config: what compressed-tensors wrote at first, and vLLM still reads.
    quantization = config.get("quantization_config") or config.get("compression_config")
    if quantization:
        known = isinstance(quantization, Mapping)
        method = quantization.get("quant_method", "unknown") if known else quantization
        raise _unknown(f"quantization {method}", "the bytes of its weights differ by layer")
    if config.get("use_sliding_window"):
        raise _unknown("a sliding window in some layers", "layers then differ in what they read")


def _window(config: Mapping[str, Any]) -> int | None:
    # Qwen's configurations name a window that use_sliding_window (false here) switches off.
    if "use_sliding_window" in config or not config.get("sliding_window"):
        return None
    return int(config["sliding_window"])


def _global_every(config: Mapping[str, Any]) -> int:
    """Return which layers see all tokens: each so many-th one."""
    kinds = config.get("layer_types")
    if not kinds:
        return _integer(config, "sliding_window_pattern")
    seeing_all = [n for n, kind in enumerate(kinds, 1) if kind == "full_attention"]
    every = seeing_all[0] if seeing_all else len(kinds) + 1
    if seeing_all != list(range(every, len(kinds) + 1, every)):
        raise _unknown("layers of several kinds without a period", "layer_types has none")
    return every


def _experts(config: Mapping[str, Any], family: Family, layers: int) -> Experts | None:
    if not family.experts_key:
        return None
    step = int(config.get("decoder_sparse_step") or config.get("moe_layer_freq") or 1)
    first = int(config.get("first_k_dense_replace") or 0)
    dense = {*(config.get("mlp_only_layers") or ()), *range(first)}
    sparse = [i for i in range(layers) if i not in dense and (i + 1) % step == 0]
    width = _integer(config, family.expert_width_key)
    together = int(config.get("n_shared_experts") or 0)  # they are computed as one
    return Experts(
        count=_integer(config, family.experts_key),
        used=_integer(config, "num_experts_per_tok"),
        width=width,
        shared_width=int(config.get("shared_expert_intermediate_size") or together * width),
        layers=len(sparse),
        shared_gated=not together,
        dense=first,
    )


def _latent(config: Mapping[str, Any]) -> Latent:
    return Latent(
        rank=_integer(config, "kv_lora_rank"),
        rope=_integer(config, "qk_rope_head_dim"),
        nope=_integer(config, "qk_nope_head_dim"),
        value=_integer(config, "v_head_dim"),
        query_rank=int(config.get("q_lora_rank") or 0),
    )


def _integer(config: Mapping[str, Any], key: str, default: int | None = None) -> int:
    value = config.get(key)
    value = default if value is None else value
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise _unknown(f"a configuration with {key} = {value!r}", f"{key} must be a whole number")
    return value


def _normalized(name: str) -> str:
    return name.removeprefix("torch.")


def _bytes(name: str) -> float:
    found = BYTES.get(_normalized(name))
    if found is None:
        raise _unknown(f"type {name or '(none)'}", f"known are {', '.join(BYTES)}")
    return found


def _unknown(what: str, reason: str) -> ArtifactUnreadable:
    return ArtifactUnreadable(
        f"the static analysis of a model does not know {what}: {reason}",
        "the rest of the report does not need it; to add a family see "
        "parsers/serving/model_shape.py",
    )
