"""Prints the score of prof on the whole programs of tests/proof_programs, as markdown.

python scripts/score_programs.py                            of the recorded looks
python scripts/score_programs.py DIR                        of what scripts/run_programs.py left
python scripts/score_programs.py DIR --commit REF --keep second_look.json      and record it
python scripts/score_programs.py DIR --measured twelfth_set_look.json         add times of its twins
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from nsight_prof.parsers.errors import ProfError  # noqa: E402
from scripts.pages.looks_page import looks_page  # noqa: E402
from scripts.pages.programs import (  # noqa: E402
    LOOKS,
    PUBLIC,
    collect,
    read_look,
    section,
    with_measured_twins,
    write_look,
)
from scripts.run_programs import OWN, PROGRAMS, SETS  # noqa: E402


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the score, and write the look where it shall be kept."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", nargs="?", type=Path, metavar="DIR")
    parser.add_argument("--commit", default="HEAD", help="whose rules made the reports")
    parser.add_argument("--set", choices=(*SETS, PUBLIC), default=OWN, help="whose programs ran")
    parser.add_argument("--keep", choices=LOOKS, help="record it in the folder of the programs")
    parser.add_argument("--measured", choices=LOOKS, help="add times of actions and choices to it")
    asked = parser.parse_args(arguments)
    try:
        if asked.folder is not None and asked.measured:
            file = PROGRAMS / asked.measured
            write_look(file, with_measured_twins(read_look(file), asked.folder))
            return 0
        if asked.folder is None:
            print(looks_page())
            return 0
        revision = ["git", "-C", str(ROOT), "rev-parse", asked.commit]
        commit = subprocess.run(revision, capture_output=True, text=True, check=True).stdout.strip()
        look = collect(asked.folder, commit, asked.set)
        print("\n\n".join(section(LOOKS.get(asked.keep, "Whole programs"), look)))
        if asked.keep:
            write_look(PROGRAMS / asked.keep, look)
    except ProfError as error:
        print(f"error: {error.message}\n\nhint: {error.hint}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
