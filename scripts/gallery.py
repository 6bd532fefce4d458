"""Renders docs/gallery.md: what each recorded run asked, found and looks like.

    python scripts/gallery.py FOLDER NAME[=PLACE] …

FOLDER/NAME is the run directory of a replay; PLACE, relative to docs/, is where its report lies
(examples/NAME by default). A PLACE that ends in .md is a comparison, FOLDER/compared/NAME.md.
Everything on the page comes from the reports.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from nsight_prof.reports.formats import counted, escape  # noqa: E402

# The picture that stands for a report; else the first that it shows.
PICTURES = {
    "top-kernels": "roofline-tensor",
    "roofline": "roofline-measured",
    "memory-patterns": "memory-patterns-mix",
    "gemm-staircase": "staircase-bf16",
    "llm-kernels": "llm-linear",
}
SENTENCES = 3
HEAD = """\
# Gallery

Reports of recorded runs, rendered by `scripts/example` from `captures/` without a GPU. CI checks
that they are what the code renders. `prof run NAME --replay captures/h200-NAME` makes one with all
its files; `prof export` makes a timeline of it for [Perfetto](https://ui.perfetto.dev). What the
reports of `captures/h200-planted-defects-second` and `captures/h200-planted-defects-third` say
stands in [the proof](proof.md).
"""


@dataclass(frozen=True)
class Entry:
    """One recorded run: `place` is its report's folder, relative to docs/."""

    name: str
    place: str
    manifest: dict[str, Any]
    metrics: dict[str, Any]
    report: str

    @property
    def gpu(self) -> str:
        """GPUs of the machine that it was recorded on."""
        names = [str(gpu.get("name", "")) for gpu in self.manifest.get("gpus", [])]
        often = ((name, names.count(name)) for name in dict.fromkeys(names))
        return ", ".join(f"{name} ({n} in the machine)" if n > 1 else name for name, n in often)

    @property
    def size(self) -> str:
        """How much it holds."""
        if self.metrics["kind"] == "bench":
            return counted(len(self.metrics["bench"]), "case")
        if self.metrics["kind"] == "sweep":
            return counted(len(self.metrics["variants"]), "variant")
        kernels = len(self.metrics["kernels"]) + self.metrics["rest_kernels"]
        return counted(kernels, "kernel")

    @property
    def picture(self) -> str | None:
        """Name of the picture that stands for it, without its suffix."""
        shown = re.findall(r"!\[[^\]]*\]\(([\w-]+)\.(?:svg|png)\)", self.report)
        wanted = PICTURES.get(self.name)
        return wanted if wanted in shown else next(iter(shown), None)


def read(folder: Path, name: str, place: str) -> Entry:
    """Read a run that was replayed to `folder`/`name`."""
    run = folder / name

    def load(path: Path) -> Any:
        return json.loads(path.read_text(encoding="utf-8"))

    # The page may have been made smaller since: beside it lies the whole.
    whole = next(p for p in (run / "report.full", run / "report") if p.is_dir())
    report = (run / "report" / "report.md").read_text(encoding="utf-8")
    return Entry(name, place, load(run / "manifest.json"), load(whole / "metrics.json"), report)


def render(entries: Sequence[Entry]) -> str:
    """Return the page."""
    heads = "| run | asks | holds | recorded on |\n| --- | --- | --- | --- |\n"
    rows = [
        f"| [{e.name}](#{e.name}) | {escape(e.metrics['question'])} | {e.size} | {escape(e.gpu)}, "
        f"{str(e.manifest['created'])[:10]} |\n"
        for e in entries
    ]
    return "\n".join([HEAD, heads + "".join(rows), *map(_section, entries)])


def _section(entry: Entry) -> str:
    report = f"{entry.place}/report.md"
    links = [f"[report]({report})", f"[half a page]({entry.place}/stakeholder_summary.md)"]
    lines = [
        f"## {entry.name}\n",
        f"{' · '.join(links)} · `captures/h200-{entry.name}`\n",
        *(f"{n}. {escape(s)}" for n, s in enumerate(entry.metrics["answer"][:SENTENCES], 1)),
    ]
    if entry.picture:
        lines.append(f"\n[![{entry.name}]({entry.place}/{entry.picture}.png)]({report})")
    return "\n".join([*lines, ""])


def comparisons(folder: Path, places: dict[str, str]) -> str:
    """Return the section about pairs of runs, with the first sentences of each; none: nothing."""
    parts = ["\n## Comparisons\n"] if places else []
    for name, place in places.items():
        text = (folder / "compared" / f"{name}.md").read_text(encoding="utf-8")
        answer = re.findall(r"^\d+\. .*$", text, re.MULTILINE)
        parts.append(
            "\n".join([f"### {name}\n", f"[comparison]({place})\n", *answer[:SENTENCES], ""])
        )
    return "\n".join(parts)


def main(arguments: Sequence[str]) -> int:
    """Print the page for the runs that are named."""
    folder = Path(arguments[0])
    words = (argument.partition("=") for argument in arguments[1:])
    pairs = [(name, place or f"examples/{name}") for name, _, place in words]
    compared = {name: place for name, place in pairs if place.endswith(".md")}
    entries = [read(folder, *pair) for pair in pairs if pair[0] not in compared]
    print(render(entries) + comparisons(folder, compared), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
