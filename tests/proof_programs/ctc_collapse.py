"""Recognises speech: an encoder scores characters for each frame, the best path becomes a text."""

import torch
from common import main
from torch import nn

BLANK = 0


class Encoder(nn.Module):
    """Halves the number of frames twice and lets a transformer look at them."""

    def __init__(self, mels, width, layers, characters):
        super().__init__()
        self.front = nn.Sequential(
            nn.Conv1d(mels, width, 3, 2, 1), nn.GELU(), nn.Conv1d(width, width, 3, 2, 1), nn.GELU()
        )
        block = nn.TransformerEncoderLayer(
            width, max(1, width // 64), 4 * width, 0.0, "gelu", batch_first=True, norm_first=True
        )
        self.blocks = nn.TransformerEncoder(block, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, characters)

    def forward(self, sound):
        return self.head(self.blocks(self.front(sound).transpose(1, 2)))


def prepare(device, repaired):
    batch, frames, width = (64, 4000, 512) if device == "cuda" else (2, 32, 16)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    encoder = Encoder(80, width, 4, 64).to(device, dtype).eval()
    return encoder, torch.randn(batch, 80, frames, device=device, dtype=dtype)


def texts_of(best):
    """Leave out repeated characters and blanks, recording by recording."""
    texts = []
    for path in best.tolist():
        text, before = [], BLANK
        for character in path:
            if character not in (before, BLANK):
                text.append(character)
            before = character
        texts.append(text)
    return texts


def lengths_of(best):
    """Do the same on the GPU: characters to the front of each row, and how many they are."""
    before = torch.nn.functional.pad(best[:, :-1], (1, 0), value=BLANK)
    kept = (best != before) & (best != BLANK)
    order = torch.argsort(kept.logical_not().byte(), dim=1, stable=True)
    return best.gather(1, order), kept.sum(1)


@torch.inference_mode()
def run(state, steps, repaired):
    encoder, sound = state
    number = 0
    for _ in range(steps):
        best = encoder(sound).argmax(2)
        if repaired:
            characters, lengths = lengths_of(best)
            number += lengths.sum()
        else:
            number += sum(map(len, texts_of(best)))
    return number


main(prepare, run, steps=12)
