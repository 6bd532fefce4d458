"""Executes the cells of docs/notebooks.md on a recorded run, as a notebook shows them."""

from __future__ import annotations

import ast
import contextlib
import io
import json
import os
import re
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

CELL = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
HEAD = (
    "# A recorded run in a notebook\n\n"
    "[What each cell is](notebooks.md). Written by `scripts/example`."
)


def executed_page(page: str, run: Path) -> str:
    """Return the cells of a page as an executed notebook (nbformat 4.5); `run` is its runs/mine."""
    cells = [_markdown(HEAD)]
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "runs").mkdir()
        os.symlink(run.resolve(), Path(folder) / "runs" / "mine")
        with contextlib.chdir(folder):
            cells += executed(CELL.findall(page))
    notebook = {
        "cells": [cell | {"id": f"cell-{n}"} for n, cell in enumerate(cells)],
        "metadata": {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"


def executed(sources: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Run cells one after the other, and yield each with what it printed and what it shows."""
    names: dict[str, Any] = {}
    for number, source in enumerate(sources, 1):
        tree = ast.parse(source)
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(tree, "notebook", "exec"), names)
            shown = None
            if isinstance(last, ast.Expr):
                shown = eval(compile(ast.Expression(last.value), "notebook", "eval"), names)
        yield {
            "cell_type": "code",
            "execution_count": number,
            "metadata": {},
            "outputs": list(_outputs(printed.getvalue(), shown, number)),
            "source": source.rstrip("\n").splitlines(keepends=True),
        }


def _outputs(printed: str, shown: Any, number: int) -> Iterator[dict[str, Any]]:
    if printed:
        yield {
            "name": "stdout",
            "output_type": "stream",
            "text": printed.splitlines(keepends=True),
        }
    if shown is None:
        return
    data = {"text/plain": repr(shown)}
    for kind, name in (("text/html", "_repr_html_"), ("image/svg+xml", "_repr_svg_")):
        if len(data) == 1 and hasattr(shown, name) and (text := getattr(shown, name)()):
            data[kind] = text
    yield {
        "data": {kind: text.splitlines(keepends=True) for kind, text in data.items()},
        "execution_count": number,
        "metadata": {},
        "output_type": "execute_result",
    }


def _markdown(text: str) -> dict[str, Any]:
    return {"cell_type": "markdown", "metadata": {}, "source": text.splitlines(keepends=True)}
