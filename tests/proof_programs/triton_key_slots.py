"""Keeps keys and values of questions at slots of a cache, as a server of a language model does for each layer, in Triton."""

import torch
import triton
import triton.language as tl
from common import main


@triton.jit
def keep(
    keys, values, key_cache, value_cache, slots, scale, HEADS: tl.constexpr, WIDTH: tl.constexpr
):
    token, head = tl.program_id(0), tl.program_id(1)
    slot = tl.load(slots + token).to(tl.int64)
    dims = tl.arange(0, WIDTH)
    here = (token * HEADS + head) * WIDTH + dims
    there = (slot * HEADS + head) * WIDTH + dims
    key, value = tl.load(keys + here), tl.load(values + here)
    tl.store(key_cache + there, (key * scale).to(key_cache.dtype.element_ty))
    tl.store(value_cache + there, (value * scale).to(value_cache.dtype.element_ty))


class Cache:
    """Keys and values of all layers: (layers, slots, heads, width) each."""

    def __init__(self, layers, slots, heads, width, warps, like):
        self.keys, self.values = (like.new_zeros(layers, slots, heads, width) for _ in range(2))
        self.heads, self.width, self.warps = heads, width, warps

    def take(self, layer, keys, values, slots):
        keep[(len(slots), self.heads)](
            keys,
            values,
            self.keys[layer],
            self.values[layer],
            slots,
            0.5,
            HEADS=self.heads,
            WIDTH=self.width,
            num_warps=self.warps,
        )


def prepare(device, repaired):
    cuda = device == "cuda"
    layers, tokens, slots, heads, width = (8, 32768, 40000, 8, 64) if cuda else (2, 6, 9, 2, 16)
    dtype = torch.bfloat16 if cuda else torch.float32
    torch.manual_seed(33)
    keys, values = torch.randn(2, layers, tokens, heads, width, device=device, dtype=dtype)
    places = torch.randperm(slots, device=device)[:tokens]
    cache = Cache(layers, slots, heads, width, 1 if repaired else 16, keys)
    return cache, keys, values, places


@torch.inference_mode()
def run(state, steps, repaired):
    cache, keys, values, places = state
    for _ in range(steps):
        for layer in range(len(keys)):
            cache.take(layer, keys[layer], values[layer], places)
    return cache.keys.float().square().mean() + cache.values.float().abs().mean()


main(prepare, run, steps=150)
