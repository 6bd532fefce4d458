"""Synthesises speech: what each sound is like is repeated for as many frames as the sound lasts."""

import torch
from common import main
from torch import nn


class Block(nn.Module):
    """Convolutions over time with a norm, as in FastSpeech."""

    def __init__(self, width, inner, taps):
        super().__init__()
        self.a = nn.Conv1d(width, inner, taps, padding=taps // 2)
        self.b = nn.Conv1d(inner, width, 1)
        self.norm = nn.LayerNorm(width)

    def forward(self, x):
        made = self.b(torch.relu(self.a(x.t()[None])))[0].t()
        return self.norm(x + made)


class Voice(nn.Module):
    """A large stack of blocks for sounds and a deep, narrow one for frames."""

    def __init__(self, sounds, width, narrow, depth):
        super().__init__()
        self.sounds = nn.Embedding(sounds, width)
        self.encoder = nn.Sequential(*(Block(width, 4 * width, 9) for _ in range(depth)))
        self.narrow = nn.Linear(width, narrow)
        self.pitch = nn.Embedding(64, narrow)
        self.decoder = nn.Sequential(*(Block(narrow, narrow, 3) for _ in range(2 * depth)))
        self.mels = nn.Linear(narrow, 80)

    def forward(self, ids, lengths, pitch, frames):
        x = self.narrow(self.encoder(self.sounds(ids)))
        x = torch.repeat_interleave(x, lengths, dim=0, output_size=frames)
        return self.mels(self.decoder(x + self.pitch(pitch)))


def prepare(device, repaired):
    width, narrow, depth, texts = (1024, 128, 6, 16) if device == "cuda" else (16, 8, 1, 2)
    voice = Voice(80, width, narrow, depth).to(device).eval()
    queue = []
    for _ in range(texts):
        ids, lengths = torch.randint(80, (96,)), torch.randint(1, 9, (96,))
        frames = int(lengths.sum())
        pitch = torch.randint(64, (frames,))
        queue.append((ids.to(device), lengths.to(device), pitch.to(device), frames))
    return voice, queue


@torch.inference_mode()
def run(state, steps, repaired):
    voice, queue = state
    total = 0
    for step in range(steps):
        ids, lengths, pitch, frames = queue[step % len(queue)]
        mel = voice(ids, lengths, pitch, frames if repaired else None)
        total = total + mel.square().mean()
    return total / steps


main(prepare, run, steps=100, warm=16)
