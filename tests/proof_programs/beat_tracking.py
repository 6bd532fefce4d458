"""Finds the beats of songs: a network tells how probable a beat is in each frame, and the best way through tempi is found."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F


class Beats(nn.Module):
    """Dilated convolutions over a spectrogram; for each frame the score of each tempo."""

    def __init__(self, bands, width, depth, tempi):
        super().__init__()
        self.first = nn.Conv1d(bands, width, 3, padding=1)
        self.layers = nn.ModuleList(
            nn.Conv1d(width, width, 3, padding=2 ** (i % 6), dilation=2 ** (i % 6))
            for i in range(depth)
        )
        self.last = nn.Conv1d(width, tempi, 1)

    def forward(self, spectrum):
        x = F.elu(self.first(spectrum))
        for layer in self.layers:
            x = x + F.elu(layer(x))
        return self.last(x).float().log_softmax(1).transpose(1, 2)


class BestPath:
    """The most probable way through the tempi (Viterbi), frame by frame."""

    def __init__(self, tempi, device, at_once):
        tempo = torch.arange(tempi, device=device)
        self.change = -0.5 * (tempo[:, None] - tempo[None, :]).abs().float()
        self.tempi, self.at_once = tempi, at_once

    def advance(self, score):
        """Return the best score of each tempo in the next frame, and from which tempo it comes."""
        if self.at_once:
            return (score[:, :, None] + self.change).max(1)
        values, origins = [], []
        for tempo in range(self.tempi):
            value, origin = (score + self.change[:, tempo]).max(1)
            values.append(value)
            origins.append(origin)
        return torch.stack(values, 1), torch.stack(origins, 1)

    def follow(self, scores):
        score, came = scores[:, 0], []
        for frame in range(1, scores.shape[1]):
            value, origin = self.advance(score)
            score = value + scores[:, frame]
            came.append(origin)
        return score.amax(1), came


def prepare(device, repaired):
    songs, bands, frames, width, depth, tempi = (
        (512, 80, 192, 512, 12, 8) if device == "cuda" else (2, 8, 12, 8, 2, 4)
    )
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    beats = Beats(bands, width, depth, tempi).to(device, dtype).eval()
    spectra = torch.randn(3, songs, bands, frames, device=device).to(dtype)
    return beats, BestPath(tempi, device, at_once=repaired), spectra


@torch.inference_mode()
def run(state, steps, repaired):
    beats, path, spectra = state
    total = torch.zeros((), device=spectra.device)
    for step in range(steps):
        best, came = path.follow(beats(spectra[step % len(spectra)]))
        total += best.mean() + came[-1].float().mean()
    return total / steps


main(prepare, run, steps=45)
