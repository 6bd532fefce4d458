"""Says where the next words of a server's requests are to be kept, for each kind of layer's own pages, in Triton."""

import torch
import triton
import triton.language as tl
from common import main


@triton.jit
def slots_of_group(
    table, lengths, slots, requests, pages, size, BLOCK: tl.constexpr,
):  # fmt: skip
    request = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = request < requests
    place = tl.load(lengths + request, mask=mask, other=0)
    page = tl.load(table + request * pages + place // size, mask=mask, other=0)
    tl.store(slots + request, page * size + place % size, mask=mask)


@triton.jit
def slots_of_all(
    tables, lengths, slots, sizes, requests, pages, BLOCK: tl.constexpr,
):  # fmt: skip
    group = tl.program_id(1)
    request = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = request < requests
    size = tl.load(sizes + group)
    place = tl.load(lengths + request, mask=mask, other=0)
    at = (group * requests + request) * pages + place // size
    page = tl.load(tables + at, mask=mask, other=0)
    tl.store(slots + group * requests + request, page * size + place % size, mask=mask)


class SlotTables:
    """Pages that each request has in each group of layers, (groups, requests, pages)."""

    def __init__(self, tables, sizes, together, block=128):
        self.tables, self.sizes, self.together, self.block = tables, sizes, together, block
        self.on_device = torch.tensor(sizes, device=tables.device, dtype=torch.int32)

    def slots(self, lengths):
        """Return the slot of the next word of each request, (groups, requests)."""
        groups, requests, pages = self.tables.shape
        out = torch.empty(groups, requests, dtype=torch.int32, device=lengths.device)
        blocks = triton.cdiv(requests, self.block)
        if self.together:
            slots_of_all[(blocks, groups)](
                self.tables, lengths, out, self.on_device, requests, pages, BLOCK=self.block
            )
            return out
        for table, size, row in zip(self.tables, self.sizes, out, strict=True):
            slots_of_group[(blocks,)](table, lengths, row, requests, pages, size, BLOCK=self.block)
        return out


def prepare(device, repaired):
    cuda = device == "cuda"
    groups, requests, pages = (32, 512, 256) if cuda else (3, 10, 8)
    tables = torch.randint(10_000, (groups, requests, pages), device=device, dtype=torch.int32)
    sizes = [16 if group % 4 else 32 for group in range(groups)]
    lengths = torch.randint(16 * pages - 1000 if cuda else 16, (requests,), device=device)
    return SlotTables(tables, sizes, together=repaired), lengths.to(torch.int32)


def run(state, steps, repaired):
    tables, lengths = state
    total = torch.zeros((), device=lengths.device, dtype=torch.int64)
    words = lengths.clone()
    for _ in range(steps):
        total += tables.slots(words).sum()
        words += 1
    return total.double() / steps


main(prepare, run, steps=900)
