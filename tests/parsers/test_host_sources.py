"""The text of sampled lines is kept beside the trace, and tells work that leaves no frame."""

import json
from pathlib import Path

import pandas as pd
import pytest

from nsight_prof.parsers.names.activity import OWN_CODE
from nsight_prof.parsers.nsys.rows.host_sources import keep_sources, with_sources, working_line


def lines(**columns: list[object]) -> pd.DataFrame:
    rows = {"file": ["train.py"] * 3, "line": [1, 2, None], "work": ["", "", "printing"]}
    return pd.DataFrame(rows | columns).astype({"line": "Int64"})


def test_lines_are_kept_and_read_again(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("for step in steps:\n    gc.collect()\n")
    keep_sources(lines(), tmp_path, tmp_path / "sources.json")
    (tmp_path / "train.py").unlink()
    found = with_sources(lines(), tmp_path / "sources.json")
    assert list(found["source"]) == ["for step in steps:", "gc.collect()", ""]
    assert list(found["work"]) == ["", "collecting garbage", "printing"]


@pytest.mark.parametrize(
    ("source", "work"),
    [
        ("time.sleep(0.005)", "sleeping"),
        ('with open(path, "wb") as file:', "files"),
        ("order = np.argsort(scores)", "computing on the host"),
        ("noise = torch.randn(shape).to(device)", "tensors of the host"),
        ("noise = torch.randn(shape, device=x.device).to(x.dtype)", ""),
        ("x = torch.from_numpy(raw).to(device)", ""),
        ("loss = model(x)", ""),
    ],
)
def test_the_line_that_asks_tells_what_leaves_no_frame(
    tmp_path: Path, source: str, work: str
) -> None:
    (tmp_path / "train.py").write_text(source + "\n")
    keep_sources(lines(), tmp_path, tmp_path / "sources.json")
    ends = lines(inner=["", "/v/site-packages/torch/nn/functional.py:9 relu", ""], line=[1, 1, 1])
    assert list(with_sources(ends, tmp_path / "sources.json")["work"]) == [work, "", "printing"]


def test_without_the_file_no_text_is_known(tmp_path: Path) -> None:
    for path in (None, tmp_path / "absent.json"):
        assert set(with_sources(lines(), path)["source"]) == {""}
    (tmp_path / "odd.json").write_text('{"train.py": 3}')
    assert set(with_sources(lines(), tmp_path / "odd.json")["source"]) == {""}


@pytest.mark.parametrize(
    ("line", "works"),
    [(3, 2), (5, 6), (9, 9), (12, 12)],
)
def test_samples_of_pure_python_belong_to_what_stands_before_a_call_or_in_a_loop(
    line: int, works: int
) -> None:
    text = """for book in books:
    if book not in known:
    if len(fresh) == WANTED:
        break
while node > 1:
    sums[node // 2] = sums[node] + sums[node ^ 1]
    node //= 2
x = x + 1
loss.backward()
for layer in layers(x):
    y = 1
scores = model(x)
"""
    assert working_line(text.splitlines(), line, {line}) == works


@pytest.mark.parametrize("moved", ["two", "-2", "9" * 30, 2.5, None])
def test_samples_stay_where_the_file_names_no_line(tmp_path: Path, moved: object) -> None:
    (tmp_path / "sources.json").write_text(json.dumps({"train.py": {"1": "x", "1>": moved}}))
    sampled = lines(inner=["", "", ""], activity=[OWN_CODE] * 3)
    assert list(with_sources(sampled, tmp_path / "sources.json")["line"])[:2] == [1, 2]


def test_samples_are_of_the_line_that_the_file_names(tmp_path: Path) -> None:
    (tmp_path / "sources.json").write_text('{"train.py": {"1": "x", "1>": "2", "2": "y"}}')
    sampled = lines(inner=["", "", ""], activity=[OWN_CODE] * 3)
    found = with_sources(sampled, tmp_path / "sources.json")
    assert list(found["line"])[:2] == [2, 2]
    assert list(found["source"])[:2] == ["y", "y"]
