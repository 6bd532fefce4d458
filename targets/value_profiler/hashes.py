"""Hashes of tensors, computed where they lie and written to slots of one buffer: no wait for a GPU.

The hash of a tensor is the sum of its elements' bits, each times an odd number of its place, modulo
2**64: equal values give equal hashes, and no order of additions changes them. Of more than
SAMPLE elements each k-th is taken so, and the sum of the bits of all (up to WHOLE) is a second one.
Nothing draws random numbers, and what a hash needs is freed at once.
"""

from __future__ import annotations

import math
from typing import Any

import torch

SAMPLE, WHOLE = 1 << 16, 1 << 26
"""Elements that are weighed one by one, and elements up to which all of them are added up."""
CHUNK = 1 << 12
"""Slots of a buffer."""
DIMENSIONS = tuple(range(64))
COUNTED = 1 << 26
"""Elements up to which zeros are counted."""
INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
Slot = tuple[Any, int]
"""A device and the number of the slot there."""


class Hashes:
    """Writes numbers about tensors to slots, which are read once all is done."""

    def __init__(self) -> None:
        self._chunks: dict[Any, list[Any]] = {}
        self._used: dict[Any, int] = {}
        self._weights: dict[Any, Any] = {}
        self._fitting: dict[tuple[Any, int], Any] = {}
        self._slots: dict[Any, tuple[Any, ...]] = {}

    def write(self, tensor: Any) -> tuple[Slot, ...]:
        """Return the slots with the hashes of a strided tensor; none where it has no elements."""
        if not tensor.numel():
            return ()
        bits = _bits(tensor)
        if bits.numel() <= SAMPLE:
            return (self._weigh(bits.reshape(-1)),)
        slots = (self._weigh(_sampled(bits).reshape(-1)),)
        return (*slots, self._sum(bits)) if bits.numel() <= WHOLE else slots

    def zeros(self, tensor: Any) -> Slot:
        """Return the slot with how many elements are zero."""
        return self._sum(tensor == 0)

    def zero_rows(self, tensor: Any) -> Slot:
        """Return the slot with how many rows, along the last dimension, hold zeros alone."""
        return self._sum((tensor == 0).all(dim=-1))

    def read(self) -> dict[Any, list[int]]:
        """Return the numbers of all slots of each device; waits for what is still computed."""
        return {
            device: torch.cat(chunks).tolist()[: self._used[device]]
            for device, chunks in self._chunks.items()
        }

    def _weigh(self, flat: Any) -> Slot:
        device = flat.device
        if device not in self._weights:
            self._weights[device] = _weights(device)
        count = flat.numel()
        weights = self._fitting.get((device, count))
        if weights is None:
            weights = self._fitting[device, count] = self._weights[device][:count]
        return self._sum(flat * weights)

    def _sum(self, values: Any) -> Slot:
        device, used = values.device, self._used.get(values.device, 0)
        chunks = self._chunks.setdefault(device, [])
        if used == CHUNK * len(chunks):
            with torch.inference_mode(False):
                chunks.append(torch.zeros(CHUNK, dtype=torch.int64, device=device))
                self._slots[device] = chunks[-1].unbind()
        out = self._slots[device][used % CHUNK]
        torch.sum(values, DIMENSIONS[: values.dim()], dtype=torch.int64, out=out)
        self._used[device] = used + 1
        return device, used


def _bits(tensor: Any) -> Any:
    """Return the elements as integers; what was expanded counts once."""
    if not tensor.is_contiguous():
        for dim, stride in enumerate(tensor.stride()):
            if stride == 0 and tensor.shape[dim] > 1:
                tensor = tensor.narrow(dim, 0, 1)
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    if tensor.is_neg():
        tensor = tensor.resolve_neg()
    return tensor.view(INTEGERS[tensor.element_size()])


def _sampled(bits: Any) -> Any:
    """Return each k-th element, of the longest dimensions first where they do not lie in a row."""
    if bits.is_contiguous():
        return bits.view(-1)[:: math.ceil(bits.numel() / SAMPLE) | 1]
    while bits.numel() > SAMPLE:
        dim = max(range(bits.dim()), key=lambda at: bits.shape[at])
        step = min(bits.shape[dim], math.ceil(bits.numel() / SAMPLE))
        bits = bits[(slice(None),) * dim + (slice(None, None, step),)]
    return bits


def _weights(device: Any) -> Any:
    """Return an odd number for each place: the finalizer of SplitMix64 (Steele et al. 2014)."""
    with torch.inference_mode(False):
        mixed = torch.arange(1, SAMPLE + 1, device=device) * -0x61C8864680B583EB
        for shift, factor in ((30, -0x40A7B892E31B1A47), (27, -0x6B2FB644ECCEEE15)):
            mixed = (mixed ^ (mixed >> shift)) * factor
        return (mixed ^ (mixed >> 31)) | 1
