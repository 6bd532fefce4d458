"""Records operators as torch's dispatcher hands them to a mode, and writes what they computed."""

from __future__ import annotations

import gzip
import importlib
import json
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from nsight_prof.targets.value_profiler.hashes import COUNTED, WHOLE, Hashes, Slot
from nsight_prof.targets.value_profiler.operators import Operator, describe
from nsight_prof.targets.value_profiler.places import Place, Places, Stack
from nsight_prof.targets.value_profiler.reads import Reads, storage_of

TENSORS = 16
"""Tensors of a call whose values are compared; of calls with more none are."""
MEASURED_CALLS, MEASURED_ELEMENTS = 8, 1024
"""Calls of an operator in which zeros are counted, and the size of a tensor from which on."""
LAYER = torch._C._disabled_torch_dispatch_impl
COMPOSITE = torch._C.DispatchKey.CompositeImplicitAutograd
QUIET = ("torch.", "tqdm.", "multiprocessing.")
"""Packages whose threads read no results."""
KNOWN_LIBRARIES = (
    "/torch/",
    "/torchvision/",
    "/torchaudio/",
    "/functorch/",
    "/nvidia/",
    "/triton/",
)
Row = tuple[str, str, Place | None, tuple[Any, ...], tuple[Any, ...]]
Hash = tuple[int, ...]
Values = tuple[tuple[Slot, ...], ...]


class Call:
    """One call: slots and times whose numbers are read once all is done."""

    def __init__(self, row: int, stack: int) -> None:
        self.row, self.stack = row, stack
        self.timer: Timer = Timer(None)
        self.scalars = self.returned = 0
        self.inputs: Values | None = None
        self.results: Values | None = None
        self.zeros: list[tuple[Slot, int] | None] = []
        self.zero_rows: list[tuple[Slot, int] | None] = []


class Timer:
    """The time of one call: between events of the GPU that it is for, else by the host's clock."""

    def __init__(self, device: Any) -> None:
        self._events = None
        if device is not None:
            self._stream = torch.cuda.current_stream(device)
            self._events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
            self._events[0].record(self._stream)
        self._start = time.perf_counter_ns()

    def stop(self) -> None:
        """End it."""
        if self._events is not None:
            self._events[1].record(self._stream)
        self._took: int = time.perf_counter_ns() - self._start

    def read(self) -> int:
        """Return nanoseconds."""
        if self._events is None:
            return self._took
        return int(self._events[0].elapsed_time(self._events[1]) * 1e6)


_frames: Any = importlib.import_module("torch._C._dynamo.eval_frame")
_is_hidden = hasattr(_frames, "set_code_exec_strategy") and hasattr(_frames, "_FrameExecStrategy")


