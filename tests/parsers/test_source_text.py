"""What the text of lines that ran tells: uses of a result, repeated calls, work of no pass."""

import pandas as pd
import pytest

from nsight_prof.parsers.names.source_text import Result, results


def lines(text: str, *hits: int, first: int = 10) -> pd.DataFrame:
    """Table `timed_lines` of a function, a line of text each."""
    sources = [line.strip() for line in text.strip().splitlines()]
    rows = {"line": range(first, first + len(sources)), "source": sources, "hits": hits}
    return pd.DataFrame(rows).assign(file="a.py", function="forward")


def at(frame: pd.DataFrame, line: int) -> Result:
    return results(frame)["a.py", line]


def test_uses_are_those_of_the_same_function() -> None:
    first = lines("y = torch.relu(self.filter(x))\nreturn y[::2]", 8, 8)
    other = lines("y = self.head(x)\nreturn y + self.y", 8, 8, first=20)
    assert at(pd.concat([first, other]), 10).uses == ["return RESULT[::2]"]
    assert at(pd.concat([first, other]), 20).uses == ["return RESULT + self.y"]


@pytest.mark.parametrize(
    ("text", "again"),
    [
        ("loss = error(model(x), y)\nright += count(model(x), y)", True),
        ("x = model(x)\nright += count(model(x), y)", False),  # of another x
        ("loss = error(model(x), y)\nx.add_(1)\nright += count(model(x), y)", False),
        ("a = torch.rand(n)\nb = torch.rand(n)", False),
    ],
)
def test_a_call_is_made_again_where_nothing_changed_what_it_takes(text: str, again: bool) -> None:
    count = text.count("\n") + 1
    assert at(lines(text, *[4] * count), 9 + count).again == again


@pytest.mark.parametrize(
    ("work", "is_same"),
    [
        ("kernel = torch.exp(-costs / fuzziness)", True),
        ("kernel = torch.exp(-costs / scale)", False),
        ("kernel = torch.exp(-costs) * torch.rand_like(costs)", False),
    ],
)
def test_work_of_a_loop_is_the_same_where_no_pass_changes_what_it_takes(
    work: str, is_same: bool
) -> None:
    text = (
        f"scale = ones\nfor _ in range(50):\n{work}\nscale = rows / (kernel @ scale)\nreturn scale"
    )
    assert at(lines(text, 20, 1020, 1000, 1000, 20), 12).is_same == is_same
