"""Renders the recorded runs to build/gallery, and from them what docs/ shows of them.

    scripts/example            write build/gallery, docs/example, docs/pictures and docs/gallery.md
    scripts/example --check    only say whether docs/ is up to date and all links lead somewhere

Texts are compared, pictures are not: another version of matplotlib draws them with other bytes.
docs/example is the report of top-kernels with a few of its pictures; links to what is left out
become plain text. Everything on the page of the gallery comes from the reports.
"""

from __future__ import annotations

import argparse
import difflib
import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from nsight_prof.reports.page.formats import counted, escape  # noqa: E402
from scripts.pages.notebook_page import executed_page  # noqa: E402
from scripts.pages.prof_here import pool, prof  # noqa: E402

CAPTURES, GALLERY = ROOT / "captures", ROOT / "build" / "gallery"
EXAMPLE = "top-kernels"
FIRST = (EXAMPLE, "vllm-kernels", "planted-defects", "roofline", "memory-patterns",
         "gemm-staircase", "llm-kernels")  # fmt: skip
"""Those that are worth reading first; the others follow."""
COMPARISONS = (("eager", "compiled"), ("batch-8", "batch-64"))
"""Pairs of captures/compare, before and after; NAME-2 and NAME-3 give the noise."""
PICTURES = {
    "top-kernels": "roofline-tensor",
    "vllm-kernels": "steps-and-floors",
    "roofline": "roofline-measured",
    "memory-patterns": "memory-patterns-mix",
    "gemm-staircase": "staircase-bf16",
    "llm-kernels": "llm-linear",
}
"""The picture that stands for a report; else the first that it shows."""
IN_DOCS = ("vllm-kernels", "roofline")
"""Runs whose picture is kept in docs/pictures."""
IN_EXAMPLE = 3
"""Pictures that are kept in docs/example beside the one that stands for the report."""
PAGES = ("report.md", "stakeholder_summary.md")
SENTENCES = 3
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\\[\[\]])*)\]\(([^)\s]+)\)")
HEAD = """\
# Gallery

What the reports of the recorded runs in `captures/` say. `scripts/example` renders all of them to
`build/gallery`, without a GPU; `prof run NAME --replay captures/h200-NAME` renders one, and
`prof export` makes a timeline of it for [Perfetto](https://ui.perfetto.dev). CI renders them all
and checks that this page is what they say. [The proof](PROOF) sums up those of
`captures/h200-planted-defects-second` and `captures/h200-planted-defects-third`.
"""


@dataclass(frozen=True)
class Entry:
    """One recorded run whose report lies in `folder`."""

    name: str
    folder: Path

    @cached_property
    def manifest(self) -> Any:
        """The manifest of the run."""
        return json.loads((self.folder.parent / "manifest.json").read_text(encoding="utf-8"))

    @cached_property
    def metrics(self) -> Any:
        """The numbers of the report."""
        return json.loads((self.folder / "metrics.json").read_text(encoding="utf-8"))

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

    @cached_property
    def pictures(self) -> list[str]:
        """Files of the pictures that the report shows, the one that stands for it first."""
        text = (self.folder / "report.md").read_text(encoding="utf-8")
        shown = list(dict.fromkeys(re.findall(r"!\[[^\]]*\]\(([\w-]+\.svg)\)", text)))
        return sorted(shown, key=lambda name: name != f"{PICTURES.get(self.name)}.svg")


def render_page(entries: Sequence[Entry], comparisons: Sequence[Path], base: Path) -> str:
    """Return the page of the gallery, with links to what lies in or below the folder `base`."""
    heads = "| run | asks | holds | recorded on |\n| --- | --- | --- | --- |\n"
    rows = [
        f"| [{e.name}](#{e.name}) | {escape(e.metrics['question'])} | {e.size} | {escape(e.gpu)}, "
        f"{str(e.manifest['created'])[:10]} |\n"
        for e in entries
    ]
    head = HEAD.replace("PROOF", os.path.relpath(ROOT / "docs" / "proof-planted.md", base))
    parts = [head, heads + "".join(rows), *(_section(e, base) for e in entries)]
    parts += ["## Comparisons\n"] if comparisons else []
    return "\n".join([*parts, *(_comparison(path, base) for path in comparisons)])


