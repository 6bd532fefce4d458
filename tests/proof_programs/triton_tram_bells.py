"""Learns to tell trams by their bells: a norm whose gradients, of its input and of its weight, come from a kernel in Triton."""

import torch
import triton
import triton.language as tl
from common import main
from torch import nn


@triton.jit
def backward(x, weight, rstd, grad, grad_x, partial, rows, WIDTH: tl.constexpr):
    cols = tl.arange(0, WIDTH)
    w = tl.load(weight + cols).to(tl.float32)
    total = tl.zeros((WIDTH,), tl.float32)
    for row in range(tl.program_id(0), rows, tl.num_programs(0)):
        at = row * WIDTH + cols
        normed = tl.load(x + at).to(tl.float32) * tl.load(rstd + row)
        came = tl.load(grad + at).to(tl.float32)
        total += came * normed
        came = came * w
        off = came - normed * (tl.sum(came * normed, 0) / WIDTH)
        tl.store(grad_x + at, (off * tl.load(rstd + row)).to(grad_x.dtype.element_ty))
    tl.store(partial + tl.program_id(0) * WIDTH + cols, total)


class Norm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, programs):
        rstd = (x.float().square().mean(1) + 1e-6).rsqrt()
        ctx.save_for_backward(x, weight, rstd)
        ctx.programs = programs
        return x * rstd[:, None].to(x.dtype) * weight

    @staticmethod
    def backward(ctx, grad):
        x, weight, rstd = ctx.saved_tensors
        (rows, width), grad_x = x.shape, torch.empty_like(x)
        partial = torch.empty(ctx.programs, width, device=x.device)
        backward[(ctx.programs,)](
            x, weight, rstd, grad.contiguous(), grad_x, partial, rows, WIDTH=width, num_warps=4
        )
        return grad_x, partial.sum(0).to(weight.dtype), None


class Bells(nn.Module):
    def __init__(self, width, depth, programs):
        super().__init__()
        self.programs = programs
        self.weights = nn.ParameterList(torch.rand(width) + 0.5 for _ in range(depth))

    def forward(self, x):
        for weight in self.weights:
            x = Norm.apply(x, weight, self.programs)
        return x


def prepare(device, repaired):
    cuda = device == "cuda"
    rows, width, depth, programs = (65536, 1024, 4, 2112) if cuda else (12, 32, 2, 5)
    dtype = torch.bfloat16 if cuda else torch.float32
    torch.manual_seed(37)
    model = Bells(width, depth, programs if repaired else rows).to(device, dtype)
    bells = torch.randn(rows, width, device=device, dtype=dtype, requires_grad=True)
    heard = model(bells)
    wanted = torch.randn(rows, width, device=device, dtype=dtype) / rows
    return model, bells, heard, wanted


def run(state, steps, repaired):
    model, bells, heard, wanted = state
    given = [bells, *model.weights]
    total = torch.zeros((), device=bells.device)
    for _ in range(steps):
        grads = torch.autograd.grad(heard, given, wanted, retain_graph=True)
        total += sum(grad.float().abs().sum() for grad in grads[1:])
    return total / steps


main(prepare, run, steps=250)
