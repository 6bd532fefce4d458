"""Matching of kernels, on recorded launches that were changed so that the answer is known."""

import random
from collections import Counter
from collections.abc import Callable
from itertools import groupby
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsight_prof.parsers.names.kernel_names import classify
from nsight_prof.reports.compare.match import Row, align, ascending, match, operators
from nsight_prof.reports.compare.sides import Side

Maker = Callable[..., Side]
Launches = list[Any]
"""Of Launch, see conftest.py."""
HEAVY = ("gemm", "attention")


def rows_of(a: Side, b: Side) -> list[Row]:
    rows = match(a, b, {})
    for side, run in (("a", a.run), ("b", b.run)):
        calls: Counter[str] = Counter()
        for row in rows:
            for part in getattr(row, side):
                calls[part.kernel.kernel_id] += part.calls
        assert calls == Counter(run.launches["kernel_id"].astype(str)), "a launch is lost or twice"
    return rows


def fused(launches: Launches, shrink: float = 0.4) -> tuple[Launches, Counter[tuple[str, str]]]:
    """Replace what lies between two products by one Inductor kernel, as torch.compile does.

    Returns the launches and how many were replaced, by name of the kernel that replaced them.
    """
    made: Launches = []
    replaced: Counter[tuple[str, str]] = Counter()
    for heavy, group in groupby(launches, key=lambda x: (x.stage, x.category in HEAVY)):
        part = list(group)
        if heavy[1] or len(part) < 3:
            made += part
            continue
        found = sorted(set().union(*(operators(classify(x.name).short_name, x.name) for x in part)))
        name = f"triton_poi_fused_{'_'.join(found)}_{len(part)}"
        replaced[heavy[0], name] += len(part)
        first = part[0]
        made.append(
            type(first)(first.stage, name, "64x1x1", shrink * sum(x.duration for x in part))
        )
    return made, replaced


def test_a_run_matches_itself_kernel_by_kernel(make_run: Maker, recorded: Launches) -> None:
    rows = rows_of(make_run("A", recorded), make_run("B", recorded))
    assert {row.match for row in rows} == {"identical"}
    assert all(row.total_a == row.total_b for row in rows)


def test_the_order_of_streams_does_not_matter(make_run: Maker, recorded: Launches) -> None:
    shuffled = list(recorded)
    for at in range(0, len(shuffled) - 4, 5):
        shuffled[at : at + 4] = random.Random(at).sample(shuffled[at : at + 4], 4)
    rows = rows_of(make_run("A", recorded), make_run("B", shuffled))
    assert {row.match for row in rows} == {"identical"}


def test_what_a_compiler_fused_is_one_row_with_all_that_it_replaced(
    make_run: Maker, recorded: Launches
) -> None:
    compiled, replaced = fused(recorded)
    assert len(replaced) > 3
    for a, b, match_ in ((recorded, compiled, "fused"), (compiled, recorded, "split")):
        rows = rows_of(make_run("A", a), make_run("B", b))
        hubs = {
            (r.stage, (r.b if match_ == "fused" else r.a)[0].kernel.name): r
            for r in rows
            if r.match == match_
        }
        for key, launches in replaced.items():
            row = hubs[key]
            assert row.calls[0 if match_ == "fused" else 1] == launches, key
        heavy = [r for r in rows if r.a and r.a[0].kernel.category in HEAVY]
        assert {r.match for r in heavy} == {"identical"}


def test_another_batch_gives_other_shapes_of_the_same_kernels(
    make_run: Maker, recorded: Launches
) -> None:
    """Each grid grows, also to one that another kernel had before: roles must not be swapped."""

    def wider(grid: str) -> str:
        x, rest = grid.split("x", 1)
        return f"{int(x) * 4}x{rest}"

    wide = [type(x)(x.stage, x.name, wider(x.grid), x.duration * 3.5, x.block) for x in recorded]
    rows = rows_of(make_run("A", recorded), make_run("B", wide))
    assert {row.match for row in rows} == {"shape"}
    for row in rows:
        grids = {(wider(x.kernel.grid), y.kernel.grid) for x in row.a for y in row.b}
        assert all(x == y for x, y in grids)
        assert row.total_b == pytest.approx(3.5 * row.total_a, rel=1e-3)


