"""Recorded runs: those that tests replay by the recipe of their name, and copies with tables."""

import re
import shutil
from pathlib import Path

from nsight_prof.parsers.build.load import load_run
from nsight_prof.parsers.build.run_tables import build_tables
from nsight_prof.parsers.run.directory import RunDir
from nsight_prof.parsers.run.run import Run

ROOT = Path(__file__).resolve().parent.parent
# The further sets of planted defects make the same pages; test_proof.py and its like read them.
REPLAYED = sorted(
    path.name
    for path in (ROOT / "captures").glob("h200-*")
    if not path.name.startswith("h200-planted-defects-")
)


def with_tables(name: str, folder: Path) -> Run:
    """Copy captures/`name` to the new folder `folder`, and make the tables of the copy."""
    shutil.copytree(ROOT / "captures" / name, folder)
    build_tables(RunDir(folder))
    return load_run(folder)


def whole_report(folder: Path) -> str:
    """All markdown pages of a report in `folder` as one text, links between them as on one page."""
    names = ["report.md", "details.md", *sorted(p.name for p in folder.glob("counters/*[0-9].md"))]
    paths = [folder / name for name in names[:2]] + [folder / "counters" / n for n in names[2:]]
    text = "\n".join(path.read_text(encoding="utf-8") for path in paths if path.is_file())
    return re.sub(r"\]\((?:[./a-z]*(?:report|details|kernel-\d+)\.md)#", "](#", text)
