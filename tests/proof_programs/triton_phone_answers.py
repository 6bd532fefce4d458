"""Answers calls to a hotline, a word for each call in a step: eight voices of a group look at the same words heard."""

import torch
import triton
import triton.language as tl
from common import main


@triton.jit
def voice_by_voice(
    q, k, v, parts, tops, sums, length, scale,
    VOICES: tl.constexpr, TILE: tl.constexpr, WORDS: tl.constexpr, SPAN: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    group, span = tl.program_id(0), tl.program_id(1)
    spans = tl.num_programs(1)
    column = tl.arange(0, SIZE)
    heard = group.to(tl.int64) * length * SIZE
    for voice in range(VOICES):
        query = tl.load(q + (group * VOICES + voice) * SIZE + column).to(tl.float32) * scale
        top = -float("inf")
        total = 0.0
        read = tl.zeros((SIZE,), tl.float32)
        for start in range(span * SPAN, (span + 1) * SPAN, WORDS):
            word = start + tl.arange(0, WORDS)
            at = heard + word[:, None] * SIZE + column[None, :]
            keys = tl.load(k + at).to(tl.float32)
            score = tl.sum(query[None, :] * keys, 1)
            higher = tl.maximum(top, tl.max(score, 0))
            share = tl.exp(score - higher)
            fade = tl.exp(top - higher)
            values = tl.load(v + at).to(tl.float32)
            read = read * fade + tl.sum(share[:, None] * values, 0)
            total = total * fade + tl.sum(share, 0)
            top = higher
        to = (group * spans + span) * VOICES + voice
        tl.store(parts + to * SIZE + column, read)
        tl.store(tops + to, top)
        tl.store(sums + to, total)


@triton.jit
def all_voices(
    q, k, v, parts, tops, sums, length, scale,
    VOICES: tl.constexpr, TILE: tl.constexpr, WORDS: tl.constexpr, SPAN: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    group, span = tl.program_id(0), tl.program_id(1)
    spans = tl.num_programs(1)
    column = tl.arange(0, SIZE)
    voice = tl.arange(0, TILE)
    there = voice < VOICES
    heard = group.to(tl.int64) * length * SIZE
    queries = tl.load(
        q + (group * VOICES + voice[:, None]) * SIZE + column[None, :],
        mask=there[:, None],
        other=0.0,
    )
    top = tl.full((TILE,), -float("inf"), tl.float32)
    total = tl.zeros((TILE,), tl.float32)
    read = tl.zeros((TILE, SIZE), tl.float32)
    for start in range(span * SPAN, (span + 1) * SPAN, WORDS):
        word = start + tl.arange(0, WORDS)
        at = heard + word[:, None] * SIZE + column[None, :]
        keys = tl.load(k + at)
        score = tl.dot(queries, tl.trans(keys)) * scale
        higher = tl.maximum(top, tl.max(score, 1))
        share = tl.exp(score - higher[:, None])
        fade = tl.exp(top - higher)
        values = tl.load(v + at)
        read = tl.dot(share.to(values.dtype), values, read * fade[:, None])
        total = total * fade + tl.sum(share, 1)
        top = higher
    to = (group * spans + span) * VOICES + voice
    tl.store(parts + to[:, None] * SIZE + column[None, :], read, mask=there[:, None])
    tl.store(tops + to, top, mask=there)
    tl.store(sums + to, total, mask=there)


class Listen:
    """Attention of one step in spans of the words heard, whose parts are weighed at the end."""

    def __init__(self, span, words, together):
        self.span, self.words, self.kernel = span, words, all_voices if together else voice_by_voice

    def __call__(self, q, k, v):
        groups, voices, size = q.shape
        spans = k.shape[1] // self.span
        parts = torch.empty(groups, spans, voices, size, device=q.device)
        tops, sums = torch.empty(2, groups, spans, voices, device=q.device)
        self.kernel[(groups, spans)](
            q, k, v, parts, tops, sums, k.shape[1], size**-0.5,
            VOICES=voices, TILE=16, WORDS=self.words, SPAN=self.span, SIZE=size, num_warps=4,
        )  # fmt: skip
        weights = (tops - tops.amax(1, keepdim=True)).exp()
        read = (parts * weights[..., None]).sum(1)
        return read / (sums * weights).sum(1)[..., None]


def prepare(device, repaired):
    cuda = device == "cuda"
    groups, voices, length, size, span, words = (
        (256, 8, 8192, 128, 1024, 64) if cuda else (3, 2, 64, 16, 32, 16)
    )
    dtype = torch.bfloat16 if cuda else torch.float32
    k, v = torch.randn(2, groups, length, size, device=device, dtype=dtype)
    q = torch.randn(4, groups, voices, size, device=device, dtype=dtype)
    return Listen(span, words, together=repaired), q, k, v


def run(state, steps, repaired):
    listen, q, k, v = state
    total = torch.zeros((), device=q.device)
    for step in range(steps):
        total += listen(q[step % 4], k, v).abs().mean()
    return total / steps


main(prepare, run, steps=800)