def test_another_product_kernel_in_the_same_place(make_run: Maker, recorded: Launches) -> None:
    """A library picks another kernel, split over K, with a reduction behind each product."""
    chosen = Counter(x.name for x in recorded if x.category == "gemm" and x.stage == "decode")
    name = next(n for n, count in chosen.most_common() if "splitK" not in n and "split" not in n)
    other = "nvjet_sm90_tst_128x16_64x8_2x1_v_bz_splitK_TNT"
    made = []
    for x in recorded:
        if x.name != name:
            made.append(x)
            continue
        made.append(type(x)(x.stage, other, x.grid, x.duration * 0.8, x.block))
        made.append(
            type(x)(x.stage, "void cublasLt::splitKreduce_kernel<32, 16, int>(int)", "9x1x1", 900.0)
        )
    rows = rows_of(make_run("A", recorded), make_run("B", made))
    for stage, count in Counter(x.stage for x in recorded if x.name == name).items():
        (row,) = [r for r in rows if r.stage == stage and any(p.kernel.name == name for p in r.a)]
        assert row.match == "split"
        assert [p.calls for p in row.a] == [count]
        assert sorted(p.calls for p in row.b) == [count, count]


def test_new_and_gone_kernels_stay_alone(make_run: Maker, recorded: Launches) -> None:
    dropped = next(x.name for x in recorded if "argmax" in x.name.lower())
    added = type(recorded[0])("decode", "my_debug_kernel", "1x1x1", 5000.0)
    made = [x for x in recorded if x.name != dropped]
    rows = rows_of(make_run("A", recorded), make_run("B", [*made, added, added]))
    gone = {p.kernel.name for r in rows if r.match == "gone" for p in r.a}
    new = {p.kernel.name for r in rows if r.match == "new" for p in r.b}
    assert (gone, new) == ({dropped}, {"my_debug_kernel"})


def test_twice_the_steps_are_more_launches_of_the_same_kernels(
    make_run: Maker, recorded: Launches
) -> None:
    decode = [x for x in recorded if x.stage == "decode"]
    rows = rows_of(make_run("A", decode), make_run("B", [*decode, *decode]))
    assert {row.match for row in rows} == {"identical"}
    assert all(row.calls[1] == 2 * row.calls[0] for row in rows)


def test_different_programs_do_not_mix_products_with_other_kernels(
    make_run: Maker, recorded: Launches
) -> None:
    other = [
        type(recorded[0])("decode", f"kernel_{i % 7}", "9x1x1", 1000.0 + i) for i in range(500)
    ]
    for row in rows_of(make_run("A", recorded), make_run("B", other)):
        assert row.match in ("gone", "new"), row


words = st.lists(st.sampled_from("abcde"), max_size=40)


@given(words, words)
def test_alignment_keeps_order_and_loses_nothing(a: list[str], b: list[str]) -> None:
    pairs, stretches = align([(a, b)])
    xs, ys = [x for x, _ in pairs], [y for _, y in pairs]
    assert xs == sorted(set(xs))
    assert ys == sorted(set(ys))
    assert all(a[x] == b[y] for x, y in pairs)
    assert sorted([*xs, *(p for s in stretches for p in s[0])]) == list(range(len(a)))
    assert sorted([*ys, *(p for s in stretches for p in s[1])]) == list(range(len(b)))


@given(words)
def test_equal_sequences_align_wholly(a: list[str]) -> None:
    assert align([(a, a)])[0] == [(i, i) for i in range(len(a))]


@given(st.lists(st.integers(0, 20), max_size=12, unique=True))
@settings(max_examples=50)
def test_the_longest_ascending_chain_is_found(b: list[int]) -> None:
    """Against the plain dynamic programme."""
    best = [1] * len(b)
    for i in range(len(b)):
        best[i] = 1 + max((best[j] for j in range(i) if b[j] < b[i]), default=0)
    chain = ascending(list(enumerate(b)))
    assert len(chain) == max(best, default=0)
    assert all(p[1] < q[1] for p, q in zip(chain, chain[1:], strict=False))