class Recorder(TorchDispatchMode):  # type: ignore[misc, unused-ignore]
    """Records calls until a limit; between `start` and `pause` alone, in this process alone."""

    supports_higher_order_operators = True

    def __init__(self, out: Path, script: Path, operators: int, seconds: float) -> None:
        """Record nothing yet. `operators` and `seconds` end the recording."""
        super().__init__()
        self.out = out.absolute()  # the script may change the folder
        self.calls: list[Call] = []
        self.ended = ""
        self._limits = operators, seconds
        self._places = Places(script, threading.get_ident())
        self._hashes, self._reads = Hashes(), Reads()
        self._operators: dict[Any, Operator] = {}
        self._plain: dict[type, bool] = {}
        self._rows: dict[Row, int] = {}
        self._facts: list[dict[str, Any]] = []
        self._stacks: dict[Stack, int] = {}
        self._scalars: dict[str, int] = {}
        self._shares: dict[int, tuple[float | None, int | None]] = {}
        self._missed: Counter[str] = Counter()
        # Equal inputs give equal results, also where a GPU adds in another order each time.
        self._first: dict[tuple[int, int | None], tuple[Hash, ...]] = {}
        self._same: dict[Hash, Hash] = {}
        self._error = ""
        self._began = self._took = 0.0
        self._pid, self._active, self._entered = os.getpid(), False, False
        os.register_at_fork(after_in_child=self._forked)

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Let torch.compile compile, as it does without a mode."""
        return True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Spare the program the import of torch._dynamo: what it would do is done below."""
        return not _is_hidden

    def start(self) -> None:
        """Begin to record, or go on; nothing in a child process and after a limit."""
        if os.getpid() != self._pid or self._active or self.ended:
            return
        if not self._entered:
            self.__enter__()
        self._active = self._entered = True

    def pause(self, is_final: bool = False) -> None:
        """Record nothing until the next start; `is_final`: the program has come to its end."""
        if not self._active:
            return
        self._active = False
        self._shares |= self._reads.settle(is_final)
        from torch.utils._python_dispatch import _get_current_dispatch_mode

        if _get_current_dispatch_mode() is self:
            self.__exit__(None, None, None)
            self._entered = False

    def stop(self, is_final: bool = False) -> None:
        """End the recording and write it, once; `is_final`: the program has come to its end."""
        if os.getpid() != self._pid or self._pid < 0:
            return
        self.ended = self.ended or ("program" if self._active else "profiler-api")
        self.pause(is_final)
        self._pid = -1
        self._write()

    def take(self, tensor: Any) -> None:
        """A method of a tensor gives its elements to the program."""
        if self._active and self._is_plain(tensor) and tensor.layout is torch.strided:
            self._reads.read(tensor, None)

    def leave(self, tensor: Any) -> None:
        """A method of a tensor gives the program its memory."""
        if self._active and self._is_plain(tensor) and tensor.layout is torch.strided:
            self._reads.leave(tensor)

    def thread(self, thread: threading.Thread) -> None:
        """Another thread of the program begins, which may read what this one computed."""
        target = getattr(thread, "_target", None) or type(thread)
        if not self.ended and not str(target.__module__).startswith(QUIET):
            self._missed["threads"] += 1

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Call the operator as if nobody looked, and look."""
        kwargs = kwargs or {}
        if not self._active:
            if self.ended:
                self._missed["beyond"] += 1
            return func(*args, **kwargs)
        try:
            looked = _Looked(self, func, args, kwargs)
        except Exception as error:
            self._fail(error)
            return func(*args, **kwargs)
        if looked.is_composite:
            with self:
                return func._op_dk(COMPOSITE, *args, **kwargs)
        result = func(*args, **kwargs)
        try:
            looked.done(result)
        except Exception as error:
            self._fail(error)
        return result

    def _forked(self) -> None:
        self._active = False

    def _fail(self, error: BaseException) -> None:
        """Keep the first error; the program goes on."""
        self._missed["error"] += 1
        self._error = self._error or f"{type(error).__name__}: {str(error)[:300]}"

    def _is_plain(self, tensor: Any) -> bool:
        kind = type(tensor)
        known = self._plain.get(kind)
        if known is None:
            known = self._plain[kind] = kind.__torch_dispatch__ is LAYER
        return known

    def describe(self, func: Any) -> Operator:
        """Return what the schema of an operator says."""
        known = self._operators.get(func)
        if known is None:
            known = self._operators[func] = describe(func)
        return known

    def miss(self, reason: str, tensors: Iterable[Any]) -> None:
        """Count a call that is not recorded; what it reads is not known."""
        self._missed[reason] += 1
        for tensor in tensors:
            if self._is_plain(tensor) and tensor.layout is torch.strided:
                self._reads.leave(tensor)

    def obstacle(self, func: Any, tensors: list[Any]) -> str:
        """Return why a call cannot be recorded; empty where it can."""
        if not isinstance(func, torch._ops.OpOverload):
            return "higher-order"
        if not all(map(self._is_plain, tensors)):
            return "subclass"
        if any(tensor.layout is not torch.strided for tensor in tensors):
            return "sparse or nested"
        if torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing():
            return "captured"
        return ""

    def row(self, key: Row, is_random: bool, is_sampled: bool) -> int:
        """Return the number of a row."""
        number = self._rows.setdefault(key, len(self._rows))
        if number == len(self._facts):
            repeats = not is_random and key[0].startswith("aten::")  # others may keep a state
            facts = {"random": is_random, "sampled": is_sampled, "repeats": repeats, "calls": 0}
            self._facts.append(facts)
        self._facts[number]["calls"] += 1
        return number

    def is_measured(self, row: int) -> bool:
        """Whether zeros are counted in this call of the row."""
        return int(self._facts[row]["calls"]) <= MEASURED_CALLS

    def caller(self) -> tuple[str, Stack, int]:
        """Return the direction, the own frames, and their number."""
        task = torch._C._current_graph_task_id()
        stack, is_optimizer = self._places.here(task)
        direction = "backward" if task >= 0 else "optimizer" if is_optimizer else "forward"
        return direction, stack, self._stacks.setdefault(stack, len(self._stacks))

    def scalars(self, others: list[Any]) -> int:
        """Return a number that equal arguments share, of those that are no tensors."""
        return self._scalars.setdefault(repr(others), len(self._scalars))

    def values(self, tensors: list[Any]) -> Values | None:
        """Hash tensors; None where there are too many."""
        if len(tensors) > TENSORS:
            return None
        with torch.no_grad():
            return tuple(self._hashes.write(tensor) for tensor in tensors)

    def count_zeros(self, call: Call, tensors: list[Any], is_product: bool) -> None:
        """Let zeros of the inputs be counted, and rows of zeros of products."""
        with torch.no_grad():
            for tensor in tensors[:TENSORS]:
                count = tensor.numel()
                fits = MEASURED_ELEMENTS <= count <= COUNTED and len(tensors) <= TENSORS
                call.zeros.append((self._hashes.zeros(tensor), count) if fits else None)
                rows = fits and is_product and tensor.dim() > 1
                of = count // tensor.shape[-1] if rows else 0
                call.zero_rows.append((self._hashes.zero_rows(tensor), of) if rows else None)

    def read(self, tensors: Iterable[Any], row: int, some: int = -1, elements: int = 0) -> None:
        """Note what a row reads; of number `some` of the tensors so many elements alone."""
        for at, tensor in enumerate(tensors):
            self._reads.read(tensor, row, elements if at == some else None)

    def add(self, call: Call, new: list[Any]) -> None:
        """Keep a call, whose results in storages of their own are `new`; end at a limit."""
        now = time.monotonic()
        self._began = self._began or now
        self._took = now - self._began
        self._reads.add(len(self.calls), new)
        self.calls.append(call)
        operators, seconds = self._limits
        if len(self.calls) >= operators or self._took >= seconds:
            self.ended = "operators" if len(self.calls) >= operators else "seconds"
            self._active = False
            self._shares |= self._reads.settle(is_final=False)

    def _write(self) -> None:
        """Write the file whole or not at all."""
        self.out.parent.mkdir(parents=True, exist_ok=True)
        partial = self.out.with_name(f".{self.out.name}")
        with gzip.open(partial, "wt", encoding="utf-8", compresslevel=6) as stream:
            for line in self._lines():
                stream.write(json.dumps(line, separators=(",", ":")) + "\n")
        os.replace(partial, self.out)

    def _lines(self) -> Iterable[dict[str, Any]]:
        """Give the lines of the file; what the GPU cannot tell any more is null."""
        slots: dict[Any, list[int]] | None = None
        try:
            if torch.cuda.is_initialized():
                torch.cuda.synchronize()
            slots = self._hashes.read()
        except Exception as error:
            self._fail(error)
        yield {
            "kind": "start", "version": 1, "pid": os.getpid(), "torch": str(torch.__version__),
            "device": self._device(), "whole": WHOLE,
        }  # fmt: skip
        for stack in self._stacks:
            yield {"kind": "stack", "frames": stack}
        for key, facts in zip(self._rows, self._facts, strict=True):
            name, direction, place, inputs, results = key
            yield {
                "kind": "operator", "operator": name, "direction": direction, "place": place,
                "inputs": inputs, "results": results,
                "random": facts["random"], "sampled": facts["sampled"],
            }  # fmt: skip
        self._missed |= Counter(libraries=self._libraries(), compiled=self._compiled())
        is_unseen = any(self._missed[name] for name in ("threads", "libraries", "compiled"))
        numbers: dict[Any, int] = {}
        for at, call in enumerate(self.calls):
            share, reader = self._shares.get(at, (None, None))
            if share != 1 and is_unseen:
                share = None
            yield self._line(call, slots, numbers) | {"read": share, "reader": reader}
        yield {
            "kind": "end", "operators": len(self.calls), "seconds": round(self._took, 3),
            "ended": self.ended, "not_recorded": dict(+self._missed), "error": self._error,
        }  # fmt: skip

    def _line(
        self, call: Call, slots: dict[Any, list[int]] | None, numbers: dict[Any, int]
    ) -> dict[str, Any]:
        def hashes(values: Values | None) -> tuple[Hash, ...] | None:
            if values is None or slots is None:
                return None
            read = (tuple(slots[device][at] for device, at in slot) for slot in values)
            return tuple(self._same.get(value, value) for value in read)

        def number(values: tuple[Hash, ...] | None, scalars: int) -> int | None:
            return None if values is None else numbers.setdefault((scalars, values), len(numbers))

        given, results = hashes(call.inputs), hashes(call.results)
        inputs = number(given, call.scalars)
        if given and results and self._facts[call.row]["repeats"]:
            first = self._first.setdefault((call.row, inputs), results)
            self._same |= {
                now: then for now, then in zip(results, first, strict=True) if now != then
            }
            results = first

        def shares(counts: list[tuple[Slot, int] | None]) -> list[float | None]:
            return [
                None if at is None or slots is None else slots[at[0][0]][at[0][1]] / at[1]
                for at in counts
            ]

        try:
            took = call.timer.read()
        except Exception as error:
            self._fail(error)
            took = None
        return {
            "kind": "call", "operator": call.row, "stack": call.stack, "ns": took,
            "inputs": inputs,
            "results": number(results, call.returned),
            "zeros": shares(call.zeros), "zero_rows": shares(call.zero_rows),
        }  # fmt: skip

    def _device(self) -> str:
        devices = Counter(
            slot[0] for call in self.calls for value in call.inputs or () for slot in value[:1]
        )
        device = max(devices, key=devices.__getitem__, default=torch.device("cpu"))
        return torch.cuda.get_device_name(device) if device.type == "cuda" else str(device.type)

    @staticmethod
    def _compiled() -> int:
        utils = sys.modules.get("torch._dynamo.utils")
        return int(utils.counters["frames"]["ok"]) if utils is not None else 0

    @staticmethod
    def _libraries() -> int:
        """Count C++ libraries that are neither torch's nor of its family, and use its tensors."""
        try:
            lines = Path("/proc/self/maps").read_text("utf-8").splitlines()
        except (OSError, UnicodeDecodeError):
            return 0
        files = {line.split(maxsplit=5)[-1] for line in lines if line.endswith(".so")}
        found = 0
        for file in files:
            if not any(name in file for name in KNOWN_LIBRARIES):
                try:
                    found += b"libc10.so" in Path(file).read_bytes()
                except OSError:
                    continue
        return found


