"""Runs a torch script under the torch profiler and writes the operators it called as a trace.

    python under_torch_profiler.py --out operators.json.gz --capture all -- script.py --batch 8

The script runs as it would by itself: as `__main__`, with its own arguments and folder. Operators
of the CPU and kernels of the GPU are recorded with the shapes of their inputs (Kineto's chrome
trace, gzip). `--capture all` records from the start to the end of the script; `--capture
profiler-api` between cudaProfilerStart and cudaProfilerStop, as torch.cuda.profiler or
torch.cuda.cudart() calls them. NVTX ranges (torch.cuda.nvtx, package nvtx) become ranges of the
trace, so that stages and steps have the names that they have in a trace of Nsight Systems.

Where torch.compile fused operators into kernels, fused_kernels.json beside the trace has the stacks
of what each of them is made of, as Inductor tells them (its provenance tracking).

The trace is written also when the script fails or exits early, and the script's exit code stays.
Processes that the script starts are not recorded. Runs in any Python that has torch.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import json
import logging
import os
import re
import signal
import sys
import threading
import traceback
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

LINKS = ("External id", "Ev Idx", "correlation", "Record function id")
"""Numbers of events that refer to each other within one trace."""


PRIVATE = re.compile(rb'("(?:host_name|traceName)": )"[^"]*"')


class Recorder:
    """Starts and stops the profiler; each start..stop is a part of the one trace `out`."""

    def __init__(
        self, torch: Any, out: Path, detailed: bool = False, fused: FusedKernels | None = None
    ) -> None:
        """Record nothing yet; `detailed`: with Python functions around operators, and memory."""
        self._detailed, self._fused = detailed, fused
        self.out = out.absolute()  # the script may change the folder
        self.parts = 0
        self._torch = torch
        self._pid = os.getpid()
        self._profile: Any = None

    def start(self) -> None:
        """Begin to record; nothing where it records already, or in a child process."""
        if self._profile is not None or os.getpid() != self._pid:
            return
        torch = self._torch
        activities = [torch.profiler.ProfilerActivity.CPU]
        if torch.cuda.is_available():
            activities.append(torch.profiler.ProfilerActivity.CUDA)
        self._profile = torch.profiler.profile(
            activities=activities,
            record_shapes=True,
            profile_memory=self._detailed,
            with_stack=self._detailed,
        )
        self._profile.start()

    def stop(self) -> None:
        """End the recording and write it at once: the script may never come to its end."""
        if self._profile is None or os.getpid() != self._pid:
            return
        profile, self._profile = self._profile, None
        profile.stop()
        self.out.parent.mkdir(parents=True, exist_ok=True)
        raw, part = (self.out.with_name(f".{name}-{self._pid}-{self.out.name}") for name in "rp")
        try:
            profile.export_chrome_trace(f"{raw}.json")
            compress(Path(f"{raw}.json"), part)
            if self.parts:
                append(self.out, part)
            os.replace(part, self.out)
            if self._fused is not None:
                self._fused.write(self.out.parent)
        finally:
            part.unlink(missing_ok=True)
            Path(f"{raw}.json").unlink(missing_ok=True)
        self.parts += 1


def compress(raw: Path, out: Path) -> None:
    """Write a trace as gzip, without the name of the machine and folders of it."""
    with open(raw, "rb") as source, gzip.open(out, "wb", compresslevel=6) as target:
        for line in source:  # Kineto writes a line for each field
            target.write(PRIVATE.sub(rb'\1""', line))


def append(first: Path, more: Path) -> None:
    """Put the events of the gzip trace `first` before those of `more`, whose numbers move up."""
    with gzip.open(first, "rt", encoding="utf-8") as stream:
        trace = json.load(stream)
    with gzip.open(more, "rt", encoding="utf-8") as stream:
        added = json.load(stream)["traceEvents"]
    beyond = 1 + max((_highest(event) for event in trace["traceEvents"]), default=0)
    for event in added:
        if event.get("cat") == "ac2g":
            event["id"] += beyond
        numbers = event.get("args") or {}
        numbers.update({key: numbers[key] + beyond for key in LINKS if _linked(numbers, key)})
    trace["traceEvents"] += added
    with gzip.open(more, "wt", encoding="utf-8", compresslevel=6) as stream:
        json.dump(trace, stream)


def _highest(event: dict[str, Any]) -> int:
    numbers = event.get("args") or {}
    own = event["id"] if event.get("cat") == "ac2g" else 0
    return max([int(own), *(int(numbers[key]) for key in LINKS if _linked(numbers, key))])


def _linked(numbers: dict[str, Any], key: str) -> bool:
    return isinstance(numbers.get(key), int) and numbers[key] > 0


class FusedKernels(logging.Handler):
    """Keeps the stacks of what Inductor fused into each kernel, from torch's structured log.

    Seen in torch 2.11 and 2.13: an artifact of JSON for each graph, with the stacks of each kernel
    in the form of a traceback. A graph that was cached without provenance, as by a run before,
    has none: all is compiled anew.
    """

    ARTIFACT = "inductor_provenance_tracking_kernel_stack_traces"
    FRAME = re.compile(r'^  File "(.*)", line (\d+), in (.*)\n    (.*)$', re.MULTILINE)

    def __init__(self) -> None:
        """Listen to what Inductor compiles from now on; torch must not be imported yet."""
        super().__init__()
        self.stacks: dict[str, list[list[tuple[str, str, str, str]]]] = {}
        os.environ.setdefault("INDUCTOR_PROVENANCE", "1")
        os.environ.setdefault("TORCHINDUCTOR_FORCE_DISABLE_CACHES", "1")
        logging.getLogger("torch.__trace").addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the stacks of kernels; what has another form is left out."""
        artifact = getattr(record, "metadata", {}).get("artifact")
        if not isinstance(artifact, dict) or artifact.get("name") != self.ARTIFACT:
            return
        with contextlib.suppress(ValueError, AttributeError, TypeError):
            for kernel, stacks in json.loads(record.payload).items():  # type: ignore[attr-defined]
                found = self.stacks.setdefault(kernel.partition(":")[0], [])
                frames = [self.FRAME.findall(stack) for stack in stacks]
                found += [stack for stack in frames if stack and stack not in found]

    def write(self, folder: Path) -> None:
        """Write fused_kernels.json: frames [file, line, function, source], outermost first, of each
        stack of each kernel; nothing where nothing was compiled.
        """
        if self.stacks:
            text = json.dumps(self.stacks, indent=1)
            (folder / "fused_kernels.json").write_text(text + "\n", encoding="utf-8")


