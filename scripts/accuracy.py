"""Writes docs/accuracy.md and accuracy-models.md: how far predictions lie from what was recorded.

python scripts/accuracy.py            writes the pages
python scripts/accuracy.py --check    exits with 1 where they are not what the captures give

With --aiconfigurator DIR it writes docs/accuracy-imported.md: the same with operators that others
measured as a source. DIR is a checkout of https://github.com/ai-dynamo/aiconfigurator; nothing of
it is kept here, so that only who has it can write or check this page.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # run from anywhere

from scripts.pages.accuracy.captures import forget  # noqa: E402
from scripts.pages.accuracy.imported import render_imported  # noqa: E402
from scripts.pages.accuracy.page import render  # noqa: E402
from scripts.pages.accuracy.residuals import (  # noqa: E402
    HOST_RESIDUALS,
    HOST_SPEEDS,
    POINT_RESIDUALS,
    RESIDUALS,
    SLOWDOWNS,
    host_residuals,
    host_speeds,
    point_residuals,
    residuals,
    slowdowns,
)

DOCS = ROOT / "docs"


def main(argv: Sequence[str]) -> int:
    """Write or check the page."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--check", action="store_true", help="exit with 1 where the page is stale")
    parser.add_argument("--aiconfigurator", type=Path, metavar="DIR", help="its checkout")
    given = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="prof-accuracy-") as name:
        folder, tables = Path(name), given.aiconfigurator
        if tables is not None:
            return _settle(
                DOCS / "accuracy-imported.md", render_imported(folder, tables), given.check
            )
        # Each rests on what is written before it.
        made = (
            (HOST_SPEEDS, host_speeds), (SLOWDOWNS, slowdowns), (RESIDUALS, residuals),
            (POINT_RESIDUALS, point_residuals), (HOST_RESIDUALS, host_residuals),
        )  # fmt: skip
        stale = [_settle(path, make(folder), given.check) for path, make in made]
        stale += [_settle(DOCS / page, text, given.check) for page, text in render(folder).items()]
        return max(stale)


def _settle(path: Path, text: str, check: bool) -> int:
    """Write a file, or return 1 where it is not so."""
    name = path.relative_to(ROOT)
    if not check:
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            forget()
        print(name)
        return 0
    if path.is_file() and path.read_text(encoding="utf-8") == text:
        return 0
    print(f"{name} is not what its sources give; write it: python scripts/accuracy.py")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
