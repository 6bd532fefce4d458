"""Writes the reference pages of docs/ and the schema of metrics.json from the code.

    python scripts/docs.py            write the pages
    python scripts/docs.py --check    say which are out of date; exit code 1 if any

A page is never edited by hand: change the help text, the field's description or the YAML.
"""

from __future__ import annotations

import difflib
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
sys.path.insert(0, str(ROOT))

import click  # noqa: E402

from nsight_prof.orchestrator.cli import group  # noqa: E402
from nsight_prof.orchestrator.recipe.files import bundled  # noqa: E402
from nsight_prof.orchestrator.recipe.read import load_recipe, recipe_schema  # noqa: E402
from nsight_prof.parsers.metrics import formulas  # noqa: E402
from nsight_prof.parsers.metrics.catalogue import Catalogue, MetricColumn, catalogue  # noqa: E402
from nsight_prof.parsers.tables import DTYPES, tables  # noqa: E402
from nsight_prof.reports.render.metrics_json import schema  # noqa: E402
from scripts.api_docs import render_api, render_metrics_json  # noqa: E402
from scripts.pages.networks import networks_page  # noqa: E402
from scripts.pages.noise_floor import BOARDS, ENGINES, STARTS, noise_floor  # noqa: E402
from scripts.pages.rules_page import rules_page  # noqa: E402
from scripts.pages.templates_page import templates_page  # noqa: E402