class Ranges:
    """Open ranges of each thread, as events of the torch profiler."""

    def __init__(self, make: Callable[[str], Any]) -> None:
        self._make = make
        self._open = threading.local()

    def push(self, message: object) -> int:
        """Open a range; return its depth from 0, as NVTX does."""
        stack: list[Any] = self._open.__dict__.setdefault("stack", [])
        entered = self._make(str(message))
        entered.__enter__()
        stack.append(entered)
        return len(stack) - 1

    def pop(self) -> int:
        """Close the innermost range of this thread; return the depth that it had."""
        stack: list[Any] = self._open.__dict__.setdefault("stack", [])
        if not stack:
            return -2  # what NVTX returns for an unknown stack
        stack.pop().__exit__(None, None, None)
        return len(stack)


def bridge_torch_nvtx(torch: Any, ranges: Ranges) -> None:
    """Let the ranges of torch.cuda.nvtx be ranges of the profiler, also without a GPU."""
    nvtx = torch.cuda.nvtx
    nvtx.range_push, nvtx.range_pop = ranges.push, ranges.pop
    nvtx.mark = lambda msg: None
    nvtx.range_start = lambda msg: 0  # may end on another thread: no range of the profiler can
    nvtx.range_end = lambda range_id: None


def bridge_nvtx_package(ranges: Ranges) -> None:
    """Let the ranges of the package nvtx be ranges of the profiler; nothing without it."""
    try:
        import nvtx
    except ImportError:
        return

    class Annotate(contextlib.ContextDecorator):
        """Stands for nvtx.annotate: a context manager and a decorator."""

        def __init__(
            self,
            message: object = None,
            color: object = None,
            domain: str | None = None,
            **_: object,
        ) -> None:
            self._message, self._domain = message, domain

        def __call__(self, func: Any) -> Any:
            if self._message is None:
                self._message = getattr(func, "__name__", "")
            return super().__call__(func)

        def __enter__(self) -> Annotate:
            ranges.push(named(self._message or "", self._domain))
            return self

        def __exit__(self, *_: object) -> None:
            ranges.pop()

    def push_range(
        message: object = None, color: object = None, domain: str | None = None, **_: object
    ) -> None:
        ranges.push(named(message or "", domain))

    def pop_range(domain: str | None = None, **_: object) -> None:
        ranges.pop()

    nvtx.annotate, nvtx.push_range, nvtx.pop_range = Annotate, push_range, pop_range


def named(message: object, domain: str | None) -> str:
    """Return `domain:message`, as nsys stats writes it; the bare name in the default domain."""
    return f"{domain}:{message}" if domain else str(message)


def follow_profiler_api(torch: Any, start: Callable[[], None], stop: Callable[[], None]) -> None:
    """Let cudaProfilerStart and cudaProfilerStop begin and end the recording."""

    class Runtime:
        """The CUDA runtime of torch, with a profiler API that is ours."""

        def __getattr__(self, name: str) -> Any:
            return getattr(runtime(), name)

        def cudaProfilerStart(self) -> int:  # noqa: N802 - the name of the API
            start()
            return 0

        def cudaProfilerStop(self) -> int:  # noqa: N802 - the name of the API
            stop()
            return 0

    runtime = torch.cuda.cudart
    torch.cuda.profiler.start, torch.cuda.profiler.stop = start, stop
    torch.cuda.cudart = Runtime
    torch.cuda.profiler.cudart = torch.cuda.cudart


