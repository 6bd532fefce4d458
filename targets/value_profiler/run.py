"""Runs a torch script and records what its operators compute, for the step `values`.

    python run.py --out values.jsonl.gz --capture all -- script.py --batch 8

The script runs as it would by itself, and computes the same: hashes of tensors are computed where
they lie and read at the end (hashes.py). Recorded are operators that the thread which starts the
recording calls, and those of its backward passes. `--capture profiler-api` records between
cudaProfilerStart and cudaProfilerStop. After --operators calls or --seconds the recording ends and
the script goes on.

The file is gzip of JSON lines: `start`, a `stack` for each place with its frames, innermost first,
an `operator` for each kind of call, the `call`s (equal numbers of inputs: equal values), `end`.
It is written also when the script fails or exits early, and the script's exit code stays.
Not recorded: regions that torch.compile compiled, what CUDA graphs capture and replay, other
threads and processes. Runs in any Python 3.10+ that has torch.
"""

from __future__ import annotations

import argparse
import runpy
import sys
from pathlib import Path
from typing import Any

if not __package__:  # run as a file
    runpy.run_path(str(Path(__file__).resolve().parents[1] / "standalone.py"))
from nsight_prof.targets.standalone import need
from nsight_prof.targets.under_torch_profiler import (
    fail,
    follow_profiler_api,
    run_script,
    write_at_exit,
)


def parse(argv: list[str]) -> argparse.Namespace:
    """Read the command line; what follows `--` is the script and its arguments, untouched."""
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").split("\n\n")[0],
        usage="%(prog)s --out FILE [--capture all|profiler-api] -- SCRIPT [ARGUMENTS ...]",
    )
    parser.add_argument("--out", type=Path, required=True, help="file to write (.jsonl.gz)")
    parser.add_argument("--operators", type=int, default=20_000, help="calls to record (20000)")
    parser.add_argument("--seconds", type=float, default=20, help="seconds to record (20)")
    parser.add_argument(
        "--capture",
        choices=("all", "profiler-api"),
        default="all",
        help="the whole script, or between cudaProfilerStart and cudaProfilerStop (all)",
    )
    at = argv.index("--") if "--" in argv else len(argv)
    options, command = parser.parse_args(argv[:at]), argv[at + 1 :]
    if not command:
        parser.error("give the script behind --")
    options.script, options.arguments = Path(command[0]), command[1:]
    return options


def main(argv: list[str] | None = None) -> int:
    """Run the script and record it; return its exit code."""
    options = parse(sys.argv[1:] if argv is None else argv)
    if not options.script.is_file():
        return fail(f"there is no script {options.script}", "give the path of a Python file", 2)
    need("torch")
    import torch

    from nsight_prof.targets.value_profiler.reads import watch
    from nsight_prof.targets.value_profiler.recorder import Recorder

    recorder = Recorder(options.out, options.script, options.operators, options.seconds)
    watch(recorder.take, recorder.leave, recorder.thread)
    sys.path.insert(0, str(options.script.resolve().parent))
    write_at_exit(recorder)
    if options.capture == "all":
        recorder.start()
    else:
        follow_profiler_api(torch, recorder.start, recorder.pause)
    code = run_script(options.script, options.arguments)
    return finish(recorder, code, options.script)


def finish(recorder: Any, code: int, script: Path) -> int:
    """Write what was recorded; return the exit code: the script's own where it failed."""
    try:
        recorder.stop(is_final=not code)
    except Exception as error:
        message = f"the values of the operators cannot be written to {recorder.out}: {error}"
        return fail(message, "free some space, or record less: values.operators", code or 1)
    if not recorder.calls and not code:
        return fail(
            f"{script.name} called no operator of torch between cudaProfilerStart and Stop",
            "let the thread that calls torch.cuda.profiler.start() also call torch's operators, or "
            "record all of it (capture: all); processes that it starts are not recorded",
        )
    return code


if __name__ == "__main__":
    sys.exit(main())
