"""Sums up talks: the mean of the vectors of all words of each talk, with a kernel in Triton."""

import torch
import triton
import triton.language as tl
from common import main


@triton.jit
def pool(
    words, means, talks, begins, ends, shares, width,
    WORDS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    piece = tl.program_id(0)
    talk = tl.load(talks + piece)
    begin, end = tl.load(begins + piece), tl.load(ends + piece)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    total = tl.zeros((WORDS, COLUMNS), tl.float32)
    for start in range(begin, end, WORDS):
        word = start + tl.arange(0, WORDS)
        at = word[:, None] * width + column[None, :]
        total += tl.load(words + at, mask=(word < end)[:, None], other=0.0).to(tl.float32)
    mean = tl.sum(total, axis=0) * tl.load(shares + talk)
    tl.atomic_add(means + talk * width + column, mean)


class Talks:
    """Words of all talks one after another, and the pieces of them that programs add up."""

    def __init__(self, lengths, width, longest, device, dtype):
        pieces, begin = [], 0
        for talk, length in enumerate(lengths):
            for start in range(0, length, longest or length):
                end = min(start + (longest or length), length)
                pieces.append((talk, begin + start, begin + end))
            begin += length
        made = torch.tensor(pieces, dtype=torch.int32, device=device)
        self.pieces = [column.contiguous() for column in made.unbind(1)]
        self.shares = 1 / torch.tensor(lengths, dtype=torch.float32, device=device)
        self.words = torch.randn(begin, width, device=device, dtype=dtype)

    def means(self):
        width = self.words.shape[1]
        found = torch.zeros(len(self.shares), width, device=self.words.device)
        columns = min(64, width)
        grid = (len(self.pieces[0]), width // columns)
        pool[grid](self.words, found, *self.pieces, self.shares, width, WORDS=32, COLUMNS=columns)
        return found


def prepare(device, repaired):
    talks, length, longest, width = (
        (1024, 160, 16_000, 512) if device == "cuda" else (5, 10, 300, 32)
    )
    lengths = [length // 2 + 37 * talk % length for talk in range(talks)]
    lengths[talks // 3] = longest
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    return Talks(
        lengths, width, (512 if device == "cuda" else 64) if repaired else None, device, dtype
    )


def run(state, steps, repaired):
    total = torch.zeros((), device=state.words.device)
    for _ in range(steps):
        total += state.means().square().mean()
    return total / steps


main(prepare, run, steps=3000)
