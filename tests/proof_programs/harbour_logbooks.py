"""Makes vectors of entries in logbooks of harbours, long and short ones, with a small encoder."""

import torch
from common import main
from torch import nn


class Encoder(nn.Module):
    def __init__(self, words, width, heads, depth):
        super().__init__()
        self.words = nn.Embedding(words, width)
        layer = nn.TransformerEncoderLayer(
            width, heads, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)

    def forward(self, entries, there):
        x = self.layers(self.words(entries), src_key_padding_mask=~there)
        return (x * there[..., None]).sum(1) / there.sum(1, keepdim=True)


class Logbook:
    """Entries, tensors of words of any length on the GPU, which are encoded in batches."""

    def __init__(self, entries, batch, by_length):
        self.entries, self.batch, self.by_length = entries, batch, by_length

    def order(self):
        numbers = list(range(len(self.entries)))
        if self.by_length:
            numbers.sort(key=lambda number: len(self.entries[number]))
        return numbers

    def batches(self):
        numbers = self.order()
        for begin in range(0, len(numbers), self.batch):
            some = numbers[begin : begin + self.batch]
            padded = nn.utils.rnn.pad_sequence([self.entries[at] for at in some], batch_first=True)
            yield some, padded, padded > 0

    def encoded(self, encoder, width):
        device = self.entries[0].device
        vectors = torch.zeros(len(self.entries), width, device=device)
        for some, padded, there in self.batches():
            vectors[torch.tensor(some, device=device)] = encoder(padded, there).float()
        return vectors


def prepare(device, repaired):
    cuda = device == "cuda"
    count, longest, batch = (1024, 1024, 32) if cuda else (9, 12, 3)
    sizes = (20000, 768, 12, 6) if cuda else (30, 8, 2, 1)
    dtype = torch.bfloat16 if cuda else torch.float32
    torch.manual_seed(7)
    encoder = Encoder(*sizes).to(device, dtype).eval()
    lengths = (4 + torch.rand(count) ** 4 * (longest - 4)).long().tolist()
    entries = [torch.randint(1, sizes[0], (length,), device=device) for length in lengths]
    return encoder, Logbook(entries, batch, by_length=repaired), sizes[1]


@torch.no_grad()
def run(state, steps, repaired):
    encoder, logbook, width = state
    total = torch.zeros((), device=logbook.entries[0].device)
    for _ in range(steps):
        vectors = logbook.encoded(encoder, width)
        total += (vectors[:-1] * vectors[1:]).mean()
    return total / steps


main(prepare, run, steps=2, warm=1)
