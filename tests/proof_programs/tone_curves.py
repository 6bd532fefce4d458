"""Develops photographs with the tone curve of each film: a function in CUDA C++ that is compiled when it is first used."""

import os

os.environ["USE_PYTORCH_KERNEL_CACHE"] = "0"  # each start compiles, as the first on a machine does

import torch
from common import main

STEPS = 1200
FILMS = [(1.8 + 0.05 * number, 0.02 * number) for number in range(8)]


class Developer:
    """Applies curves; with numbers written into the source, or given to a function that is the same for all films."""

    def __init__(self, device, given):
        self.device, self.given = device, given
        self.functions = {}

    def function(self, film):
        """Return the function that applies the curve of a film."""
        gamma, lift = ("gamma", "lift") if self.given else (f"T({n:.6f})" for n in FILMS[film])
        arguments = "T x, T gamma, T lift" if self.given else "T x"
        source = f"""template <typename T> T curve({arguments}) {{
            T raised = pow(x, T(1) / {gamma});
            return raised + {lift} * (T(1) - raised) * raised;
        }}"""
        if source not in self.functions:
            numbers = {"gamma": 1.0, "lift": 0.0} if self.given else {}
            self.functions[source] = torch.cuda.jiterator._create_jit_fn(source, **numbers)
        return self.functions[source]

    def develop(self, photographs, film):
        gamma, lift = FILMS[film]
        if self.device != "cuda":
            raised = photographs.pow(1 / gamma)
            return raised + lift * (1 - raised) * raised
        function = self.function(film)
        numbers = {"gamma": gamma, "lift": lift} if self.given else {}
        return function(photographs, **numbers)


def prepare(device, repaired):
    shape = (8, 3, 2048, 2048) if device == "cuda" else (1, 3, 8, 8)
    return Developer(device, given=repaired), torch.rand(2, *shape, device=device)


@torch.inference_mode()
def run(state, steps, repaired):
    developer, photographs = state
    total = torch.zeros((), device=photographs.device)
    for step in range(steps):
        film = step * len(FILMS) // STEPS % len(FILMS)
        bright = developer.develop(photographs[step % 2], film)
        total += bright.mean()
    return total / steps


main(prepare, run, steps=STEPS, warm=2)
