"""Serves a mixture of experts: each token goes through the two experts that suit it best."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F


class Experts(nn.Module):
    """Many feed-forward networks, kept one by one as they come from the file."""

    def __init__(self, number, width, inner, stacked):
        super().__init__()
        self.router = nn.Linear(width, number, bias=False)
        self.ups = nn.ParameterList(torch.randn(width, inner) / width**0.5 for _ in range(number))
        self.downs = nn.ParameterList(torch.randn(inner, width) / inner**0.5 for _ in range(number))
        self.stacked, self.once = stacked, None

    def weights(self):
        if self.stacked:
            if self.once is None:
                self.once = torch.stack(list(self.ups)), torch.stack(list(self.downs))
            return self.once
        return torch.stack(list(self.ups)), torch.stack(list(self.downs))

    def forward(self, x):
        number, room = len(self.ups), 4 * len(x) // len(self.ups)
        weight, expert = self.router(x).softmax(1).topk(2, 1)
        expert, weight = expert.flatten(), weight.flatten()
        order = expert.argsort(stable=True)
        starts = torch.searchsorted(expert[order], torch.arange(number, device=x.device))
        place = torch.arange(len(order), device=x.device) - starts[expert[order]]
        slot = expert[order] * room + place.clamp(max=room - 1)
        token = order // 2
        rows = x.new_zeros(number * room, x.shape[1]).index_copy(0, slot, x[token])
        ups, downs = self.weights()
        made = torch.bmm(F.silu(torch.bmm(rows.view(number, room, -1), ups)), downs)
        back = made.flatten(0, 1)[slot] * weight[order][:, None]
        return torch.zeros_like(x).index_add(0, token, back)


class Net(nn.Module):
    """Layers of experts with norms."""

    def __init__(self, layers, *sizes):
        super().__init__()
        width = sizes[1]
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(layers))
        self.experts = nn.ModuleList(Experts(*sizes) for _ in range(layers))

    def forward(self, x):
        for norm, experts in zip(self.norms, self.experts, strict=True):
            x = x + experts(norm(x))
        return x


def prepare(device, repaired):
    number, width, inner, layers, tokens = (
        (32, 2048, 2048, 4, 1024) if device == "cuda" else (4, 8, 16, 2, 16)
    )
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    with torch.device(device):
        model = Net(layers, number, width, inner, repaired).to(dtype).eval()
    return model, torch.randn(tokens, width, device=device, dtype=dtype)


@torch.inference_mode()
def run(state, steps, repaired):
    model, x = state
    for _ in range(steps):
        y = model(x)
    return y.float().square().mean()


main(prepare, run, steps=15)
