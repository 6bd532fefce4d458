"""Asks aiconfigurator for the batches and closed loops that captures/ holds.

    python -m venv VENV && VENV/bin/pip install aiconfigurator==0.12.0
    scripts/aiconfigurator_points.py --python VENV/bin/python

Its answers go to captures/prediction/aiconfigurator.json, which docs/accuracy.md sets beside those
of prof. Batches are asked for in its mode "static" (all requests start together), closed loops in
its mode "agg" (continuous batching of as many requests); loads of random arrivals it does not have.
Tables are the ones that it takes for vLLM on an H200 by itself, and on an H100 for engines there.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from nsight_prof.parsers.cells import Row

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # run from anywhere

from nsight_prof.orchestrator.predict.run_folder import opened  # noqa: E402
from scripts.pages.accuracy.captures import copy_captures  # noqa: E402
from scripts.pages.accuracy.peer import ANSWERS  # noqa: E402
from scripts.pages.accuracy.questions import (  # noqa: E402
    BATCHES,
    PEER_ELSEWHERE,
    SERVERS,
    WHOLE,
)

CONFIGS = ROOT / "targets" / "serving" / "configs"
ASK = """
import json, sys
from importlib.metadata import version
from aiconfigurator.cli.api import cli_estimate
print("@" + json.dumps(version("aiconfigurator")))
for line in sys.stdin:
    row = json.loads(line)
    try:
        found = cli_estimate(row.pop("config"), row.pop("system"), backend_name="vllm", **row)
    except Exception as error:  # a model (ValueError), or what it has no tables of
        reason = str(error).split(". ")[0].split(" at /")[0]
        print("@" + json.dumps({"refused": reason}), flush=True)
        continue
    raw = found.raw
    print("@" + json.dumps({key: raw[key] for key in ("ttft", "tpot", "tokens/s", "version")},
                           default=float), flush=True)
"""


def asked(work: Path) -> list[tuple[str, str, Row]]:
    """Return engine, case and arguments of cli_estimate of each recorded point, every one once."""
    found: dict[tuple[str, str], Row] = {}
    h200: Row = {"system": "h200_sxm", "tp_size": 1}
    engines = [
        (model, names, model, h200) for of in (BATCHES, SERVERS) for model, names in of.items()
    ]
    for engine, (model, told) in PEER_ELSEWHERE.items():
        h100: Row = {"system": "h100_sxm", "tp_size": 1} | told
        engines.append((engine, (f"{WHOLE}{engine}",), model, h100))
    for engine, names, model, told in engines:
        copy_captures(work, names)
        for load, _ in (point for name in names for point in opened(work / name).points()):
            if load.together and not load.rate:
                found[engine, load.name] = told | {
                    "config": str(CONFIGS / model), "mode": "static" if load.batch else "agg",
                    "isl": load.prompt, "osl": load.output, "batch_size": load.together,
                }  # fmt: skip
    return [(*key, arguments) for key, arguments in sorted(found.items())]


def main() -> int:
    """Ask, and write the answers."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--python", required=True, help="interpreter that has aiconfigurator")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="prof-points-") as folder:
        points = asked(Path(folder))
    done = subprocess.run(
        [given.python, "-W", "ignore", "-c", ASK], check=True, text=True, stdout=subprocess.PIPE,
        input="\n".join(json.dumps(arguments) for *_, arguments in points),
    )  # fmt: skip
    lines = [json.loads(line[1:]) for line in done.stdout.splitlines() if line.startswith("@")]
    answers: dict[str, dict[str, Row]] = {}
    refused: dict[str, str] = {}
    for (engine, case, _), found in zip(points, lines[1:], strict=True):
        if "refused" in found:
            refused[engine] = found["refused"]
            continue
        answers.setdefault(engine, {})[case] = {
            "ttft_p50_s": round(found["ttft"] / 1e3, 7),
            "tpot_p50_s": round(found["tpot"] / 1e3, 8),
            "output_tokens_per_s": round(found["tokens/s"], 2),
        }  # fmt: skip
    tables = sorted({found["version"] for found in lines[1:] if "version" in found})
    systems = sorted({arguments["system"] for *_, arguments in points})
    head = {"aiconfigurator": lines[0], "systems": systems, "framework": "vllm", "tables": tables}
    head |= {"refused": refused, "points": answers}
    ANSWERS.write_text(json.dumps(head, indent=1) + "\n", encoding="utf-8")
    print(ANSWERS.relative_to(ROOT))
    return 0


if __name__ == "__main__":
    sys.exit(main())