WIDTH = 96
MADE = "<!-- Written by scripts/docs.py from the code; do not edit. -->\n"
TABLES = {
    "gpus": "One row per GPU of the trace, with the facts that the roofs come from.",
    "launches": "One row per kernel launch.",
    "kernels": "One row per kernel: mangled name x grid x block. Most GPU time first.",
    "stages": "One row per stage of the program, and one for the whole capture.",
    "stage_instances": "One row per instance of a stage on each GPU where it has kernels.",
    "stage_kernels": "One row per kernel in a stage.",
    "devices": "One row per GPU in a process: which GPU each device index of the process is.",
    "gpu_stages": "One row per stage, and one for the whole capture, on each GPU.",
    "memory_operations": "One row per kind of copy or memset.",
    "api_calls": "One row per CUDA function that the program called.",
    "metrics": "Long: one row per counter of a profiled launch as the tool gave it, in full.",
    "source_lines": "One row per line of the source of a profiled kernel, from ncu's source page.",
    "source_instructions": "One row per instruction of such a kernel, in the order of the program.",
    "ncu_rules": "One row per result of ncu's own rules on a profiled launch.",
    "counter_files": "One row per file of ncu, where several were imported together.",
    "ranks": "One row per GPU of a rank, in a job of several ranks.",
    "rank_kernels": "One row per kernel, over the ranks of a job.",
    "rank_times": "Where the time of each GPU of a job goes, and how late it is; one row per GPU.",
    "rank_counters": "One row per kernel of a rank that ncu counted or nsys sampled.",
    "rank_stages": "What each stage of a job takes on each rank; one row per stage and rank.",
    "rank_bins": "Where the time of each GPU of a job goes over time; one row per bin and GPU.",
    "rank_steps": "Where the time of each step of a job goes; one row per step and GPU.",
    "rank_collectives": "One row per collective that ranks of a job share.",
    "collective_calls": "One row per call of such a collective: who arrived when, and the wait.",
    "collective_waits": "How long each GPU waited in a call; one row per call and GPU.",
    "joins": "One row per profiled launch: which kernel of the trace it is, or why none.",
    "counters": "Wide: one row per profiled kernel. Formulas: [metrics](metrics.md).",
    "stalls": "One row per stall reason of a profiled kernel.",
    "roofs": "One row per ceiling of the GPU: a memory level or a pipe.",
    "bench": "One row per case of a benchmark target: time over all processes, and counters.",
    "bench_runs": "One row per case and process.",
    "comm_roofs": "One row per collective, number of GPUs and size whose bandwidth was measured.",
    "measured_roofs": "One row per measured roof: the best candidate that counters confirm.",
    "ridge_points": "One row per pair of pipe and memory level, for each source of roofs.",
    "serving_points": "One row per case of a serving benchmark: a batch, load or generation.",
    "requests": "One row per request of a serving case.",
    "host_steps": "One row per step of the serving engine, as the host timed it.",
    "host_loops": "The loop of `host_speed` on an engine's own thread; one row per repeat.",
    "phases": "One row per phase of a serving benchmark: start, warm-up, measurement.",
    "telemetry": "One row per sample of a GPU by NVML, beside the measurement.",
    "host_speed": "How fast the host was: one row per program of a step, before, during and after.",
    "engine_stats": "One row per sample of the serving engine's own counters.",
    "engines": "One row per start of the serving engine, with how it was configured.",
    "predictions": "One row per request: what the model answered, and where the whole of it is.",
    "stage_work": "One row per stage: FLOPs and bytes, as the target counted them.",
    "module_work": "One row per module of a model: parameters, FLOPs and activations, as counted.",
    "operator_work": "One row per stage and operator: FLOPs, as the target counted them.",
    "vllm_totals": "One row per repeat: what vLLM's own counters say of it.",
    "engine_steps": "One row per step of the serving engine in the trace, for each GPU.",
    "engine_gaps": "One row per cause of idle time of the GPU in a step.",
    "idle_gaps": "One row per cause of idle time of the GPU in a stage, and what the host did.",
    "gpu_idle_gaps": "The same for each GPU: one row per cause of its own idle time in a stage.",
    "host_ranges": "One row per NVTX range of the eight busiest threads, or per bin of short ones.",
    "host_lines": "One row per line of Python in a stage, from samples of the host's stacks. The "
    "interpreter lets stacks be read only at calls and ends of loops: samples of statements "
    "without calls are given back to these, by the text of the lines.",
    "thread_lines": "One row per line of a Python thread that makes no CUDA call, from samples.",
    "timed_lines": "One row per line of the program's own Python code, timed in a further run "
    "(`trace.launch_lines`).",
    "line_timers": "One row per process of Python whose lines were timed (`trace.launch_lines`).",
    "recompilations": "One row per line that a guard of torch.compile is about, which failed "
    "(`trace.launch_lines`).",
    "timed_calls": "One row per kind of CUDA call and line of Python that made it "
    "(`trace.launch_lines`).",
    "launch_lines": "One row per kernel and line of Python that launched it "
    "(`trace.launch_lines`).",
    "fused_lines": "One row per kernel and line of the program that torch.compile fused into it "
    "(`operators.enabled`).",
    "gpu_samples": "Sampled use of a GPU: one row per metric of a kernel, and of a stage.",
    "collectives": "One row per call of NCCL on a rank, from the payloads of its NVTX ranges.",
    "modules": "One row per module of the model in a stage, from layer-wise NVTX ranges.",
    "module_kernels": "One row per kernel in a module of the model, in a stage.",
    "operators": "One row per operator and its shapes in a stage, from the torch profiler.",
    "operator_values": "One row per operator, line of the program and shapes: repeated, zero and "
    "unread values (`values.enabled`).",
    "value_profiles": "One row per process whose values were recorded (`values.enabled`).",
    "cublas_calls": "One row per different matrix product of cuBLASLt's log (`trace.cublas_log`).",
    "stage_memory": "GPU memory of each stage by torch's allocator, with `operators.detailed`.",
    "gemms": "One row per matrix product of the model in a stage: operator, kernel, roof share.",
    "predicted_points": "One row per serving point that was predicted.",
    "predicted_networks": "One row per pass of a whole network that was predicted.",
    "predicted_needs": "One row per measurement and quantity that it would tell more of.",
    "predicted_notes": "One row per thing that a prediction assumes or does not know.",
    "predicted_changes": "One row per predicted point with another choice of its owner.",
    "predicted_steps": "One row per predicted engine step: the prefill and a decode of a point.",
    "predicted_operators": "One row per operator of a predicted step or network.",
    "prediction_errors": "One row per prediction that was held against a recorded run.",
    "imported_operators": "One row per operator that a foreign benchmark measured.",
    "gaps": "One row per missing value and its reason. What is unknown is empty, never 0.",
}
VARIABLES = {
    "PATH": "where nsys, ncu and the target are found",
    "NO_COLOR": "any value: no colours",
    "TMPDIR": "folder for what prof unpacks for a moment; nsys and ncu use it too",
    "XDG_CACHE_HOME": "folder of prof's cache: measured roofs, and the shim for the nsys inside "
    "Nsight Compute; ~/.cache else",
    "PROF_NSYS_LIBS": "folders, joined by `:`, with libraries that nsys's importer lacks (libdw)",
    "PROF_TARGET_PYTHON": "interpreter with torch that `scripts/demo` gives to the target",
    "PROF_RECIPES": "folders, joined by `:`, with your own recipes and groups; they go before "
    "~/.config/prof and the bundled ones",
    "PROF_RESULTS": "set by prof for the programs that it profiles: a file for JSON lines, with "
    "what a program has to tell (docs/vllm.md)",
    "PROF_LINES": "set by prof for the further run of `trace.launch_lines`: a folder into which "
    "Python times its lines",
    "PROF_PROCESS_MARK": "set by prof for the programs that it starts, to find what they leave",
    "PROF_PROCESS_OWNER": "set by prof for them, too: which prof began them, to find what it left "
    "when it was killed",
    "PROF_SHARED": "for the tests: folder with real exports; its tests are skipped without it",
    "PROF_NSIGHT": "for the tests: folder with a real nsys and ncu; tests of them are skipped else",
}