def run_script(path: Path, arguments: list[str]) -> int:
    """Run the script as `__main__`; return its exit code. It may also exit through SystemExit.

    The module stays in place: processes that the script spawns import it by its path, and pickle
    finds its classes.
    """
    sys.argv = [str(path), *arguments]
    module = types.ModuleType("__main__")
    module.__dict__.update(__file__=str(path.absolute()), __builtins__=__builtins__, __spec__=None)
    sys.modules["__main__"] = module
    try:
        exec(compile(path.read_bytes(), str(path), "exec"), module.__dict__)
    except SystemExit as stop:
        return exit_code(stop)
    except KeyboardInterrupt:
        return 130
    except BaseException as error:
        trace = error.__traceback__
        traceback.print_exception(type(error), error, trace.tb_next if trace else None)
        return 1
    return 0


def exit_code(stop: SystemExit) -> int:
    """Return what the interpreter would exit with, and print what it would print."""
    if stop.code is None:
        return 0
    if isinstance(stop.code, int):
        return stop.code & 0xFF
    print(stop.code, file=sys.stderr)
    return 1


def fail(message: str, hint: str, code: int = 1) -> int:
    """Say on stderr what failed and what to do; return `code`."""
    sys.stdout.flush()
    print(f"error: {message}\n\nhint: {hint}", file=sys.stderr)
    return code


def finish(recorder: Recorder, code: int, script: Path) -> int:
    """End the recording; return the exit code: the script's own where it failed."""
    try:
        recorder.stop()
    except Exception as error:
        message = f"the trace of the operators cannot be written to {recorder.out}: {error}"
        return fail(message, "free some space, or record less: capture: profiler-api", code or 1)
    if not recorder.parts and not code:
        message = f"{script.name} never called cudaProfilerStart: no operator was recorded"
        hint = (
            "call torch.cuda.profiler.start() in it, or record all of it (capture: all); processes "
            "that it starts are not recorded: let an engine run in the script's own process"
        )
        return fail(message, hint)
    return code


def write_at_exit(recorder: Recorder) -> None:
    """Let os._exit and SIGTERM end the recording first, in this process alone."""
    leave, pid = os._exit, os.getpid()

    def leave_recorded(status: int) -> NoReturn:
        if os.getpid() == pid:
            with contextlib.suppress(Exception):
                recorder.stop()
        leave(status)

    def terminated(*_: object) -> NoReturn:
        sys.exit(128 + signal.SIGTERM)

    os._exit = leave_recorded
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, terminated)


def parse(argv: list[str]) -> argparse.Namespace:
    """Read the command line; what follows `--` is the script and its arguments, untouched."""
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").split("\n\n")[0],
        usage="%(prog)s --out FILE [--capture all|profiler-api] -- SCRIPT [ARGUMENTS ...]",
    )
    parser.add_argument("--out", type=Path, required=True, help="trace to write (.json.gz)")
    parser.add_argument("--detailed", action="store_true", help="with Python functions and memory")
    parser.add_argument(
        "--capture",
        choices=("all", "profiler-api"),
        default="all",
        help="the whole script, or between cudaProfilerStart and cudaProfilerStop (all)",
    )
    place = argv.index("--") if "--" in argv else len(argv)
    own, command = argv[:place], argv[place + 1 :]
    options = parser.parse_args(own)
    if not command:
        parser.error("give the script behind --")
    options.script, options.arguments = Path(command[0]), command[1:]
    return options


def main(argv: list[str] | None = None) -> int:
    """Run the script under the profiler; return its exit code."""
    options = parse(sys.argv[1:] if argv is None else argv)
    if not options.script.is_file():
        return fail(f"there is no script {options.script}", "give the path of a Python file", 2)
    sys.path[0] = str(options.script.resolve().parent)  # nothing here shadows a module of its
    fused = FusedKernels()
    try:
        import torch
    except ImportError as error:
        message = f"{sys.executable} cannot import torch: {error}"
        return fail(message, "name an interpreter that has it: python: /path/to/venv/bin/python", 3)
    recorder = Recorder(torch, options.out, options.detailed, fused)
    ranges = Ranges(torch.profiler.record_function)
    bridge_torch_nvtx(torch, ranges)
    bridge_nvtx_package(ranges)
    write_at_exit(recorder)
    if options.capture == "all":
        recorder.start()
    else:
        follow_profiler_api(torch, recorder.start, recorder.stop)
    code = run_script(options.script, options.arguments)
    return finish(recorder, code, options.script)


if __name__ == "__main__":
    sys.exit(main())
