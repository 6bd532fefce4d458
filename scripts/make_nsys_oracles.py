"""Makes the oracle results of `nsys stats` for the tests of the nsys reader.

    make_nsys_oracles.py --nsys /path/to/nsys EXPORTS_FOLDER

For each SQLite export below EXPORTS_FOLDER (the real exports that the tests use) it writes what
real nsys says to tests/fixtures/nsys_stats, as CSV packed with xz. Run it again after a change of
the exports, or to compare with another version of nsys.
"""

from __future__ import annotations

import argparse
import lzma
import shutil
import subprocess
import tempfile
from pathlib import Path

OUT = Path(__file__).resolve().parent.parent / "tests" / "fixtures" / "nsys_stats"
REPORTS = (
    "cuda_gpu_kern_sum",
    "cuda_gpu_kern_gb_sum",
    "nvtx_kern_sum",
    "cuda_gpu_mem_time_sum",
    "cuda_api_sum",
)


def main() -> None:
    """Make all oracle results and the README that says how."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("exports", type=Path)
    parser.add_argument("--nsys", default="nsys")
    options = parser.parse_args()
    OUT.mkdir(parents=True, exist_ok=True)
    for old in OUT.glob("*.csv.xz"):
        old.unlink()
    for export in sorted(options.exports.rglob("nsys/*/*.sqlite")):
        for report in REPORTS:
            text = stats(options.nsys, export, report)
            if text:
                name = f"{export.parent.name}__{export.stem}__{report}.csv.xz"
                (OUT / name).write_bytes(lzma.compress(text.encode()))
                print(name, len(text.splitlines()) - 1, "rows")
    version = subprocess.run(
        [options.nsys, "--version"], capture_output=True, text=True, check=True
    ).stdout.strip()
    (OUT / "README.md").write_text(README.format(version=version, reports=", ".join(REPORTS)))


def stats(nsys: str, export: Path, report: str) -> str:
    """Output of one report as CSV; empty where the export has no such data."""
    with tempfile.TemporaryDirectory() as folder:
        copy = shutil.copy(export, folder)  # nsys stats adds indices to the file it reads
        argv = [nsys, "stats", "-q", "-r", report, "--format", "csv", copy]
        found = subprocess.run(argv, capture_output=True, text=True, check=False).stdout
    head = next((n for n, line in enumerate(found.splitlines()) if line.count(",") > 4), None)
    return "" if head is None else "\n".join(found.splitlines()[head:]).strip() + "\n"


README = """\
# What real `nsys stats` says about the real exports

`<folder>__<file>__<report>.csv.xz`, made by `scripts/make_nsys_oracles.py` with
{version}

    nsys stats -q -r REPORT --format csv FILE.sqlite

for the reports {reports}. A report without a file: the export has no such data.
The exports themselves are not here: the tests take them from the `real_exports` fixture.
"""

if __name__ == "__main__":
    main()
