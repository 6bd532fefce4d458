"""Writes down what prof predicts of whole networks before their times are looked at.

    python scripts/predict_networks.py captures/h100-network-kernels NAME

Every bundled network at every batch that targets/network_kernels/networks.py measures, launched by
the host, in a CUDA graph, and compiled where that is known; to captures/prediction/before/NAME.csv.
Commit it before the truth is read; scripts/pages/networks.py holds it against the recorded times.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import click
import pandas as pd

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from nsight_prof.orchestrator.predict.networks import Measured  # noqa: E402
from nsight_prof.orchestrator.predict.run_folder import opened  # noqa: E402
from nsight_prof.parsers.operations.networks import bundled_networks, read_network  # noqa: E402
from scripts.pages.accuracy.captures import copy_captures  # noqa: E402

BEFORE = ROOT / "captures" / "prediction" / "before"
BATCHES = (1, 4, 8, 16, 20, 32, 64)


def predicted(run: str) -> pd.DataFrame:
    """Return a row for each network, batch and way of launching, from a recorded run."""
    with tempfile.TemporaryDirectory() as folder:
        copy_captures(Path(folder), [run])
        measured = Measured((opened(Path(folder) / run),))
        rows = []
        for name in bundled_networks():
            for batch in BATCHES:
                for time in measured.times(read_network(name).at(batch)):
                    seconds, low, high, tier = time.seconds
                    rows.append(
                        {"network": name, "batch": batch, "launch": time.launch,
                         "seconds": seconds, "low": low, "high": high, "bound": time.bound,
                         "tier": tier}
                    )  # fmt: skip
    return pd.DataFrame(rows)


@click.command(help=(__doc__ or "").splitlines()[0])
@click.argument("run")
@click.argument("name")
def main(run: str, name: str) -> None:
    """Write the file."""
    path = BEFORE / f"{name}.csv"
    if path.exists():
        raise click.ClickException(f"{path} is there: what was predicted is not predicted again")
    run = Path(run).resolve().relative_to(ROOT / "captures").as_posix()
    predicted(run).to_csv(path, index=False, float_format="%.6g")
    click.echo(path)


if __name__ == "__main__":
    main()
