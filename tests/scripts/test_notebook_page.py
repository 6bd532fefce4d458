"""Cells that are executed as a notebook shows them."""

import json
from pathlib import Path

from scripts.pages.notebook_page import executed, executed_page

PAGE = """# Page

```python
class Box:
    def _repr_html_(self):
        return "<b>3</b>"

x = 3
print("seen")
Box()
```

Text.

```python
y = x + 1
```

```python
__import__("pathlib").Path("runs/mine/name.txt").read_text() + str(y)
```
"""


def test_a_cell_keeps_what_it_prints_and_what_it_shows(tmp_path: Path) -> None:
    (tmp_path / "name.txt").write_text("run ")
    notebook = json.loads(executed_page(PAGE, tmp_path))
    _, box, silent, value = notebook["cells"]
    printed, shown = box["outputs"]
    assert printed["text"] == ["seen\n"]
    assert shown["data"]["text/html"] == ["<b>3</b>"]
    assert silent["outputs"] == []
    assert value["outputs"][0]["data"] == {"text/plain": ["'run 4'"]}
    assert [cell.get("execution_count") for cell in notebook["cells"]] == [None, 1, 2, 3]


def test_the_kept_notebook_has_the_cells_of_the_page(root: Path) -> None:
    notebook = json.loads((root / "docs" / "notebook.ipynb").read_text(encoding="utf-8"))
    page = (root / "docs" / "notebooks.md").read_text(encoding="utf-8")
    code = ["".join(c["source"]) for c in notebook["cells"] if c["cell_type"] == "code"]
    assert code
    assert all(f"```python\n{cell}\n```" in page for cell in code)
    shown = [out for cell in notebook["cells"] for out in cell.get("outputs", [])]
    assert any("<svg" in "".join(out.get("data", {}).get("text/html", "")) for out in shown)


def test_names_of_one_cell_are_there_in_the_next() -> None:
    first, second = executed(["a = 2\n", "a * 3\n"])
    assert first["outputs"] == []
    assert second["outputs"][0]["data"]["text/plain"] == ["6"]