def _section(entry: Entry, base: Path) -> str:
    links, picture = [f"`captures/h200-{entry.name}`"], ""
    places = {"docs": ROOT / "docs" / "example"} if entry.name == EXAMPLE else {}
    folder = places.get(base.name, entry.folder)
    if folder.is_relative_to(base):
        at = folder.relative_to(base)
        links[:0] = [f"[report]({at}/report.md)", f"[half a page]({at}/stakeholder_summary.md)"]
        picture = f"{at}/{entry.pictures[0]}" if entry.pictures else ""
    elif entry.name in IN_DOCS:
        picture = f"pictures/{kept_picture(entry)}"
    answer = [f"{n}. {escape(s)}" for n, s in enumerate(entry.metrics["answer"][:SENTENCES], 1)]
    lines = [f"## {entry.name}\n", f"{' · '.join(links)}\n", *answer]
    lines += [f"\n![{entry.name}]({picture})"] if picture else []
    return "\n".join([*lines, ""])


def _comparison(path: Path, base: Path) -> str:
    found = re.findall(r"^\d+\. (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    plain = [LINK.sub(lambda link: link[2], sentence) for sentence in found[:SENTENCES]]
    answer = [f"{n}. {sentence}" for n, sentence in enumerate(plain, 1)]
    link = [f"[comparison]({path.relative_to(base)})\n"] if path.is_relative_to(base) else []
    return "\n".join([f"### {path.stem}\n", *link, *answer, ""])


def kept_picture(entry: Entry) -> str:
    """Return the name in docs/pictures of the picture that stands for a report."""
    return f"{entry.name}-{entry.pictures[0]}"


def without_lost_links(text: str, kept: set[str]) -> str:
    """Return markdown without pictures that are not `kept`; links to other files become text."""

    def mended(link: re.Match[str]) -> str:
        file = link[3].partition("#")[0]
        if not file or "://" in link[3] or file in kept:
            return link[0]
        return "" if link[1] else link[2]

    lines = ((line, LINK.sub(mended, line)) for line in text.splitlines())
    left = "\n".join(new for old, new in lines if new.strip() or not old.strip())
    return re.sub(r"\n{3,}", "\n\n", left) + "\n"


def lost_links(page: Path) -> Iterator[str]:
    """Yield the links of a page that lead to no file, or to no place in a page."""
    text = page.read_text(encoding="utf-8")
    for _, _, link in LINK.findall(re.sub(r"^(`{3,}).*?^\1$", "", text, flags=re.M | re.S)):
        if "://" in link:
            continue
        file, _, anchor = link.partition("#")
        target = page.parent / file if file else page
        if not target.exists():
            yield f"{page}: {link}: no such file"
        elif anchor and target.suffix == ".md" and anchor not in _anchors(target):
            yield f"{page}: {link}: no such place"


def _anchors(page: Path) -> set[str]:
    text = page.read_text(encoding="utf-8")
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    slugs = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
    return slugs | set(re.findall(r'\bid="([^"]+)"', text))


def replay(folder: Path, name: str) -> Entry:
    """Replay a recorded run to `folder`/`name`, or render a copy where it has no recipe."""
    run, capture, recipe = folder / name, CAPTURES / f"h200-{name}", f"recipes/{name}.yaml"
    if (ROOT / recipe).is_file():
        prof("run", recipe, "--replay", capture, "--out", run)
    else:
        shutil.copytree(capture, run)
        prof("report", run)
    return Entry(name, run / "report")


def compare(folder: Path, pair: tuple[str, str]) -> Path:
    """Compare two recorded runs; return the page."""
    command: list[str | Path] = ["compare"]
    runs = {}
    for name, option in zip(pair, ("--repeat-a", "--repeat-b"), strict=True):
        for path in sorted((CAPTURES / "compare").glob(f"{name}*")):
            if path.name == name or path.name[len(name) :] in ("-2", "-3"):
                shutil.copytree(path, folder / "runs" / path.name, dirs_exist_ok=True)
                runs[path.name] = option
    command += [folder / "runs" / name for name in pair]
    for name, option in runs.items():
        command += [] if name in pair else [option, folder / "runs" / name]
    page = folder / f"{'-'.join(pair)}.md"
    prof(*command, "-o", page)
    return page


def names() -> list[str]:
    """Return the recorded runs of the gallery; the proof tells of the further sets of defects."""
    found = {path.name.removeprefix("h200-") for path in CAPTURES.glob("h200-*")}
    others = sorted(n for n in found if not n.startswith("planted-defects-"))
    return [n for n in dict.fromkeys((*FIRST, *others)) if n in found]


def render(folder: Path) -> tuple[list[Entry], list[Path]]:
    """Render the recorded runs and their comparisons into `folder`, as many at once as cores."""
    (folder / "compared").mkdir(parents=True)
    with pool(os.cpu_count() or 1) as processes:
        entries = processes.map(partial(replay, folder), names())
        pages = processes.map(partial(compare, folder / "compared"), COMPARISONS)
        found = list(entries), list(pages)
    (folder / "gallery.md").write_text(render_page(*found, folder), encoding="utf-8")
    return found


def docs_texts(entries: Sequence[Entry], comparisons: Sequence[Path]) -> dict[str, str]:
    """Return the texts that docs/ shows of the recorded runs, by their paths in docs/."""
    (example,) = (entry for entry in entries if entry.name == EXAMPLE)
    kept = {*PAGES, *example.pictures[: 1 + IN_EXAMPLE]}
    texts = {
        f"example/{page}": without_lost_links(
            (example.folder / page).read_text(encoding="utf-8"), kept
        )
        for page in PAGES
    }
    return texts | {"gallery.md": render_page(entries, comparisons, ROOT / "docs")}


def notebook(entries: Sequence[Entry]) -> str:
    """Return the cells of docs/notebooks.md, executed on the example."""
    (example,) = (entry for entry in entries if entry.name == EXAMPLE)
    page = (ROOT / "docs" / "notebooks.md").read_text(encoding="utf-8")
    return executed_page(page, example.folder.parent)


def docs_pictures(entries: Sequence[Entry]) -> dict[str, Path]:
    """Return the pictures that docs/ shows, by their paths in docs/."""
    found = {f"pictures/{kept_picture(e)}": e.folder / e.pictures[0] for e in entries
             if e.name in IN_DOCS}  # fmt: skip
    (example,) = (entry for entry in entries if entry.name == EXAMPLE)
    names = example.pictures[: 1 + IN_EXAMPLE]
    return found | {f"example/{name}": example.folder / name for name in names}


def faults(folder: Path, texts: dict[str, str], pictures: Sequence[str], docs: Path) -> list[str]:
    """Return what is out of date in `docs`, and which links of `folder` and `docs` are lost."""
    found = []
    for name, text in texts.items():
        path = docs / name
        old = path.read_text(encoding="utf-8") if path.is_file() else ""
        if old != text:
            lines = difflib.unified_diff(old.splitlines(), text.splitlines(), name, "rendered", n=0)
            found.append("\n".join([f"docs/{name} is not what the code renders", *lines][:20]))
    found += [f"docs/{name} is not there" for name in pictures if not (docs / name).is_file()]
    pages = [path for path in sorted(folder.rglob("*.md")) if "steps" not in path.parts]
    pages += [docs / name for name in texts if name.endswith(".md") and (docs / name).is_file()]
    return found + [link for page in pages for link in lost_links(page)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Write or check what docs/ shows of the recorded runs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args(arguments)
    docs = ROOT / "docs"
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "gallery" if options.check else GALLERY
        if not options.check:
            shutil.rmtree(folder, ignore_errors=True)
        entries, comparisons = render(folder)
        texts, pictures = docs_texts(entries, comparisons), docs_pictures(entries)
        texts["notebook.ipynb"] = notebook(entries)
        if not options.check:
            for name in ("example", "pictures"):
                shutil.rmtree(docs / name, ignore_errors=True)
                (docs / name).mkdir()
            for name, text in texts.items():
                (docs / name).write_text(text, encoding="utf-8")
            for name, path in pictures.items():
                shutil.copy(path, docs / name)
        wrong = faults(folder, texts, list(pictures), docs)
    for fault in wrong:
        print(fault, file=sys.stderr)
    if wrong:
        print("error: the reports of the recorded runs\n\nhint: scripts/example", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
