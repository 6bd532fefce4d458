"""Steps a controller of many small layers, whose functions check what they are given."""

import functools
import inspect

import torch
from common import main

CHECKED = True


def checked(function):
    """Let a function be called only with what its annotations promise."""

    @functools.wraps(function)
    def call(*args, **kwargs):
        if CHECKED:
            signature = inspect.signature(function)
            given = signature.bind(*args, **kwargs)
            given.apply_defaults()
            for name, value in given.arguments.items():
                kind = signature.parameters[name].annotation
                if kind is not inspect.Parameter.empty and not isinstance(value, kind):
                    raise TypeError(f"{function.__name__}: {name} is no {kind.__name__}")
        return function(*args, **kwargs)

    return call


@checked
def product(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor):
    return torch.addmm(bias, x, weight)


@checked
def squash(x: torch.Tensor, scale: float = 1.0, shift: float = 0.0):
    return torch.tanh(x) if scale == 1.0 and shift == 0.0 else torch.tanh(x * scale + shift)


@checked
def mix(old: torch.Tensor, new: torch.Tensor, share: float = 0.5):
    return torch.lerp(old, new, share)


def prepare(device, repaired):
    robots, width, layers = (256, 128, 40) if device == "cuda" else (4, 8, 3)
    weights = [torch.randn(width, width, device=device) / width**0.5 for _ in range(layers)]
    biases = [torch.randn(width, device=device) for _ in range(layers)]
    return weights, biases, torch.randn(robots, width, device=device)


@torch.inference_mode()
def run(state, steps, repaired):
    global CHECKED
    CHECKED = not repaired
    weights, biases, x = state
    for _ in range(steps):
        for weight, bias in zip(weights, biases, strict=True):
            x = mix(x, squash(product(x, weight, bias)), share=0.25)
    return x.square().mean()


main(prepare, run, steps=60)
