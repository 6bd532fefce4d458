#!/usr/bin/env python3
"""Writes the intervals of gains that reports give, from the first looks at whole programs.

scripts/gain_intervals.py            writes reports/findings/gain_intervals.yaml
scripts/gain_intervals.py --check    fails where it is not what it would be
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from scripts.pages.gain_intervals import as_yaml  # noqa: E402

FILE = ROOT / "reports" / "findings" / "gain_intervals.yaml"


def main() -> int:
    """Write the file, or say whether it is what it would be."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true")
    found = as_yaml()
    if not parser.parse_args().check:
        FILE.write_text(found, encoding="utf-8")
    elif FILE.read_text(encoding="utf-8") != found:
        print(
            f"error: {FILE.relative_to(ROOT)} is not what the first looks say\n\n"
            "hint: scripts/gain_intervals.py",
            file=sys.stderr,
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
