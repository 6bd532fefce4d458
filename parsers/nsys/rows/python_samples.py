"""Stacks of Python threads that nsys noted while the program ran (`--python-sampling=true`).

Each is an NVTX mark whose payload is the stack; in an SQLite export it stands in
NVTX_EVENTS.binaryData, which needs --include-blobs. After the header of payloads come, in nsys
2025.3.1, the id of the thread state as a 64-bit number, the state and the depth as 32-bit ones; in
2023.4.4 flags, kind and depth as 32-bit numbers and 4 bytes of padding. Then come the frames,
innermost first: the string ids of function and file as 64-bit numbers, and the line as a 32-bit one
with padding. In 2025.3.1 the mark is of the thread that was sampled; in 2023.4.4 of the sampler's
own, and its category numbers the Python threads of the process from 1, the main thread.
"""

from __future__ import annotations

import html
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from nsight_prof.parsers.nsys.sqlite.database import Array, Database
from nsight_prof.parsers.nsys.sqlite.schema import NVTX, read_strings

MARK = 34
_HEADER = struct.Struct("<4Q")  # domain, schema, size and offset of the payload
_HEAD, _FRAME = struct.Struct("<8x2I"), struct.Struct("<QQI4x")
_DOMAINS = ("Python Periodic Sampling", "Python Backtrace")
_LONGEST = 1 << 16  # bytes of a payload
_DEEPEST = (_LONGEST - _HEAD.size) // _FRAME.size
_AT_ONCE = 20_000  # rows
_TID, _PID = 0xFFFFFF, 24
_NO_LINE = 0xFFFFFFFF
LIBRARY = re.compile(
    r"/lib(?:64)?/python[\d.]+/|/(?:site|dist)-packages/|/torchinductor_[^/]+/|^<|^$"
)
"""Files of the interpreter, of installed packages and of compilers: not the program's own."""
WORK = (
    (
        "tuning",
        re.compile(r"/triton/runtime/autotuner\.py:(?:_bench|benchmark)|/triton/testing\.py:"),
    ),
    (
        "compiling",
        re.compile(
            r"/torch/_dynamo/convert_frame\.py:(?!<)|/torch/_inductor/(?:compile_fx|async_compile)\.py:"
            r"\w*compile|/triton/runtime/jit\.py:_do_compile|/triton/compiler/compiler\.py:compile"
            r"|/numba/core/compiler\.py:(?!<)|/jax/_src/compiler\.py:(?!<)"
            r"|/torch/(?:jit/_trace|fx/_symbolic_trace|export/_trace)\.py:(?!<)|/torch/utils/cpp_extension\.py:"
        ),
    ),
    (
        "profiling",
        re.compile(
            r"/torch/(?:autograd/)?profiler/?\w*\.py:(?!emit_nvtx|range_|<)|/(?:cProfile|profile|tracemalloc"
            r"|trace|bdb)\.py:(?!<)|/line_profiler/"
        ),
    ),
    (
        "watching operations",
        re.compile(
            r"/torch/utils/(?:flop_counter|_python_dispatch|_device|_debug\w*|module_tracker)\.py:(?!<)"
            r"|^(?!.*/torch/(?:distributed|nested|_dynamo|_inductor|_subclasses|fx)/).*"
            r":__torch_(?:dispatch|function)__$",
            re.MULTILINE,
        ),
    ),
    (
        "memory statistics",
        re.compile(
            r"/torch/cuda/memory\.py:(?:memory_\w+|max_memory\w+|mem_get_info|_recurse_add_to_result"
            r"|reset_\w+)|/pynvml"
        ),
    ),
    (
        "checking arguments",
        re.compile(
            r"/torch/distributions/constraints\.py:check|/torch/distributions/distribution\.py:"
            r"(?:__init__|_validate_sample)|/torch/autograd/gradcheck\.py:|/(?:typeguard|beartype|jaxtyping)/"
            r"|/torch/testing/_comparison\.py:"
        ),
    ),
    ("updating one by one", re.compile(r"/torch/optim/\w+\.py:_single_tensor_")),
    ("printing", re.compile(r"/torch/_tensor_str\.py:")),
    ("emptying the cache", re.compile(r"/torch/cuda/memory\.py:empty_cache")),
    ("convolving", re.compile(r"/torch/nn/modules/conv\.py:_conv_forward")),
    (
        "computing again",
        re.compile(
            r"/torch/utils/checkpoint\.py:(?:unpack_hook|recompute_fn|backward)|"
            r"/torch/distributed/algorithms/_checkpoint/\S+:recompute_fn"
        ),
    ),
    ("checkpointing", re.compile(r"/torch/utils/checkpoint\.py:checkpoint$", re.MULTILINE)),
    ("loading data", re.compile(r"/torch/utils/data/(?:dataloader|_utils/\w+)\.py:(?!<)")),
    (
        "files",
        re.compile(
            r"/torch/serialization\.py:(?:load|save|_(?:legacy_)?(?:load|save)\w*)\b|/safetensors/\S+:"
            r"(?:load|save)\w*|/numpy/lib/\w+\.py:(?:load|save\w*)\b|/pandas/io/"
        ),
    ),
    (
        "copying networks",
        re.compile(
            r"/copy\.py:deepcopy|/torch/nn/modules/module\.py:(?:state_dict|_save_to_state_dict|"
            r"load_state_dict|_load_from_state_dict|_apply|to|cuda|cpu)$",
            re.MULTILINE,
        ),
    ),
    (
        "noting stacks",
        re.compile(r"/torch/fx/traceback\.py:format_stack|/traceback\.py:(?:format|extract)_stack"),
    ),
    (
        "logging",
        re.compile(
            r"/logging/__init__\.py:|/warnings\.py:|/torch/utils/tensorboard/|/(?:wandb|tensorboardX|mlflow|rich|loguru)/(?!\S+:<module>)"
            r"|/tqdm/|/(?:matplotlib|seaborn|plotly)/(?!\S+:<module>)"
        ),
    ),
    ("capturing graphs", re.compile(r"/torch/cuda/graphs\.py:(?:__enter__|__exit__|capture_)")),
    (
        "computing on the host",
        re.compile(
            r"/(?:numpy|scipy|pandas|sklearn|PIL|cv2|librosa|skimage|nltk)/(?!\S+:<module>)"
            r"|/transformers/\S*tokenization\w*\.py:"
        ),
    ),
)
"""Work of libraries that has a remedy of its own, by `file:function` of a frame (PyTorch 2.11,
Triton 3.6, Numba 0.61, JAX 0.6); the first that fits counts. `<module>` is an import, no work."""


