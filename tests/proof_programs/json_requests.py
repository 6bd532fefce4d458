"""Searches for pictures like a given one: requests with vectors come over the network as text."""

import json
import struct

import numpy as np
import torch
from common import main


def as_text(vectors):
    return json.dumps({"version": 1, "vectors": [[round(v, 6) for v in row] for row in vectors]})


def as_bytes(vectors):
    head = struct.pack("<II", len(vectors), len(vectors[0]))
    return head + np.asarray(vectors, np.float32).tobytes()


def from_text(message):
    return torch.tensor(json.loads(message)["vectors"])


def from_bytes(message):
    rows, width = struct.unpack_from("<II", message)
    return torch.frombuffer(bytearray(message[8:]), dtype=torch.float32).view(rows, width)


def prepare(device, repaired):
    pictures, width, asked = (1 << 18, 768, 64) if device == "cuda" else (200, 16, 3)
    index = torch.nn.functional.normalize(torch.randn(pictures, width, device=device), dim=1)
    requests = []
    for _ in range(6):
        rows = torch.randn(asked, width).mul(1e6).round().div(1e6).tolist()
        requests.append(as_bytes(rows) if repaired else as_text(rows))
    return index.bfloat16() if device == "cuda" else index, requests


@torch.inference_mode()
def run(state, steps, repaired):
    index, requests = state
    read = from_bytes if repaired else from_text
    total = 0
    for step in range(steps):
        vectors = read(requests[step % len(requests)]).to(index.device, index.dtype)
        scores, best = (vectors @ index.t()).topk(20, dim=1)
        total = total + scores.float().mean() + (best >= 0).float().mean()
    return total / steps


main(prepare, run, steps=60)
