"""Writes the bundled lists of operations that `prof predict` adds up: parsers/operations/lists.

    python scripts/bundled_networks.py [--check]     # needs torch, no GPU

Each is what targets/static_compute.py lists of a network of targets/network_kernels/networks.py,
for one image or sequence. --check writes nothing and fails where a file would change.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch

from nsight_prof.targets.network_kernels.calls import list_calls
from nsight_prof.targets.network_kernels.networks import NETWORKS, Network

FOLDER = Path(__file__).resolve().parent.parent / "parsers" / "operations" / "lists"


def text(network: Network) -> str:
    """Return the list of a network as JSON, an operation a line."""
    with torch.device("meta"):
        calls = list_calls(*network.made(1))
    lines = ",\n".join(json.dumps(call, sort_keys=True) for call in calls)
    return f'{{"schema": 1, "model": {json.dumps(network.key)}, "calls": [\n{lines}\n]}}\n'


def main() -> int:
    """Write the files, or check them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    stale = []
    for network in NETWORKS.values():
        path = FOLDER / f"{network.key}.json"
        made = text(network)
        if path.exists() and path.read_text("utf-8") == made:
            continue
        stale.append(path.name)
        if not check:
            FOLDER.mkdir(exist_ok=True)
            path.write_text(made, "utf-8")
    print(f"{'stale' if check else 'written'}: {', '.join(stale) or 'none'}")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
