"""Edits pictures with a diffusion transformer; a text encoder reads what shall be changed."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F


class Reader(nn.Module):
    """A transformer over the words of the prompt."""

    def __init__(self, words, width, layers):
        super().__init__()
        self.words = nn.Embedding(words, width)
        block = nn.TransformerEncoderLayer(
            width, max(1, width // 64), 4 * width, 0.0, "gelu", batch_first=True, norm_first=True
        )
        self.blocks = nn.TransformerEncoder(block, layers, enable_nested_tensor=False)

    def forward(self, tokens):
        return self.blocks(self.words(tokens))


class Painter(nn.Module):
    """A transformer over patches, which looks at the words in each layer."""

    def __init__(self, patch, width, layers):
        super().__init__()
        self.inside, self.outside = nn.Linear(patch, width), nn.Linear(width, patch)
        self.blocks = nn.ModuleList(
            nn.TransformerDecoderLayer(
                width,
                max(1, width // 64),
                4 * width,
                0.0,
                "gelu",
                batch_first=True,
                norm_first=True,
            )
            for _ in range(layers)
        )

    def forward(self, x, words):
        y = self.inside(x)
        for block in self.blocks:
            y = block(y, words)
        return self.outside(y)


class Pipeline(nn.Module):
    """Takes noise away from patches, step by step, as the prompt says."""

    def __init__(self, small):
        super().__init__()
        width, layers = (16, 1) if small else (1024, 6)
        self.reader = Reader(50 if small else 32000, width, layers * 2)
        self.painter = Painter(16, width, layers)

    def step(self, x, tokens, words=None):
        if words is None:
            words = self.reader(tokens)
        return x - 0.02 * self.painter(x, words)


def prepare(device, repaired):
    small = device != "cuda"
    dtype = torch.float32 if small else torch.bfloat16
    with torch.device(device):
        pipeline = Pipeline(small).to(dtype).eval()
    batch, patches, length = (2, 4, 3) if small else (16, 1024, 512)
    tokens = torch.randint(50, (batch, length), device=device)
    return pipeline, tokens, torch.randn(batch, patches, 16, device=device, dtype=dtype)


@torch.inference_mode()
def run(state, steps, repaired):
    pipeline, tokens, x = state
    words = pipeline.reader(tokens) if repaired else None
    for _ in range(steps):
        x = pipeline.step(x, tokens, words)
    return F.relu(x.float()).mean()


main(prepare, run, steps=12)
