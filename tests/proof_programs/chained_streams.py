"""Normalises the channels of eight recordings, each on a stream of its own."""

import torch
from common import main


def prepare(device, repaired):
    count = 1 << 20 if device == "cuda" else 1 << 8
    recordings = [torch.randn(8, count, device=device) for _ in range(8)]
    streams = [torch.cuda.Stream() for _ in recordings] if device == "cuda" else []
    return recordings, streams


def run(state, steps, repaired):
    recordings, streams = state
    results = list(recordings)
    for _ in range(steps):
        if not streams:
            results = [torch.softmax(r, -1) for r in recordings]
            continue
        for i, stream in enumerate(streams):
            if i and not repaired:
                stream.wait_stream(streams[i - 1])
            with torch.cuda.stream(stream):
                results[i] = torch.softmax(recordings[i], -1)
    if streams:
        torch.cuda.synchronize()
    return sum(r.max() for r in results)


main(prepare, run, steps=60)
