"""Shapes models of clay by gradients: weights of many small layers take a step with momentum, in Triton."""

import torch
import triton
import triton.language as tl
from common import main


@triton.jit
def take_step(weights, grads, speeds, lr, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < count
    speed = 0.9 * tl.load(speeds + at, mask=mask) + tl.load(grads + at, mask=mask)
    tl.store(speeds + at, speed, mask=mask)
    tl.store(weights + at, tl.load(weights + at, mask=mask) - lr * speed, mask=mask)


class Stepper:
    """Steps weights of all layers, which lie one after the other in one tensor, as gradients do."""

    def __init__(self, weights, grads, sizes, block, at_once):
        self.block, self.at_once = block, at_once
        self.all = weights, grads, torch.zeros_like(weights)
        self.layers = list(zip(*(x.split(sizes) for x in self.all), strict=True))

    def launch(self, weights, grads, speeds, lr):
        count = weights.numel()
        take_step[(triton.cdiv(count, self.block),)](
            weights, grads, speeds, lr, count, BLOCK=self.block
        )

    def step(self, lr):
        if self.at_once:
            self.launch(*self.all, lr)
            return
        for layer in self.layers:
            self.launch(*layer, lr)


def prepare(device, repaired):
    layers, width, block = (240, 128, 1024) if device == "cuda" else (3, 8, 64)
    sizes = [size for _ in range(layers) for size in (width * width, width, width)]
    torch.manual_seed(24)
    weights = torch.randn(sum(sizes), device=device)
    grads = torch.empty_like(weights)
    return Stepper(weights, grads, sizes, block, at_once=repaired), weights.clone()


def run(state, steps, repaired):
    stepper, begin = state
    weights, grads, speeds = stepper.all
    weights.copy_(begin)
    speeds.zero_()
    for step in range(steps):
        torch.sin(weights, out=grads)
        grads.add_(weights, alpha=0.1)
        stepper.step(0.01 / (1 + step % 3))
    return weights.square().mean()


main(prepare, run, steps=100)