def render_cli() -> str:
    """Render the help of every command, and the environment variables."""
    parts = [
        MADE,
        "# Commands\n",
        "`prof COMMAND --help` prints the same. Exit codes: 0 ok, 1 a step failed, 2 asked wrong, "
        "3 a tool, GPU\nor permission is missing, 4 a file cannot be read, 130 interrupted, "
        "141 the reader of the\noutput is gone. Errors go to stderr as `error: …` and `hint: …`.\n",
    ]
    for path, command in commands(group, "prof"):
        context = click.Context(
            command,
            info_name=path,
            terminal_width=WIDTH,
            help_option_names=group.context_settings["help_option_names"],
        )
        parts.append(f"## {path}\n\n```text\n{_plain(command.get_help(context))}\n```\n")
    rows = [[f"`{name}`", meaning] for name, meaning in VARIABLES.items()]
    parts.append("## Environment variables\n\n" + table(["variable", "meaning"], rows))
    return "\n".join(parts)


def commands(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    """Give a command and all below it, each with its whole name."""
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            if child is not None:
                yield from commands(child, f"{path} {name}")


def render_recipes() -> str:
    """Render the bundled recipes and every key of the schema."""
    schema = recipe_schema()
    listed = [
        [f"[{path.stem}](../recipes/{path.name})", load_recipe(path).question] for path in bundled()
    ]
    return "\n".join(
        [
            MADE,
            "# Recipes\n",
            RECIPES_INTRODUCTION,
            "## Bundled recipes\n",
            table(["recipe", "question"], listed),
            "## Keys\n",
            "Unknown keys are refused by name. `prof recipe schema` prints the JSON Schema.\n",
            table(["key", "values", "default", "meaning"], list(_keys(schema, schema, ""))),
        ]
    )


RECIPES_INTRODUCTION = """\
A recipe is one YAML file that asks one question about one program. `prof run NAME` takes a path or
the name of a bundled recipe.

- **Build on another:** `extends: top-kernels` (a name or a path), or several: `extends: [a, b]`, of
  which later ones go over earlier ones. Mappings are merged, lists and values replaced; a recipe
  that names another program starts with no arguments.
- **Override:** `prof run NAME --set select.top_k=5 --set 'capture={nvtx: decode}'`. The value is
  YAML; any key may be set, and `target.args` takes any argument of the program.
- **Choose parts:** `prof run inference --set model=vit-base --set profiling=quick` puts
  `model/vit-base.yaml` and `profiling/quick.yaml` over the recipe and under all other `--set`.
  Groups are `model`, `dataset`, `hardware`, `workload` and `profiling`: folders beside the recipe,
  among your own, and bundled.
- **Your own first:** names and groups are sought in the folders of `PROF_RECIPES`, then in
  `~/.config/prof`, then among the bundled ones. A recipe of yours may extend the bundled one of its
  name.
- **Sweep:** `sweep: {target.args.batch: [1, 8]}`, or over a group: `sweep: {model: [vit-base,
  resnet-50]}`. Every combination is a run in `variants/`, and one report compares them.
- **Measure:** `bench: {processes: 3}` runs a benchmark target un-profiled in fresh processes, then
  once under ncu, which counts each case; there is no trace and no selection. The target takes
  `--out FILE --process N --repeat N --count`, and writes one line per case
  ([records](bench-records.md)). `prof run roofline --repeat 3` says how well the roofs repeat.
- **See more than kernels:** `operators: {enabled: true}` runs a torch program once more under the
  torch profiler, for operators and shapes; `values: {enabled: true}` once more to say what they
  compute again, what is zero and what nobody reads; `untraced: {enabled: true}` runs it without a
  profiler, so that the report can say what profiling costs. `args` of `trace`, `counters`,
  `operators`, `values` and `untraced` change the program's arguments in that step alone: a shorter
  run under ncu, say.
- **Name stages:** `stages: {prefill: ^ctx_.*, decode: ^gen_.*}`: all ranges that match are one.
- **Look before:** `prof recipe check FILE`, `prof recipe show NAME --resolved`, and
  `prof run NAME --dry-run` for the exact commands.
  `--resolved` says where each value comes from.
- **Write your own:** `prof init train.py --batch 8`, or `prof recipe show top-kernels > mine.yaml`.
"""


def _keys(schema: dict[str, Any], part: dict[str, Any], prefix: str) -> Iterator[list[str]]:
    for name, facts in part["properties"].items():
        key = f"{prefix}{name}"
        inner = [schema["$defs"][reference] for reference in _references(facts)]
        required = name in part.get("required", ()) or (not prefix and name in ("name", "target"))
        default = "" if required or inner and "default" not in facts else _default(facts)
        yield [f"`{key}`", _values(facts), default, facts["description"]]
        for model in inner:
            yield from _keys(schema, model, f"{key}.")


def _references(facts: dict[str, Any]) -> list[str]:
    options = [facts, *facts.get("oneOf", ()), *facts.get("anyOf", ())]
    return [option["$ref"].rpartition("/")[2] for option in options if "$ref" in option]


def _default(facts: dict[str, Any]) -> str:
    value = facts.get("default", [] if facts.get("type") == "array" else {})
    if value in ({}, [], ""):
        return "empty"
    if value is None:
        return "null"
    if isinstance(value, list):
        return ", ".join(f"`{item}`" for item in value)
    if isinstance(value, float):
        return f"`{value:g}`"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _values(facts: dict[str, Any]) -> str:
    """Say in words what a key takes."""
    if "$ref" in facts:
        return "mapping"
    for several in ("anyOf", "oneOf"):
        if several in facts:
            return " or ".join(dict.fromkeys(_values(option) for option in facts[several]))
    if "const" in facts:
        return f"`{facts['const']}`"
    if "enum" in facts:
        return ", ".join(f"`{value}`" for value in facts["enum"])
    kind = facts.get("type")
    if kind == "array":
        of = _values(facts["items"]) if facts.get("items") else "any value"
        return f"list of {of}"
    if isinstance(kind, list):
        return "text"  # numbers too: the program sees text
    words = {
        "string": "regex" if facts.get("format") == "regex" else "text",
        "integer": "whole number",
        "boolean": "true or false",
        "object": "mapping",
    }
    if "pattern" in facts and "s|m|min|h" in facts["pattern"]:
        return "text like 90s, 10m, 1.5h"
    return words.get(str(kind), str(kind))


def render_tables() -> str:
    """Render the contract of every table."""
    parts = [
        MADE,
        "# Tables\n",
        "Every run has these in `tables/` as Parquet and CSV (a table of over 200,000 rows as "
        "Parquet alone). Units\nstand in the column's name or in a `unit` column. What is unknown "
        "is empty, never 0; `gaps` says why.\n",
        "`tables/sentences.json` has the English sentences with values that the tables hold, by "
        "their words:\n`message` with placeholders as Python's `str.format` takes them, and "
        "`values`, which make these words again;\na value that is a sentence stands there by its "
        "words. Reports in other languages are made from it; `sentences`\nof `manifest.json` and "
        "`roofs.json` are the same of theirs.\n",
    ]
    for name, columns in tables().items():
        rows = [[f"`{c.name}`", str(DTYPES[c.dtype]), c.unit, c.meaning] for c in columns]
        parts.append(f"## {name}\n\n{TABLES[name]}\n")
        parts.append(table(["column", "dtype", "unit", "meaning"], rows))
    return "\n".join(parts)


def render_metrics() -> str:
    """Render the catalogue: sets with their passes, and how each column is made."""
    known = catalogue()
    parts = [
        MADE,
        "# Metrics\n",
        "`prof metrics` prints the same for one chip. A column takes the first of its sources that "
        "the capture has.\n",
        "## Chips\n",
        table(["chip", "products"], [[chip, known.products[chip]] for chip in known.chips]),
        "## Sets\n",
        "Passes of a set for itself, bf16 Tensor operations counted, as NVIDIA's CUPTI library "
        "plans them; ncu\nadds about one.\n",
        table(["set", "meaning", *known.chips], _passes(known)),
        table(["set", "columns"], _sets(known)),
        "## Columns of `counters`\n",
    ]
    for column in known.columns.values():
        parts.append(_column(column))
    parts += ["## Formulas\n", table(["formula", "meaning"], _formulas(known))]
    parts.append("## Stall reasons\n")
    rows = [[f"`{s.reason}`", s.label, f"`{s.metric}`"] for s in known.stalls]
    parts.append(table(["reason", "meaning", "metric"], rows))
    return "\n".join(parts)


def _passes(known: Catalogue) -> list[list[str]]:
    rows = []
    for name, chosen in known.sets.items():
        counts = [known.passes([name], chip, ["bf16"]) for chip in known.chips]
        rows.append([f"`{name}`", chosen.meaning, *("" if n is None else str(n) for n in counts)])
    return rows


def _formulas(known: Catalogue) -> list[list[str]]:
    used = {source.formula for column in known.columns.values() for source in column.sources}
    meanings = {name: (getattr(formulas, name).__doc__ or "").split("\n\n")[0] for name in used}
    return [[f"`{name}`", meanings[name]] for name in sorted(used - {"same"})]


def _sets(known: Catalogue) -> list[list[str]]:
    return [[f"`{s.name}`", ", ".join(f"`{c}`" for c in s.columns)] for s in known.sets.values()]


def _column(column: MetricColumn) -> str:
    unit = f" [{column.unit}]" if column.unit else ""
    lines = [f"### {column.name}{unit}\n", f"{column.label}: {column.meaning}.\n"]
    for source in column.sources:
        chips = f" ({', '.join(source.chips)})" if source.chips else ""
        inputs = ", ".join(f"`{name}`" for name in source.of)
        formula = "" if source.formula == "same" else f"`{source.formula}` of "
        lines.append(f"- {formula}{inputs}{chips}")
    if column.gate is not None:
        lines.append(f"- Outside of {column.gate[0]:g} to {column.gate[1]:g}: not available.")
    return "\n".join([*lines, ""])


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Render a markdown table."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(map(_cell, line)) + " |" for line in lines) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _plain(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.splitlines())


PAGES: dict[str, Callable[[], str]] = {
    "cli.md": render_cli,
    "recipes.md": render_recipes,
    "tables.md": render_tables,
    "metrics.md": render_metrics,
    "api.md": lambda: MADE + render_api(TABLES),
    "metrics-json.md": lambda: MADE + render_metrics_json(),
    "rules.md": lambda: MADE + rules_page(),
    "noise-floor.md": lambda: (
        f"{MADE}\n"
        + noise_floor(
            *([ROOT / "captures" / name for name in names] for names in (BOARDS, STARTS, ENGINES))
        )
    ),
    "networks.md": lambda: f"{MADE}\n{networks_page()}",
    "templates.md": lambda: f"{MADE}\n{templates_page()}",
    "../reports/metrics.schema.json": lambda: f"{json.dumps(schema(), indent=1)}\n",
}


def stale() -> dict[str, str]:
    """Return the pages that differ from the code, each with the difference."""
    found = {}
    for name, render in PAGES.items():
        path = DOCS / name
        old = path.read_text(encoding="utf-8") if path.is_file() else ""
        new = render()
        if old != new:
            pair = (old.splitlines(), new.splitlines())
            found[name] = "\n".join(difflib.unified_diff(*pair, name, "the code", lineterm=""))
    return found


def main(argv: Sequence[str]) -> int:
    """Write or check the pages."""
    if argv == ["--check"]:
        pages = stale()
        for difference in pages.values():
            print(difference)
        if pages:
            print(f"\nout of date: {', '.join(pages)}; write them: python scripts/docs.py")
        return 1 if pages else 0
    if argv:
        print(__doc__)
        return 2
    DOCS.mkdir(exist_ok=True)
    for name, render in PAGES.items():
        path, text = DOCS / name, render()
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            print(f"written: {os.path.normpath(f'docs/{name}')}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
