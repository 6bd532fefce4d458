"""Who reads what operators returned, and how much of it, without keeping any of it alive."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

import torch

READS, LEAVES = ("numpy", "tolist", "__dlpack__"), ("data_ptr", "untyped_storage")
"""Methods by which the elements of a tensor are read without an operator, and those behind which
any of its storage may be; others call these."""
storage_of = torch.Tensor.untyped_storage


class Produced:
    """A result in a storage of its own: how much of it was read, and by which operators."""

    def __init__(self, call: int, weak: int, elements: int) -> None:
        self.call, self.weak, self.elements = call, weak, elements
        self.views: dict[tuple[Any, ...], int] = {}
        self.looked_up = 0
        self.readers: dict[int, int] = {}
        self.unknown = False

    @property
    def share(self) -> float:
        """Share of its elements that were read; views that overlap count each."""
        read = sum(self.views.values()) + self.looked_up
        return min(1.0, read / self.elements)


class Reads:
    """Results by their storage. A weak reference keeps no memory, and no other storage gets its
    address meanwhile."""

    def __init__(self) -> None:
        self._live: dict[int, Produced] = {}

    def add(self, call: int, results: list[Any]) -> None:
        """Begin to count who reads the results of a call."""
        for tensor in results:
            weak = storage_of(tensor)._weak_ref()
            known = self._live.get(weak)
            if known is not None or not tensor.numel():
                torch.UntypedStorage._free_weak_ref(weak)
                if known is not None:
                    known.unknown = True
                continue
            self._live[weak] = Produced(call, weak, tensor.numel())

    def read(self, tensor: Any, reader: int | None, looked_up: int | None = None) -> None:
        """Count a tensor as read by an operator, or `looked_up` elements of it alone; `reader` is
        None for a method of its."""
        produced = self._live.get(storage_of(tensor)._cdata)
        if produced is None:
            return
        if looked_up is not None and looked_up < tensor.numel():
            produced.looked_up += looked_up
        else:
            shape, stride = tensor.shape, tensor.stride()
            key = tensor.storage_offset(), tuple(shape), stride
            if key not in produced.views:
                count = tensor.numel()
                for size, step in zip(shape, stride, strict=True):
                    count //= size if step == 0 and size else 1
                produced.views[key] = count
        if reader is not None:
            produced.readers[reader] = produced.readers.get(reader, 0) + 1

    def leave(self, tensor: Any) -> None:
        """Note that elements of a tensor may be read unseen."""
        produced = self._live.get(storage_of(tensor)._cdata)
        if produced is not None:
            produced.unknown = True

    def settle(self, is_final: bool) -> dict[int, tuple[float | None, int | None]]:
        """Return for each call the greatest share of a result that was read, None where it may be
        read later, and who read it; counts anew afterwards. `is_final`: nothing is read later."""
        found: dict[int, tuple[float | None, int | None]] = {}
        for produced in self._live.values():
            is_gone = is_final or torch.UntypedStorage._expired(produced.weak)
            torch.UntypedStorage._free_weak_ref(produced.weak)
            share: float | None = produced.share
            if share != 1 and (produced.unknown or not is_gone):
                share = None
            reader = max(produced.readers, key=produced.readers.__getitem__, default=None)
            best = found.get(produced.call, (-1.0, None))[0]
            is_better = share is None or (best is not None and share > best)
            if share == 1 or (best != 1 and is_better):
                found[produced.call] = share, reader
        self._live.clear()
        return found


def watch(
    read: Callable[[Any], None], leave: Callable[[Any], None], start: Callable[[Any], None]
) -> None:
    """Let methods by which elements leave torch's operators say so, and threads that start."""
    for names, call in ((READS, read), (LEAVES, leave)):
        for name in names:
            setattr(torch.Tensor, name, _watched(getattr(torch.Tensor, name), call))
    threading.Thread.start = _watched(threading.Thread.start, start)  # type: ignore[method-assign]


def _watched(method: Any, call: Callable[[Any], None]) -> Any:
    @functools.wraps(method)
    def watched(self: Any, *args: Any, **kwargs: Any) -> Any:
        call(self)
        return method(self, *args, **kwargs)

    return watched
