"""Plan of the memory patterns by hand-worked numbers, CPU twins, and the maps of the kernels."""

import json
import re
from argparse import Namespace
from pathlib import Path

import jsonschema
import pytest

torch = pytest.importorskip("torch")

from nsight_prof.targets import memory_patterns, memory_patterns_access, memory_patterns_mix  # noqa: E402
from nsight_prof.targets.harness import Case, Setup  # noqa: E402
from nsight_prof.targets.memory_patterns_kernels import TILE_BYTES, size_text  # noqa: E402

SIZE, TABLE = 6144 << 20, 8192 << 20
GPU = Namespace(device="cuda", size_mib=6144, table_mib=8192)
CPU = Namespace(device="cpu", size_mib=6144, table_mib=8192)
SCHEMA = Path(memory_patterns.__file__).parents[1] / "parsers/bench.schema.json"
SOURCE = Path(memory_patterns.__file__).with_suffix(".cu").read_text(encoding="utf-8")


def mixes() -> list[memory_patterns_mix.Mix]:
    return list(memory_patterns_mix.plan(SIZE, memory_patterns_mix.RUNS, warps=True))


def test_every_mix_moves_the_same_bytes_in_its_ratio() -> None:
    for mix in mixes():
        assert mix.read_bytes + mix.write_bytes == SIZE
        assert mix.read_bytes * mix.writes == mix.write_bytes * mix.reads
        assert mix.read_bytes % TILE_BYTES == mix.write_bytes % TILE_BYTES == 0


def test_all_ratios_have_several_granularities_and_the_pure_ones_no_switch() -> None:
    ways: dict[str, set[int]] = {}
    for mix in mixes():
        ways.setdefault(f"{mix.reads}:{mix.writes}", set()).add(mix.run_bytes)
    assert set(ways) == {"1:0", "7:1", "3:1", "2:1", "1:1", "1:2", "0:1"}
    assert ways.pop("1:0") == ways.pop("0:1") == {0}
    assert all(len(runs) >= 8 for runs in ways.values())
    assert [m.switches for m in mixes() if m.way == "alone"] == [0, 0]


@pytest.mark.parametrize(
    ("reads", "writes", "run", "switches"),
    [
        (1, 1, 128 << 20, 24),  # 3 GiB written, 128 MiB at a time
        (7, 1, 16 << 10, 49152),  # 768 MiB in runs of 16 KiB
        (1, 2, 8 << 20, 256),  # 2 GiB read, 8 MiB at a time
        (3, 1, 512, 3145728),  # 1.5 GiB, 512 B of a warp at a time
    ],
)
def test_switches_by_hand(reads: int, writes: int, run: int, switches: int) -> None:
    (mix,) = [m for m in mixes() if (m.reads, m.writes, m.run_bytes) == (reads, writes, run)]
    assert mix.switches == switches


def order_of(reads: int, writes: int, blocks: int) -> list[str]:
    """Which tile each block of mix_runs moves, as the kernel computes it."""
    order = []
    for block in range(blocks):
        period, at = divmod(block, reads + writes)
        if at < reads:
            order.append(f"r{period * reads + at}")
        else:
            order.append(f"w{period * writes + at - reads}")
    return order


def test_the_block_map_moves_every_tile_once_and_switches_as_often_as_counted() -> None:
    for mix in memory_patterns_mix.plan(24 * TILE_BYTES, (TILE_BYTES, 2 * TILE_BYTES), warps=False):
        if mix.way not in ("runs", "whole"):
            continue
        run = mix.run_bytes // TILE_BYTES
        order = order_of(mix.reads * run, mix.writes * run, mix.size // TILE_BYTES)
        reads, writes = mix.read_bytes // TILE_BYTES, mix.write_bytes // TILE_BYTES
        assert sorted(order) == sorted(
            [*(f"r{i}" for i in range(reads)), *(f"w{i}" for i in range(writes))]
        )
        # Calls follow each other, so the wrap counts.
        after = zip(order, order[1:] + order[:1], strict=True)
        turns = sum(a[0] == "w" and b[0] == "r" for a, b in after)
        assert turns == mix.switches


def test_the_warp_kernels_repeat_as_often_as_the_plan_says() -> None:
    made = re.findall(r"^MIX_WARP\((\d), (\d), (\d)\)", SOURCE, flags=re.MULTILINE)
    assert {(int(r), int(w)): int(u) for r, w, u in made} == memory_patterns_mix.WARP_UNITS


def test_every_item_has_a_kernel_of_its_size() -> None:
    widths = {"u32": 4, "uint2": 8, "uint4": 16}
    made = re.findall(r"^GATHER\((\d+), (\w+), (\d+)\)", SOURCE, flags=re.MULTILINE)
    assert [int(size) for size, _, _ in made] == list(memory_patterns_access.ITEMS)
    assert all(int(size) == widths[part] * int(lanes) for size, part, lanes in made)


def test_useful_bytes_of_strides_and_gathers_by_hand() -> None:
    cases = {case.name: case for case in memory_patterns.cases(GPU)}
    assert cases["stride/read/1"].work.bytes == TABLE
    assert cases["stride/read/4"].work.bytes == TABLE / 4
    # 8 GiB / 3 in whole tiles of 16 KiB: 174,762 of them.
    assert cases["stride/read/3"].work.bytes == 174_762 * 16_384
    gather = cases["gather/random/4"]
    assert gather.work.bytes == 2**24 * (4 + 4)
    assert (gather.params["gathered_bytes"], gather.params["index_bytes"]) == (2**26, 2**26)


def test_there_are_few_enough_cases_and_none_touches_less_than_twice_an_l2() -> None:
    cases = list(memory_patterns.cases(GPU))
    assert len(cases) <= 80
    assert len({case.name for case in cases}) == len(cases)
    assert min(case.footprint_bytes for case in cases) > 2 * (60 << 20)


@pytest.mark.parametrize("case", list(memory_patterns.cases(CPU)), ids=lambda case: case.name)
def test_each_case_runs_on_a_cpu(case: Case) -> None:
    setup = Setup(torch.device("cpu"), 2, "normal", 0, 1 << 20)
    calls = case.prepare(setup)
    assert len(calls) == 2
    for call in calls:
        call()


def test_the_records_follow_the_schema(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "records.jsonl"
    options = ["--device", "cpu", "--out", str(out), "--case-time", "0.01", "--min-samples", "2"]
    only = r"^(mix/1-1/whole|stride/write/4|gather/random/8)"
    assert memory_patterns.main([*options, "--only", only]) == 0
    assert "GB/s" in capsys.readouterr().err
    records = [json.loads(line) for line in out.read_text().splitlines()]
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    for record in records:
        jsonschema.validate(record, schema)
    measured = [record for record in records if record["record"] == "case"]
    assert [record["status"] for record in measured] == ["ok"] * 3
    assert {record["params"]["pattern"] for record in measured} == {"mix", "stride", "gather"}


def test_random_places_are_within_the_table_and_the_same_again() -> None:
    setup = Setup(torch.device("cpu"), 1, "normal", 3, 1 << 20)
    first = memory_patterns_access._indices(setup, 0, 1000, 77, ordered=False)
    again = memory_patterns_access._indices(setup, 0, 1000, 77, ordered=False)
    assert bool((first == again).all())
    assert int(first.min()) >= 0
    assert int(first.max()) < 77
    assert len(set(first.tolist())) > 60


def test_sizes_in_words() -> None:
    assert [size_text(n) for n in (512, 16 << 10, 128 << 20, 1000)] == [
        "512 B",
        "16 KiB",
        "128 MiB",
        "1000 B",
    ]