if _is_hidden:  # torch.compile leaves alone what runs between the operators of a program
    _skip = _frames._FrameAction.SKIP
    _frames.set_code_exec_strategy(
        Recorder.__torch_dispatch__.__code__, _frames._FrameExecStrategy(_skip, _skip)
    )


class _Looked:
    """One call of an operator: what is to be done before it and behind it."""

    def __init__(self, recorder: Recorder, func: Any, args: Any, kwargs: Mapping[str, Any]) -> None:
        self._recorder, self._func = recorder, func
        tensors: list[Any] = []
        self._others: list[Any] = []
        _sort(args, tensors, self._others)
        _sort(kwargs.values(), tensors, self._others)
        self._tensors, self._reason = tensors, recorder.obstacle(func, tensors)
        self._is_silent, self.is_composite = bool(self._reason), False
        if self._is_silent:
            return
        operator = self._operator = recorder.describe(func)
        self.is_composite = operator.is_composite
        if operator.is_view or operator.is_composite:
            self._is_silent = True
            return
        self._is_random = operator.draws(args, kwargs)
        written: list[Any] = []
        for at in operator.written:
            given = args[at] if isinstance(at, int) and at < len(args) else kwargs.get(str(at))
            _sort([given], written, [])
        names = {id(tensor) for tensor in written}
        self._written = written
        alone = operator.writes_alone
        self._read = [tensor for tensor in tensors if not (alone and id(tensor) in names)]
        self._shapes = _shapes(self._read)  # an operator may change its own
        self._inputs = recorder.values(self._read) if written and not alone else None
        device = next((tensor.device for tensor in tensors if tensor.is_cuda), None)
        if device is None and not tensors:
            given = kwargs.get("device")
            device = given if given is not None and torch.device(given).type == "cuda" else None
        self._timer = Timer(device)

    def done(self, result: Any) -> None:
        """Look at what it returned."""
        recorder = self._recorder
        results: list[Any] = []
        if self._reason:
            recorder.miss(self._reason, self._tensors)
            return
        if self._is_silent:
            return
        self._timer.stop()
        _sort([result], results, [])
        results = results or self._written  # _foreach_add_ and its like return nothing
        if any(tensor.layout is not torch.strided for tensor in results):
            recorder.miss("sparse or nested", self._tensors)
            return
        storages = {storage_of(tensor)._cdata for tensor in self._tensors}
        new = [tensor for tensor in results if storage_of(tensor)._cdata not in storages]
        if self._operator.is_unwritten or (results and not new and not self._written):
            return  # nothing is computed
        direction, stack, number = recorder.caller()
        frame = stack[0] if stack else None
        key: Row = (self._operator.name, direction, frame, self._shapes, _shapes(results))
        is_sampled = any(tensor.numel() > WHOLE for tensor in (*self._read, *results))
        call = Call(recorder.row(key, self._is_random, is_sampled), number)
        call.timer, call.scalars = self._timer, recorder.scalars(self._others)
        call.inputs = self._inputs or recorder.values(self._read)
        is_late = any(tensor.is_cuda for tensor in self._tensors)  # copies to the host may be
        if not (is_late and any(not tensor.is_cuda for tensor in results)):
            call.results = recorder.values(results)
        if not results:
            call.returned = recorder.scalars([result])
        if recorder.is_measured(call.row):
            recorder.count_zeros(call, self._read, self._operator.is_product)
        source = self._operator.source
        some = -1 if source is None else source
        recorder.read(self._read, call.row, some, results[0].numel() if results else 0)
        recorder.add(call, new if not self._written else [])


def _sort(values: Iterable[Any], tensors: list[Any], others: list[Any]) -> None:
    """Take apart arguments, also those in lists, into tensors and all others."""
    for value in values:
        if isinstance(value, torch.Tensor):
            tensors.append(value)
        elif isinstance(value, (list, tuple)):
            others.append(len(value))
            _sort(value, tensors, others)
        else:
            others.append(value)


def _shapes(tensors: list[Any]) -> tuple[Any, ...]:
    return tuple((tuple(tensor.shape), str(tensor.dtype)[6:]) for tensor in tensors)