@dataclass(frozen=True)
class Frame:
    """A place in the source: line from 1, 0 where it is not known."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        """Return `file:line function`."""
        return f"{self.file}:{self.line} {self.function}"


@dataclass(frozen=True)
class StackEnd:
    """Where a stack ends: the innermost frame of the program's own code, and the innermost of all.

    Without a frame of its own, both are the innermost. `work` is the work of a library that the
    stack passes through (WORK); empty for none. `callers` are the program's own frames around
    `of_program`, innermost first; of a work of a library those that asked for it, `of_program`
    itself where no code of the program is within that work.
    """

    of_program: Frame
    inner: Frame
    work: str = ""
    callers: tuple[Frame, ...] = ()


@dataclass
class PythonSamples:
    """Samples by time (ns from the start of the capture).

    `thread` is the global id of the thread that was sampled, `stack_end` an index into
    `stack_ends`.
    """

    start: Array
    thread: Array
    stack_end: Array
    stack_ends: list[StackEnd]


_NONE = np.empty(0, np.int64)
NO_SAMPLES = PythonSamples(_NONE, _NONE, _NONE, [])


def has_samples(db: Database) -> bool:
    """Whether the trace was recorded with Python sampling, be its stacks exported or not."""
    if not {"text", "eventType"} <= db.columns(NVTX):
        return False
    table = db.table(NVTX)
    return bool(db.rows(f'SELECT 1 FROM "{table}" WHERE text IN {_DOMAINS} LIMIT 1'))


def read_python_samples(db: Database) -> PythonSamples:
    """Read the stacks; none where the trace or the export has none."""
    stacks: dict[bytes, int] = {}
    rows = [
        (start, _thread(thread, category or 0), stacks.setdefault(stack, len(stacks)))
        for start, thread, category, data in _rows(db)
        if (stack := _stack(data))
    ]
    if not rows:
        return NO_SAMPLES
    frames = [list(_FRAME.iter_unpack(stack)) for stack in stacks]
    ids = {number for stack in frames for *two, _ in stack for number in two}
    # nsys writes <module> as &lt;module&gt;.
    texts = {number: html.unescape(text) for number, text in read_strings(db, ids).items()}
    stack_ends: dict[StackEnd, int] = {}
    of_stack = np.array(
        [stack_ends.setdefault(_stack_end(stack, texts), len(stack_ends)) for stack in frames],
        np.int64,
    )
    start, thread, stack_of = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    order = np.argsort(start, kind="stable")
    return PythonSamples(start[order], thread[order], of_stack[stack_of[order]], list(stack_ends))


def stack_strings(db: Database) -> set[int]:
    """Ids of the strings that only the stacks name: functions and files."""
    stacks = {stack for *_, data in _rows(db) if (stack := _stack(data))}
    return {n for stack in stacks for *two, _ in _FRAME.iter_unpack(stack) for n in two}


def _rows(db: Database) -> Iterator[tuple[int, int, int | None, bytes]]:
    """Marks with a payload, some at a time: a long run has many deep stacks."""
    if not {"binaryData", "category", "globalTid"} <= db.columns(NVTX):
        return
    last = -1
    while True:
        rows = db.rows(
            "SELECT rowid, start, globalTid, coalesce(category, 0), hex(binaryData) FROM"
            f' "{db.table(NVTX)}" WHERE rowid > {last} AND eventType = {MARK} AND binaryData IS NOT'
            " NULL AND globalTid IS NOT NULL AND typeof(start) = 'integer'"
            f" AND length(binaryData) <= {_LONGEST} ORDER BY rowid LIMIT {_AT_ONCE}"
        )
        if not rows:
            return
        last = rows[-1][0]
        for _, start, thread, category, data in rows:
            yield start, thread, category, bytes.fromhex(data)


def _stack(data: bytes) -> bytes:
    """The frames of a payload; empty where it is no stack."""
    if len(data) >= _HEADER.size:
        _, _, size, offset = _HEADER.unpack_from(data)
        if _HEADER.size <= offset and offset + size <= len(data):
            data = data[offset : offset + size]
    if len(data) < _HEAD.size:
        return b""
    frames = data[_HEAD.size :]
    depths = {depth for depth in _HEAD.unpack_from(data) if 0 < depth <= _DEEPEST}
    return frames if len(frames) in {depth * _FRAME.size for depth in depths} else b""


def _thread(marked: int, category: int) -> int:
    """Global id of the sampled thread: the main one by its process, others by their number."""
    if category == 0:
        return marked
    process = marked & ~_TID
    return process | (process >> _PID & _TID) if category == 1 else -(process | category)


def _stack_end(stack: list[tuple[int, int, int]], texts: dict[int, str]) -> StackEnd:
    # Instructions that the interpreter adds have no line: -1 as an unsigned number.
    frames = [
        Frame(texts.get(f, ""), line if line < _NO_LINE else 0, texts.get(name, ""))
        for name, f, line in stack
    ]
    of_program = [at for at, frame in enumerate(frames) if not LIBRARY.search(frame.file)]
    first = of_program[0] if of_program else 0
    works = [work_of(f"{frame.file}:{frame.function}") for frame in frames]
    asked = max((at for at, work in enumerate(works) if work), default=first)
    callers = tuple(frames[at] for at in of_program if at > asked)
    places = "\n".join(f"{frame.file}:{frame.function}" for frame in frames)
    return StackEnd(frames[first], frames[0], work_of(places), callers)


def work_of(places: str) -> str:
    """Return the work of a library (WORK) of a stack, given as lines of `file:function`."""
    return next((name for name, pattern in WORK if pattern.search(places)), "")
