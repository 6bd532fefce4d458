"""Programs with one planted defect each, and their repaired twins: what should a report say?

    python targets/defects/run.py
    python targets/defects/run.py --only 'bank|tail' --repeats 3
    python targets/defects/run.py --list
    python targets/defects/run.py --set second

NVTX ranges `defect/NAME` and `twin/NAME` hold one program each, run several times; the CUDA
profiler API brackets all of them, so that setting up and warming up are left out. stdout gets one
JSON line with what is planted and the time of each, without any profiler's help.

The pairs of the later sets compare what their two programs computed before they are timed. One
that fails is named on stderr and under `failed`, and left out; the others run.
"""

from __future__ import annotations

import argparse
import json
import re
import runpy
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

if not __package__:  # run as a file
    runpy.run_path(str(Path(__file__).resolve().parents[1] / "standalone.py"))

from nsight_prof.targets.standalone import complain, need

need("yaml")
from nsight_prof.targets.defects.pair import SETS, SIDES, Pair, plans
from nsight_prof.targets.harness import Unsupported, positive


def make_pairs(wanted: Sequence[str]) -> list[Pair]:
    """Return the pairs named in `wanted`, in the order of defects.yaml; allocates all tensors.

    Raises:
        Unsupported: a package or the device is missing.
    """
    from nsight_prof.targets.defects import host_programs, own_kernels, torch_programs

    memory = own_kernels.make_memory()
    made = [pair for family in own_kernels.FAMILIES for pair in family(memory)]
    made += [*torch_programs.library_pairs(), *host_programs.host_pairs()]
    by_name = {pair.name: pair for pair in made}
    return [by_name[name] for name in wanted]


def run_stage(pair: Pair, side: str, repeats: int) -> dict[str, float]:
    """Run one program `repeats` times in its NVTX range; return seconds of one call.

    `gpu_s` is from the first to the last operation on the GPU, `wall_s` the host's time until the
    GPU has finished.
    """
    import torch

    step = pair.side(side)
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    started = time.perf_counter()
    torch.cuda.nvtx.range_push(f"{side}/{pair.name}")
    begin.record()
    for _ in range(repeats):
        step()
    end.record()
    torch.cuda.nvtx.range_pop()
    torch.cuda.synchronize()
    wall = time.perf_counter() - started
    return {"gpu_s": begin.elapsed_time(end) / 1e3 / repeats, "wall_s": wall / repeats}


def checked_pairs(
    wanted: Sequence[str], makers: Mapping[str, Callable[[], Pair]]
) -> tuple[list[Pair], list[dict[str, str]]]:
    """Make pairs one by one, call both programs once, and compare what they wrote.

    Returns:
        The pairs whose programs did the same, and {name, reason} of each other one.
    """
    import torch

    made, failed = [], []
    for name in wanted:
        try:
            pair = makers[name]()
            for side in SIDES:
                pair.side(side)()
            torch.cuda.synchronize()
            pair.compare()
            torch.cuda.empty_cache()  # what the comparison took
            made.append(pair)
        except Exception as error:  # of a compiler, CUDA or a comparison: the other pairs still run
            reason = f"{type(error).__name__}: {error}".strip()[:2000]
            print(f"error: the pair {name} is left out: {reason}", file=sys.stderr)
            failed.append({"name": name, "reason": reason})
    return made, failed


def warm_up(pairs: Sequence[Pair]) -> None:
    """Call all programs twice."""
    import torch

    for pair in pairs:
        for side in SIDES:
            for _ in range(2):
                pair.side(side)()
    torch.cuda.synchronize()


def run(wanted: Sequence[str], repeats: int | None, which: str = "first") -> dict[str, Any]:
    """Warm the programs of a set up, run them, and return what was planted with their times.

    Raises:
        Unsupported: a package is missing, or not one pair is left.
    """
    import torch

    torch.manual_seed(0)
    failed: list[dict[str, str]] = []
    if which == "first":
        from nsight_prof.targets.defects import own_kernels, torch_programs

        pairs, work, gemms = make_pairs(wanted), own_kernels.work(), torch_programs.gemms()
    elif which == "second":
        from nsight_prof.targets.defects import second, second_kernels, second_torch

        pairs, failed = checked_pairs(wanted, second.MAKERS)
        work, gemms = second_kernels.work(), second_torch.gemms()
    else:
        from nsight_prof.targets.defects import third, third_kernels, third_torch

        pairs, failed = checked_pairs(wanted, third.MAKERS)
        work, gemms = third_kernels.work(), third_torch.gemms()
    if not pairs:
        raise Unsupported(f"no pair is left; {failed[0]['name']}: {failed[0]['reason']}")
    warm_up(pairs)
    torch.cuda.profiler.start()
    records = []
    for pair in pairs:
        times = {side: run_stage(pair, side, repeats or pair.repeats) for side in SIDES}
        plan = plans(which)[pair.name]
        records.append({**plan.record(), "repeats": repeats or pair.repeats, "times": times})
    torch.cuda.profiler.stop()
    return {
        "target": "defects",
        "set": which,
        "pairs": records,
        "failed": failed,
        "work": work,
        "gemms": gemms,
        "torch": torch.__version__,
        "gpu": torch.cuda.get_device_name(),
        "peak_memory_bytes": torch.cuda.max_memory_allocated(),
    }


def parse_arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line; `wanted` are the names of the pairs to run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument(
        "--set", choices=list(SETS), default="first", help="set of programs (first)"
    )
    parser.add_argument("--only", default="", metavar="REGEX", help="names it is found in (all)")
    parser.add_argument("--repeats", type=positive, help="runs of each program (its own number)")
    parser.add_argument("--list", action="store_true", help="print the names and end")
    args = parser.parse_args(argv)
    try:
        args.wanted = [name for name in plans(args.set) if re.search(args.only, name)]
    except re.error as error:
        parser.error(f"--only is no regular expression: {error}")
    if not args.wanted:
        parser.error(f"--only {args.only}: no name has that; --list prints them")
    return args


def main(argv: Sequence[str] | None = None) -> int:
    """Run once; exit code 1 with a reason where the device or a package is missing."""
    args = parse_arguments(argv)
    if args.list:
        print("\n".join(args.wanted))
        return 0
    need("torch")
    import torch

    if not torch.cuda.is_available():
        complain("torch sees no CUDA device", "--list needs none")
        return 1
    try:
        result = run(args.wanted, args.repeats, args.set)
    except (Unsupported, torch.OutOfMemoryError) as error:
        complain(str(error), "it needs cuda-bindings, triton and about 20 GB of GPU memory")
        return 1
    print(json.dumps(result))
    for pair in result["pairs"]:
        shown = [f"{side} {pair['times'][side]['wall_s'] * 1e3:.3f} ms" for side in SIDES]
        print(f"{pair['name']}: {', '.join(shown)}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
