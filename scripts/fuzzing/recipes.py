"""Cases of recipes that somebody sent: mutated ones, and bombs."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import yaml

from nsight_prof.orchestrator.recipe.read import load_recipe
from scripts.fuzzing.case import ROOT, Case, Inputs, same
from scripts.fuzzing.mutations import mutate_bytes, mutate_plain

RECIPE = ROOT / "recipes/own-command.yaml"


def recipe_case(inputs: Inputs, folder: Path, rng: random.Random) -> Case:
    """A recipe that somebody sent."""
    path = folder / "mine.yaml"
    text = RECIPE.read_text("utf-8")
    data: Any = None
    if rng.random() < 0.35:
        path.write_bytes(mutate_bytes(text.encode(), rng))
    elif rng.random() < 0.2:
        path.write_text(rng.choice(BOMBS), "utf-8")
    else:
        whole = {
            "target": {"command": ["x", 1], "args": {"size": 4}, "env": {"A": "b"}},
            "stages": {"prefill": "^p.*", "decode": "d"}, "notes": ["one"],
            "sweep": {"target.args.batch": [1, 2], "select.top_k": [3, 4]},
            "counters": {"enabled": True, "sets": ["roofline"], "timeout": "10m"},
        }  # fmt: skip
        data = mutate_plain(whole, rng)
        text = json.dumps(data) if rng.random() < 0.5 else yaml.safe_dump(data)
        path.write_bytes(text.encode("utf-8", "surrogatepass"))
    check = ["recipe", "check", str(path)]
    verbs = (check, check, ["run", str(path), "--dry-run"])
    return Case(list(rng.choice(verbs)), lambda: _check_recipe(path, data))


def _check_recipe(path: Path, data: Any) -> None:
    resolved = load_recipe(path).to_dict()
    if not isinstance(data, dict):
        return
    for key in ("name", "question", "notes", "languages"):
        if key in data:
            given = data[key]
            if key == "notes" and isinstance(given, list):
                given = [str(note) for note in given]
            same(key, resolved[key], resolved[key] if given is None else given)


_LAUGHS = "\n".join(
    f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9) if i else 'x'}]" for i in range(12)
)
BOMBS = (
    f"target: {{command: [x], args: {{\n{_LAUGHS.replace(chr(10), ',' + chr(10))}}}}}",
    "target: {command: [x], args: &a {b: [*a]}}",
    "target: &t {command: [x], args: *t}",
    "target: {command: [x], args: {a: " + "[" * 10_000,
    "target: {command: [x]}\nsweep:\n"
    + "".join(f"  target.args.k{i}: [1, 2, 3, 4, 5]\n" for i in range(15)),
    'target: {command: [x], env: {"A=B": c}}',
    'target: {command: [x], env: {A: "\\0"}}',
    'target: {command: ["x\\0y"]}',
    "target: {command: [x]}\nstages: ['(a+)+$']",
    "target: {command: [x]}\nselect: {include: ['(a|a)*$']}",
    "target: {command: [x], args: {when: 2001-99-99}}",
    "target: {command: [x], args: {n: " + "9" * 5000 + "}}",
    "target: {command: [x], args: {? [a, b] : c}}",
    "target: {command: [x], args: {d: 2001-01-01, b: !!binary aGk=, s: !!set {a, b}}}",
    "name: " + "a" * 300 + "\ntarget: {command: [x]}",
    "target: {command: [x], cwd: " + "d" * 5000 + "}",
    "target: {command: [x]}\nextends: " + "e" * 5000,
    "target: {command: [x]}\nsweep: {target.args.a: [.nan, .nan]}",
    "target: {command: [x]}\nbench: {processes: 1000000000000}",
)
