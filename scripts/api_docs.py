"""Renders the reference pages of the Python API and of metrics.json, for scripts/docs.py."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import cached_property
from pathlib import Path
from typing import Any

from nsight_prof.parsers.run.directory import Manifest
from nsight_prof.parsers.run.run import Run
from nsight_prof.parsers.tables import tables
from nsight_prof.reports.notebook import NotebookRun, load_run
from nsight_prof.reports.render.metrics_json import SCHEMA_VERSION, schema

EXAMPLE = Path(__file__).resolve().parent.parent / "docs" / "load_run.py"
API = """\
# Python API

`load_run` opens a run directory: one that `prof run` or `prof import` made, a recorded run of
`captures/`, or a variant of a sweep. It needs no GPU, no Nsight and no torch. Every table is a
pandas DataFrame that is read when it is first asked for; a table that the run does not have is
empty, with all its columns.

```python
from nsight_prof import load_run

run = load_run("runs/mine")
run.kernels.head()
```

Units stand in the names of columns (`_ns`, `_bytes`, `_pct`) or in [the list of
columns](tables.md). What is unknown is NaN or NA, never 0; `run.gaps` says why. `kernel_id` joins
`kernels`, `launches`, `counters`, `stalls`, `metrics` and `stage_kernels`, and is the same in every
run.
"""
PAGE_OF_METRICS = """\
# metrics.json

`report/metrics.json` holds every number and sentence of a report. Its format is a JSON Schema
(2020-12): [`reports/metrics.schema.json`](../reports/metrics.schema.json), in the installed package
`importlib.resources.files("nsight_prof.reports") / "metrics.schema.json"`. Numbers are in
base units (ns, B, B/s, FLOP/s, FLOP/B, Hz); shares and gains are fractions, keys that end in
`_pct` are per cent; `null` is unknown, and the list of gaps says why.

`schema_version` is {version}. It rises when a reader of older files would misread a newer one; new
keys may come without that, so ignore keys that you do not know. `kind` says which of the {count}
forms it is.

Version 2 differs from 1 in the members of `sections`, whose numbers keep their units:

| version 1 | version 2 |
| --- | --- |
| `title`, `intro`, `method` | `heading`, `texts` |
| `findings`: `sentence`, `limits`, `cases` | `verdict` with its `values`, `disproof`, `source` |
| `findings`: `evidence`, a text | `evidence`, a list of `label` and `value` |
| `tables`: `rows` of texts | `rows` of texts and numbers |
| `plain` | `facts` |
| `numbers` | `numbers`, the same |

and in those of `bench` that are sentences; its numbers stand where they stood:

| version 1 | version 2 |
| --- | --- |
| `overview`: `value`, a text | `value`, a text or a number with its unit |
| `doubts`: `text`, `plain` | `caveats`, the same |
| `conditions`, `environment` | table `conditions` of `trust`, a section |
| `left_out`, `gaps`, `protocol`, `assumptions`, `notes` | texts of `trust` |
| `roofs_measured_by`, `noun`, `counted` | told by `trust` |
"""
KINDS = {
    "ReportView": "a program that was profiled",
    "SweepView": "a comparison of the variants of a sweep",
    "BenchReport": "a benchmark",
    "JobView": "a job of several ranks",
    "PredictionView": "a prediction, or of a validation",
}


def render_api(rows_of: Mapping[str, str]) -> str:
    """Render docs/api.md; `rows_of` says for each table what a row of it is."""
    attributes = [[f"`{name}`", meaning] for name, meaning in _facts().items()]
    listed = [[f"[`{name}`](tables.md#{name})", rows_of[name]] for name in tables()]
    return "\n".join(
        [
            API,
            f"## load_run\n\n```text\n{_signature()}\n\n{inspect.getdoc(load_run)}\n```\n",
            "## Run\n",
            _table(["attribute", "meaning"], attributes),
            "## Tables\n",
            _table(["attribute", "contents"], listed),
            "## Example\n",
            "[`docs/load_run.py`](load_run.py), for any run:\n",
            f"```python\n{EXAMPLE.read_text(encoding='utf-8').rstrip()}\n```\n",
            "What a notebook shows of a run: [notebooks](notebooks.md).\n",
            "Without Python: `prof export RUN --format csv -o FOLDER` or `--format parquet`, and "
            "`prof export RUN -o\ntimeline.json.gz` for [Perfetto](https://ui.perfetto.dev) "
            "([commands](cli.md)). The report as JSON:\n[metrics.json](metrics-json.md).\n",
        ]
    )


def _facts() -> dict[str, str]:
    """Attributes of a run that are no tables."""
    found = {
        "path": "The run directory.",
        "manifest": f"From manifest.json: {', '.join(f'`{f.name}`' for f in fields(Manifest))}.",
    }
    for name, value in {**vars(Run), **vars(NotebookRun)}.items():
        of_class = isinstance(value, (property, cached_property)) or name == "figure"
        if of_class and name not in tables() and not name.startswith("_"):
            found[name] = _first(inspect.getdoc(value))
    return found


def _signature() -> str:
    return f"load_run{inspect.signature(load_run)}"


def _first(text: str | None) -> str:
    return " ".join((text or "").split("\n\n")[0].split())


def render_metrics_json() -> str:
    """Render docs/metrics-json.md: the top-level keys of each kind."""
    whole = schema()
    parts = [PAGE_OF_METRICS.format(version=SCHEMA_VERSION, count=len(KINDS))]
    for name, what in KINDS.items():
        model = whole["$defs"][name]
        kind = model["properties"]["kind"]["const"]
        rows = [[f"`{key}`", _type(facts)] for key, facts in model["properties"].items()]
        parts += [f"## {kind}\n", f"The report of {what}. {model['description']}\n"]
        parts.append(_table(["key", "value"], rows))
    used = [name for name in whole["$defs"] if name not in KINDS]
    parts.append("## Objects\n")
    for name in sorted(used):
        model = whole["$defs"][name]
        keys = ", ".join(f"`{key}`" for key in model["properties"])
        parts.append(f"### {name}\n\n{model['description']}\n\nKeys: {keys}.\n")
    return "\n".join(parts)


def _type(facts: Mapping[str, Any]) -> str:
    """Say in a few words what a key holds."""
    if "const" in facts:
        return f"`{facts['const']}`"
    if "$ref" in facts:
        name = str(facts["$ref"]).rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in facts:
        return " or ".join(_type(option) for option in facts["anyOf"])
    if facts.get("type") == "array":
        return f"list of {_type(facts['items'])}"
    return str(facts.get("type", "anything"))


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return (
        "\n".join("| " + " | ".join(c.replace("|", "\\|") for c in row) + " |" for row in lines)
        + "\n"
    )
