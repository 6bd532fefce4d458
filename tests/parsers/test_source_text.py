"""What the text of lines that ran tells: uses of a result, repeated calls, work of no pass."""

import pandas as pd
import pytest

from nsight_prof.parsers.names.source_text import (
    Result,
    loop_around,
    loop_over_results,
    results,
    written_to_be_read,
)


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


def test_items_of_a_loop_take_what_is_of_their_own_pass() -> None:
    text = """
        for record, answer in zip(records, answers):
        loss = error(model(record), answer)
        found = torch.autograd.grad(loss, weights)
        state = update(state, found)
        return state
    """
    frame = lines(text, 1300, 1280, 1280, 1280, 10)
    assert [at(frame, line).is_item for line in range(10, 15)] == [False, True, True, False, False]
    # The weights of a pass are those that an optimizer left in the one before.
    trained = lines(
        text.replace("state = update(state, found)", "optimizer.step()"), *frame["hits"]
    )
    assert not any(result.is_item for result in results(trained).values())


def test_only_what_nothing_derives_again_is_last() -> None:
    once = lines(
        "e = self.energy(x)\n(f,) = torch.autograd.grad(e.sum(), x, create_graph=True)", 5, 5
    )
    assert [at(once, line).is_last for line in (10, 11)] == [False, True]
    again = lines("loss.backward()", 5, first=30).assign(function="train")
    assert not any(result.is_last for result in results(pd.concat([once, again])).values())


@pytest.mark.parametrize(
    ("head", "told"),
    [
        ("for walker in done.nonzero().flatten().tolist():", True),
        ("for walker in range(walkers):", False),
    ],
)
def test_a_loop_over_what_it_reads_back_is_known(head: str, told: bool) -> None:
    frame = lines(f"{head}\nself.ages[walker] = 0", 1010, 1000)
    found = loop_over_results(frame, "a.py", "forward", 11)
    assert found == ((10, head) if told else None)


def test_the_loop_around_lines_runs_once_more_than_they_do() -> None:
    head = "for at, p in enumerate(self.params):"
    frame = lines(f"for step in range(60):\n{head}\nchange = p.grad - p\np.add_(change)",
                  61, 8940, 8880, 8880)  # fmt: skip
    assert loop_around(frame, "a.py", "forward", [12, 13]) == (11, head)
    assert loop_around(frame, "a.py", "forward", [11]) is None


@pytest.mark.parametrize(
    ("text", "constant"),
    [
        ("table = self.scale * self.codes.to(x.dtype)\nwide = table.float()", [10, 11]),
        ("table = self.scale * x\nwide = table.float()", []),
        ("table = self.scale + 1\nself.scale.mul_(2)", []),
        ("table = self.codes + 1\ntorch._foreach_mul_(self.codes, 2)", []),
        ("table = self.codes + 1\nself.codes.append(x)", []),
        ("codes = self.codes\nwide = codes.float()", []),  # another name, which may change it
    ],
)
def test_what_comes_of_attributes_that_nothing_changes_is_constant(
    text: str, constant: list[int]
) -> None:
    frame = lines(text, 20, 20)
    assert [line for line in (10, 11) if at(frame, line).is_constant] == constant


@pytest.mark.parametrize(
    ("text", "is_table"),
    [
        (
            "at = torch.arange(n, device=dev)\nfar = at - at[:, None]\nreturn self.bias(far)",
            True,
        ),
        ("at = torch.arange(n, device=x.device)\nfar = at[None] - x\nreturn self.bias(far)", False),
        ("at = self.places\nfar = at[None] - at[:, None]\nreturn self.bias(far)", False),
    ],
)
def test_a_table_of_a_number_is_the_same_wherever_sizes_are(text: str, is_table: bool) -> None:
    frame = lines(text, 80, 80, 80)
    assert [at(frame, line).is_table for line in (10, 12)] == [is_table, is_table]
    loop = lines("for layer in layers:\nx = layer(x, self.far(x.shape[1]))\nreturn x", 90, 80, 10)
    assert at(loop, 11).is_fixed
    assert not at(
        lines("for k in n:\nx = layer(x, self.far(x))\nreturn x", 90, 80, 10), 11
    ).is_fixed


def test_what_a_function_returns_is_known() -> None:
    frame = lines("total += y.mean()\nspread = y.std()\nreturn total / steps", 20, 20, 1)
    assert [at(frame, line).is_returned for line in (10, 11)] == [True, False]


@pytest.mark.parametrize(
    ("text", "writer"),
    [
        ("b = x.new_empty(n)\nf(x, b)\ng(b, c)\nreturn c", 11),
        ("b = x.new_empty(n)\nf(x, b)\ng(b, c)\nreturn b, c", 0),  # needed elsewhere, too
        ("b = x.clone()\nf(x, b)\ng(b, c)\nreturn c", 0),  # nobody knows who writes it
    ],
)
def test_new_memory_that_two_lines_alone_take_is_written_by_the_first(
    text: str, writer: int
) -> None:
    frame = lines(text, 9, 9, 9, 9)
    assert written_to_be_read(frame, "a.py", "forward", [12, 11]) == writer
