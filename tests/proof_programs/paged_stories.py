"""Tells many stories at a time, word by word: keys and values lie in pages that stories get as they grow."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F

PAGE = 16


class Pages:
    """Which pages each story has: lists on the host, and (repaired) a table of them that stays on the GPU."""

    def __init__(self, stories, most, device, resident):
        self.lists = [[] for _ in range(stories)]
        self.most, self.device, self.used = most, device, 0
        self.table = (
            torch.zeros(stories, most, dtype=torch.long, device=device) if resident else None
        )

    def grow(self, lengths):
        """Give a page to each story whose last one is full; return the table of all pages on the GPU."""
        fresh = []
        for story, length in enumerate(lengths):
            if length // PAGE == len(self.lists[story]):
                self.lists[story].append(self.used)
                fresh.append((story, length // PAGE, self.used))
                self.used += 1
        if self.table is None:
            rows = [pages + [0] * (self.most - len(pages)) for pages in self.lists]
            return self.send(torch.tensor(rows))
        if fresh:
            story, place, page = self.send(torch.tensor(fresh)).unbind(1)
            self.table[story, place] = page
        return self.table

    def send(self, tensor):
        if self.device != "cuda":
            return tensor
        return tensor.pin_memory().to(self.device, non_blocking=True)


class Teller(nn.Module):
    """A layer that attends to what lies in the pages."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x, keys, values, table, lengths):
        q, k, v = self.qkv(x).view(len(x), 3, self.heads, -1).unbind(1)
        page, place = table.gather(1, lengths[:, None] // PAGE)[:, 0], lengths % PAGE
        keys[page, place], values[page, place] = k, v
        there = torch.arange(table.shape[1] * PAGE, device=x.device) <= lengths[:, None]
        k, v = keys[table].flatten(1, 2), values[table].flatten(1, 2)
        mask = there[:, None, None]
        mixed = F.scaled_dot_product_attention(
            q[:, :, None], k.transpose(1, 2), v.transpose(1, 2), mask
        )
        return x + self.out(mixed.flatten(1))


def prepare(device, repaired):
    stories, most, width, heads, depth = (
        (384, 48, 128, 2, 2) if device == "cuda" else (4, 4, 16, 2, 2)
    )
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    layers = nn.ModuleList(Teller(width, heads) for _ in range(depth)).to(device, dtype).eval()
    shape = depth, 2, stories * most, PAGE, heads, width // heads
    return layers, torch.zeros(shape, device=device, dtype=dtype), (stories, most, width, device)


@torch.inference_mode()
def run(state, steps, repaired):
    layers, cache, (stories, most, width, device) = state
    pages = Pages(stories, most, device, resident=repaired)
    ages = [7 * story % PAGE for story in range(stories)]
    for age in range(PAGE):  # pages of what was told before
        pages.grow([min(age, last) for last in ages])
    lengths = torch.tensor(ages, device=device)
    generator = torch.Generator(device).manual_seed(3)
    words = torch.randn(16, stories, width, device=device, dtype=cache.dtype, generator=generator)
    total = torch.zeros((), device=device)
    for step in range(steps):
        x = words[step % 16]
        table = pages.grow([age + step for age in ages])
        for layer, (keys, values) in zip(layers, cache, strict=True):
            x = layer(x, keys, values, table, lengths)
        lengths = lengths + 1
        total += x.float().square().mean()
    return total / steps


main(prepare, run, steps=700, small=20)
