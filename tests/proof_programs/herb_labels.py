"""Names dried herbs by pictures of any height and width, whose patches are packed one behind the other in a batch."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F


def places_of(height, width, device):
    """Row and column of each patch of a picture: (patches, 2)."""
    rows = torch.arange(height, device=device)
    cols = torch.arange(width, device=device)
    return torch.stack(torch.meshgrid(rows, cols, indexing="ij"), -1).flatten(0, 1)


class Places:
    def __init__(self, device, keep):
        self.device, self.keep, self.kept = device, keep, {}

    def of(self, sizes):
        """Places of patches of all pictures, one behind the other."""
        if not self.keep:
            return torch.cat([places_of(*size, self.device) for size in sizes])
        for size in set(sizes) - self.kept.keys():
            self.kept[size] = places_of(*size, self.device)
        return torch.cat([self.kept[size] for size in sizes])


class Namer(nn.Module):
    def __init__(self, patch, width, depth, kinds, limit):
        super().__init__()
        self.enter, self.last = nn.Linear(patch, width), nn.Linear(width, kinds)
        self.rows, self.cols = nn.Embedding(limit, width), nn.Embedding(limit, width)
        self.layers = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.GELU())
            for _ in range(depth)
        )

    def forward(self, patches, places, lengths, pictures):
        x = self.enter(patches) + self.rows(places[:, 0]) + self.cols(places[:, 1])
        for layer in self.layers:
            x = x + layer(x)
        seen = x.new_zeros(len(lengths), x.shape[1]).index_add_(0, pictures, x)
        return self.last(seen / lengths[:, None])


class Batch:
    def __init__(self, sizes, patch, device):
        self.sizes = sizes
        counts = torch.tensor([height * width for height, width in sizes])
        self.patches = torch.randn(int(counts.sum()), patch, device=device)
        self.lengths = counts.to(device)
        self.pictures = torch.arange(len(sizes)).repeat_interleave(counts).to(device)


def prepare(device, repaired):
    cuda = device == "cuda"
    pictures, patch, width, depth, kinds, limit = (
        (192, 768, 256, 4, 500, 12) if cuda else (5, 6, 8, 2, 3, 4)
    )
    torch.manual_seed(12)
    model = Namer(patch, width, depth, kinds, limit).to(device).eval()
    batches = []
    for _ in range(3):
        sizes = torch.randint(limit // 2, limit + 1, (pictures, 2)).tolist()
        batches.append(Batch([tuple(size) for size in sizes], patch, device))
    return model, Places(device, keep=repaired), batches


@torch.inference_mode()
def run(state, steps, repaired):
    model, places, batches = state
    total = torch.zeros((), device=batches[0].patches.device)
    for step in range(steps):
        batch = batches[step % 3]
        names = model(batch.patches, places.of(batch.sizes), batch.lengths, batch.pictures)
        total += F.softmax(names, 1).square().sum(1).mean()
    return total / steps


main(prepare, run, steps=100)
