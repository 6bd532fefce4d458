"""Makes mel spectrograms of speech and encodes them, as in front of a recogniser."""

import math

import torch
from common import main
from torch import nn

BINS, MELS, RATE = 257, 80, 16000


def mel(hertz):
    return 2595 * math.log10(1 + hertz / 700)


def filters():
    low, high = mel(20), mel(RATE / 2)
    edges = [low + (high - low) * i / (MELS + 1) for i in range(MELS + 2)]
    rows = []
    for left, middle, right in zip(edges, edges[1:], edges[2:], strict=False):
        row = []
        for k in range(BINS):
            at = mel(k * RATE / 2 / (BINS - 1))
            row.append(
                max(0.0, min((at - left) / (middle - left), (right - at) / (right - middle)))
            )
        rows.append(row)
    return torch.tensor(rows)


def prepare(device, repaired):
    batch, seconds = (64, 16) if device == "cuda" else (1, 1)
    encoder = nn.Sequential(
        nn.Conv1d(MELS, 512, 3, padding=1), nn.GELU(), nn.Conv1d(512, 512, 3, 2, 1), nn.GELU()
    )
    encoder = encoder.to(device, torch.bfloat16)
    speech = torch.randn(batch, seconds * RATE, device=device)
    return encoder, speech, torch.hann_window(512, device=device), filters().to(device)


@torch.inference_mode()
def run(state, steps, repaired):
    encoder, speech, window, ready = state
    for _ in range(steps):
        bank = ready if repaired else filters().to(speech.device)
        parts = torch.stft(speech, 512, 160, window=window, return_complex=True)
        mels = torch.einsum("mf,bft->bmt", bank, parts.abs())
        x = encoder(mels.clamp(min=1e-5).log().bfloat16())
    return x.float().mean()


main(prepare, run, steps=20)
