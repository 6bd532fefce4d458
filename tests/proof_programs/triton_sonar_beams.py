"""Steers beams of a sonar: what its hydrophones hear is multiplied by weights for each direction, with a kernel in Triton."""

import torch
import triton
import triton.language as tl
from common import main


@triton.jit
def steer(
    heard, weights, beams, phones, directions,
    PRECISION: tl.constexpr, TIMES: tl.constexpr, OUT: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    time = tl.program_id(0) * TIMES + tl.arange(0, TIMES)
    direction = tl.program_id(1) * OUT + tl.arange(0, OUT)
    total = tl.zeros((TIMES, OUT), tl.float32)
    for start in range(0, phones, DEPTH):
        phone = start + tl.arange(0, DEPTH)
        x = tl.load(heard + time[:, None] * phones + phone[None, :])
        w = tl.load(weights + phone[:, None] * directions + direction[None, :])
        total = tl.dot(x, w, total, input_precision=PRECISION)
    tl.store(beams + time[:, None] * directions + direction[None, :], total)


class Sonar:
    def __init__(self, phones, directions, precision, device):
        self.weights = torch.randn(phones, directions, device=device) / phones**0.5
        self.precision = precision

    def beams(self, heard):
        times, phones = heard.shape
        directions = self.weights.shape[1]
        beams = torch.empty(times, directions, device=heard.device)
        grid = (triton.cdiv(times, 64), triton.cdiv(directions, 64))
        steer[grid](
            heard, self.weights, beams, phones, directions,
            PRECISION=self.precision, TIMES=64, OUT=64, DEPTH=32,
        )  # fmt: skip
        return beams


def prepare(device, repaired):
    times, phones, directions = (8192, 512, 1024) if device == "cuda" else (64, 64, 64)
    sonar = Sonar(phones, directions, "tf32" if repaired else "ieee", device)
    return sonar, torch.randn(2, times, phones, device=device)


def run(state, steps, repaired):
    sonar, heard = state
    total = torch.zeros((), device=heard.device)
    for step in range(steps):
        total += sonar.beams(heard[step % 2]).square().mean()
    return total / steps


main(prepare, run, steps=2000)
