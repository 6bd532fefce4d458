"""Shows a tower from places where nobody stood: density and colour of points along rays (NeRF)."""

import torch
from common import main
from torch import nn


class Waves:
    """Waves of each coordinate, with the coordinates themselves; columns beyond them are zeros."""

    def __init__(self, many, columns, device):
        self.pitches = 2.0 ** torch.arange(many, device=device)
        self.columns = columns

    def __call__(self, places, dtype):
        angles = (places[..., None] * self.pitches).flatten(-2)
        parts = [places, angles.sin(), angles.cos()]
        rest = self.columns - sum(part.shape[-1] for part in parts)
        if rest:
            parts.append(places.new_zeros(*places.shape[:-1], rest))
        return torch.cat(parts, -1).to(dtype)


class Field(nn.Module):
    def __init__(self, columns, width, depth):
        super().__init__()
        self.again = depth // 2
        sizes = [columns, *[width] * (depth - 1)]
        sizes[self.again] += columns
        self.layers = nn.ModuleList(nn.Linear(size, width) for size in sizes)
        self.last = nn.Linear(width, 4)

    def forward(self, waves):
        x = waves
        for at, layer in enumerate(self.layers):
            if at == self.again:
                x = torch.cat([x, waves], -1)
            x = torch.relu(layer(x))
        return self.last(x)

    @torch.no_grad()
    def widen(self, columns):
        """Give the layers that read waves more columns, with weights of zero."""
        for at in (0, self.again):
            old = self.layers[at]
            new = nn.Linear(old.in_features + columns, old.out_features)
            new.weight.zero_()[:, : old.in_features] = old.weight
            new.bias.copy_(old.bias)
            self.layers[at] = new


def prepare(device, repaired):
    rays, points, width, depth, many = (
        (4096, 64, 256, 6, 10) if device == "cuda" else (3, 4, 8, 4, 2)
    )
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    columns = 3 + 6 * many
    field = Field(columns, width, depth)
    wide = -(-columns // 8) * 8
    if repaired:
        field.widen(wide - columns)
    waves = Waves(many, wide if repaired else columns, device)
    torch.manual_seed(1)
    return (
        field.to(device, dtype).eval(),
        waves,
        torch.rand(4, rays * points, 3, device=device),
        points,
        dtype,
    )


@torch.inference_mode()
def run(state, steps, repaired):
    field, waves, places, points, dtype = state
    total = torch.zeros((), device=places.device)
    for step in range(steps):
        seen = field(waves(places[step % 4], dtype)).float().view(-1, points, 4)
        light = torch.sigmoid(seen[..., :3]) * torch.softmax(seen[..., 3:], 1)
        total += light.sum(1).square().mean()
    return total / steps


main(prepare, run, steps=500)
