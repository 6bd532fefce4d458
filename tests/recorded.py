"""The recorded runs that tests replay by the recipe of their name."""

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# The further sets of planted defects make the same pages; test_proof.py and its like read them.
REPLAYED = sorted(
    path.name
    for path in (ROOT / "captures").glob("h200-*")
    if not path.name.startswith("h200-planted-defects-")
)
