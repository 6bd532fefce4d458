"""Writes docs/accuracy.md: how far predictions lie from the recorded runs of captures/.

python scripts/accuracy.py            writes the page
python scripts/accuracy.py --check    exits with 1 where the page is not what the captures give
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

import pandas as pd

from nsight_prof import load_run
from nsight_prof.orchestrator.cli import main as prof
from nsight_prof.parsers.cells import Row, records
from nsight_prof.parsers.predict.validation import HELD_OUT, IN_SAMPLE, KERNEL, summary

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "accuracy.md"
KERNELS = ("h200-llm-kernels", "h200-gemm-staircase")
TRACE, OFFLINE, SPLIT = "h200-vllm-kernels", "h200-vllm-baseline", "h200-vllm-tensor-parallel"
SERVER = "h200-vllm-serve"
BOARDS = ("noise-floor/board-0", "noise-floor/board-1")


@dataclass(frozen=True)
class Question:
    """What is predicted from what: runs below captures/."""

    title: str
    sources: tuple[str, ...]
    truths: tuple[str, ...]


QUESTIONS = (
    Question("Kernels of other models alone (T1)", KERNELS, (TRACE, OFFLINE, *BOARDS)),
    Question("With a recorded engine at batch 8 (T3)", (*KERNELS, TRACE), (OFFLINE, *BOARDS)),
    Question(
        "With a recorded engine, and single requests of another start of it",
        (*KERNELS, TRACE, OFFLINE),
        BOARDS,
    ),
    Question(
        "Loads of a server: 1 to 128 clients, and 15 to 80 requests per second (T3)",
        (*KERNELS, TRACE, OFFLINE),
        (SERVER,),
    ),
)
INTRO = """\
<!-- Written by scripts/accuracy.py from captures/; do not edit. -->
# How far predictions lie from what was measured

`prof predict --validate RUN --on RUN …` made every number here, from the recorded runs of
`captures/`. All are of one kind of GPU (H200), one engine (vLLM) and one model (the shape of
Qwen2.5-7B in bf16): what holds for others is not known. Predicted were points of one batch of
requests, and the loads of one server.

**Held out** means: the run is no source, and the products of this model's outputs and inputs are in
no fit. **In sample** they are, so that the numbers say only how well the model of costs can follow.
With a recorded engine the *model* was seen, at one batch and one length; the points were not.
Errors are of medians; those of kernels are weighted by time. Intervals are meant to hold 90 %.
[How well the measurements themselves repeat](noise-floor.md): no prediction is truer than that.
"""
CAUSES = """
## Where the errors come from

The table above says what each operator contributes to the error of a step. Kernels of benchmarks
differ from those of the engine: attention is that of PyTorch's back ends and not vLLM's, which
splits keys among SMs and combines the parts; a KV write was measured by nobody, and is taken to
move its bytes like a norm does; products take longer among other kernels than one after the other.
With a recorded engine these differences are gone at its batch, and what remains is how they change
with batch and length.

The time to first token of short prompts waits for the host, which differs from machine to machine;
no kernel tells it. Tensor parallelism was recorded once, so that nothing about it is held out but
its kernels; collectives, which no other run has, are missing there.

A server adds what no engine tells: it passes requests on one after the other, so that short prompts
come later than predicted, and the clients of a closed loop stay in step, which makes the time to
first token of 64 and more of them longer and their TPOT shorter. At 80 requests per second the
server is over its capacity: steps with hundreds of requests take longer than their kernels, and
what is predicted there is too fast.
"""


def render(work: Path) -> str:
    """Return the page; copies of the captures and runs are made below `work`."""
    for name in {name for q in QUESTIONS for name in (*q.sources, *q.truths)} | {SPLIT}:
        shutil.copytree(ROOT / "captures" / name, work / name)
    parts = [INTRO]
    for question in QUESTIONS:
        errors = pd.concat([_errors(work, truth, question.sources) for truth in question.truths])
        parts += [f"\n## {question.title}\n", _runs(question), _sums(errors)]
    kernels = pd.concat([_errors(work, truth, KERNELS) for truth in (TRACE, SPLIT)])
    parts += ["\n## Operators of recorded steps, held out (T1)\n", _operators(kernels), CAUSES]
    return "\n".join(parts)


def _errors(work: Path, truth: str, sources: Sequence[str]) -> pd.DataFrame:
    """Return table `prediction_errors` of one validation."""
    out = work / f"of-{truth.replace('/', '-')}-{len(sources)}"
    if not out.exists():
        words = [word for source in sources for word in ("--on", str(work / source))]
        said = StringIO()
        with redirect_stdout(said), redirect_stderr(said):
            code = prof(["predict", "--validate", str(work / truth), *words, "--out", str(out)])
        if code:
            raise SystemExit(said.getvalue())
    return load_run(out).prediction_errors


def _runs(question: Question) -> str:
    named = [", ".join(f"`{name}`" for name in names) for names in
             (question.sources, question.truths)]  # fmt: skip
    return f"From {named[0]}; held against {named[1]}.\n"


def _sums(errors: pd.DataFrame) -> str:
    """Return held-out and in-sample errors by quantity, each kind of operator by itself."""
    names = errors["name"].where(~errors["scope"].eq(KERNEL), errors["group"])
    found = records(summary(errors.assign(what=names), ["scope", "what", "sample"]))
    rows = []
    for row in (row for row in found if row["sample"] == HELD_OUT):
        key = row["scope"], row["what"]
        same = [r for r in found if (r["scope"], r["what"]) == key and r["sample"] == IN_SAMPLE]
        mape = _percent(same[0]["mape"]) if same else "–"
        rows.append((row["scope"], row["what"], str(row["n"]), *_numbers(row), mape))
    heads = ("of", "what", "n", "MAPE", "90th percentile", "bias", "within interval",
             "MAPE in sample")  # fmt: skip
    return _table(heads, rows)


def _numbers(row: Row) -> tuple[str, ...]:
    bias = f"{row['bias']:+.1%}"
    return _percent(row["mape"]), _percent(row["p90"]), bias, f"{row['coverage']:.0%}"


def _operators(errors: pd.DataFrame) -> str:
    held_out = errors[errors["scope"].eq(KERNEL) & errors["sample"].eq(HELD_OUT)]
    steps = held_out.groupby(["source", "kind"])["measured"].transform("sum")
    moved = (held_out["predicted"] - held_out["measured"]) / steps
    rows = [
        (row["source"], row["kind"], row["name"], _percent(row["part"]), f"{row['error']:+.1%}",
         f"{row['moved']:+.1%}")
        for row in records(held_out.assign(part=held_out["measured"] / steps, moved=moved))
    ]  # fmt: skip
    heads = ("run", "step", "operator", "of the kernel time", "error", "of the step")
    return _table(heads, rows)


def _percent(value: float) -> str:
    return f"{value:.1%}"


def _table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines) + "\n"


def main(argv: Sequence[str]) -> int:
    """Write or check the page."""
    if argv not in ([], ["--check"]):
        print(__doc__)
        return 2
    with tempfile.TemporaryDirectory(prefix="prof-accuracy-") as folder:
        text = render(Path(folder))
    if not argv:
        PAGE.write_text(text, encoding="utf-8")
        print(PAGE.relative_to(ROOT))
        return 0
    if PAGE.is_file() and PAGE.read_text(encoding="utf-8") == text:
        return 0
    print("docs/accuracy.md is not what the captures give; write it: python scripts/accuracy.py")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
