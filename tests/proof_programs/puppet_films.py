"""Makes films of puppets out of noise: patches of all frames look at each other and at the words of a script."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x, mask):
        q, k, v = self.qkv(self.norms[0](x)).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = x + self.out(seen.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norms[1](x))))


class Maker(nn.Module):
    """Films as patches (films, patches, width), behind which stand words (films, words, width)."""

    def __init__(self, width, heads, depth, trims):
        super().__init__()
        self.trims = trims
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(depth))

    def mask(self, patches, there):
        """Who may look at whom: nobody at words that only fill up (films, 1, all, all)."""
        films, count, _ = patches.shape
        seen = torch.cat((there.new_ones(films, count), there), 1)
        return seen[:, None, None, :].repeat(1, 1, seen.shape[1], 1)

    def forward(self, patches, words, there, length):
        if self.trims:
            x, mask = torch.cat((patches, words[:, :length]), 1), None
        else:
            x, mask = torch.cat((patches, words), 1), self.mask(patches, there)
        for block in self.blocks:
            x = block(x, mask)
        return x[:, : patches.shape[1]]


def prepare(device, repaired):
    cuda = device == "cuda"
    patches, words, length, sizes = (
        (8064, 128, 96, (1024, 16, 3)) if cuda else (8, 4, 3, (8, 2, 2))
    )
    dtype = torch.bfloat16 if cuda else torch.float32
    torch.manual_seed(15)
    maker = Maker(*sizes, trims=repaired).to(device, dtype).eval()
    film = torch.randn(1, patches, sizes[0], device=device, dtype=dtype)
    script = torch.randn(1, words, sizes[0], device=device, dtype=dtype)
    there = (torch.arange(words, device=device) < length)[None]
    return maker, film, script, there, length


@torch.inference_mode()
def run(state, steps, repaired):
    maker, film, script, there, length = state
    total = torch.zeros((), device=film.device)
    x = film
    for _ in range(steps):
        x = film + 0.1 * maker(x, script, there, length)
        total += x.float().square().mean()
    return total / steps


main(prepare, run, steps=30)
