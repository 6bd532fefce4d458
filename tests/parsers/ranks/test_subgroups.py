"""Collectives of groups of ranks: who waits for whom, and clocks that only others connect."""

import numpy as np
import pytest

from nsight_prof.parsers.ranks.waits import Calls, Kind, RankGpu, Waits, compare

TENSOR, DATA = ((0, 1), (2, 3)), ((0, 2), (1, 3))
"""Groups of four ranks that are two wide in tensors and in data."""
STEPS, TRANSFER_NS = 200, 50_000
OFFSETS_NS = (0, 3_000_000, -700_000, 40_000_000)


def job(
    groups: dict[str, tuple[tuple[int, ...], ...]], late_ns: dict[int, int]
) -> dict[RankGpu, dict[str, Calls]]:
    """Before each collective there is work of 1 ms, and what a rank is late by."""
    random = np.random.default_rng(7)
    ready = np.zeros(4)
    found: dict[RankGpu, dict[str, list[tuple[float, float]]]] = {(r, 0): {} for r in range(4)}
    for _ in range(STEPS):
        for name, of_kind in groups.items():
            arrive = ready + 1_000_000 + random.normal(0, 100, 4)
            for rank, late in late_ns.items():
                arrive[rank] += late
            for number, members in enumerate(of_kind):
                end = max(arrive[list(members)]) + TRANSFER_NS
                for rank in members:
                    key = f"{name} all-reduce 4096 0x{number:016x}"
                    own = end + random.normal(0, 50)
                    found[rank, 0].setdefault(key, []).append((arrive[rank], own - arrive[rank]))
                    ready[rank] = end
    return {
        gpu: {
            key: Calls(
                np.array([s + OFFSETS_NS[gpu[0]] for s, _ in calls]).astype(np.int64),
                np.array([d for _, d in calls]).astype(np.int64),
            )
            for key, calls in kinds.items()
        }
        for gpu, kinds in found.items()
    }


def compared(
    groups: dict[str, tuple[tuple[int, ...], ...]], late_ns: dict[int, int]
) -> tuple[dict[int, Waits], list[Kind]]:
    waits, kinds = compare(job(groups, late_ns))
    return {rank: found for (rank, _), found in waits.items()}, kinds


def test_only_the_group_of_a_late_rank_waits_for_it() -> None:
    waits, kinds = compared({"tensor": TENSOR, "all": ((0, 1, 2, 3),)}, {})
    assert [len(kind.gpus) for kind in kinds] == [2, 4, 2]
    assert {found.matched for found in waits.values()} == {2 * STEPS}
    waits, _ = compared({"tensor": TENSOR, "all": ((0, 1, 2, 3),)}, {3: 200_000})
    # Rank 2 waits 200 us for rank 3, then all wait for the two: 0 and 1 for 400 us, 2 for 200.
    # Rank 3 waits for nobody, and each of the others waits 400 us in all.
    for rank, late_us in {0: -400 / 3, 1: -400 / 3, 2: -400 / 3, 3: 400}.items():
        assert waits[rank].late_ns == pytest.approx(STEPS * late_us * 1e3, rel=0.02)
    assert waits[3].low_ns > 0
    assert waits[0].wait_ns == pytest.approx(STEPS * 400_000, rel=0.02)
    assert waits[2].wait_ns == pytest.approx(STEPS * 400_000, rel=0.02)
    assert waits[3].wait_ns < 0.01 * waits[2].wait_ns


def ended_ns(calls: dict[RankGpu, dict[str, Calls]]) -> float:
    """Return when the job is over: a job that a late rank slows ends later by what is lost."""
    last = [max((c.start + c.duration).max() for c in kinds.values()) for kinds in calls.values()]
    return float(max(np.array(last) - OFFSETS_NS))


def without_communicators(
    calls: dict[RankGpu, dict[str, Calls]],
) -> dict[RankGpu, dict[str, Calls]]:
    """Return the collectives as an NCCL without payloads shows them: all of one kernel."""
    found = {}
    for gpu, kinds in calls.items():
        starts = np.concatenate([of_kind.start for of_kind in kinds.values()])
        durations = np.concatenate([of_kind.duration for of_kind in kinds.values()])
        order = np.argsort(starts)
        found[gpu] = {"all-reduce": Calls(starts[order], durations[order])}
    return found


@pytest.mark.parametrize("late", range(4))
@pytest.mark.parametrize("late_ns", [20_000, 200_000])
def test_lateness_is_what_the_job_loses_where_each_rank_is_in_two_groups_of_one_size(
    late: int, late_ns: int
) -> None:
    calls = job({"tensor": TENSOR, "data": DATA}, {late: late_ns})
    lost = ended_ns(calls) - ended_ns(job({"tensor": TENSOR, "data": DATA}, {}))
    assert lost == pytest.approx(2 * STEPS * late_ns, rel=0.02)
    for known in (calls, without_communicators(calls)):
        waits, kinds = compare(known)
        assert [len(kind.gpus) for kind in kinds] == ([2] * 4 if known is calls else [4])
        named = [rank for (rank, _), found in waits.items() if found.low_ns > 0]
        assert named == [late]
        assert waits[late, 0].late_ns == pytest.approx(lost, rel=0.02)


def test_clocks_are_aligned_through_the_ranks_that_connect_two_groups() -> None:
    waits, _ = compared({"tensor": TENSOR, "data": DATA}, {})
    # Ranks 0 and 3 have no collective in common.
    for rank, offset in enumerate(OFFSETS_NS):
        clock = waits[rank].clock
        assert clock is not None
        assert clock.offset_ns == pytest.approx(offset, abs=500)
    direct, through = waits[1].clock, waits[3].clock
    assert direct is not None
    assert through is not None
    assert through.residual_p95_ns > direct.residual_p95_ns


def test_groups_that_nothing_connects_have_no_common_clock() -> None:
    waits, kinds = compared({"tensor": TENSOR}, {})
    assert [waits[rank].clock is None for rank in range(4)] == [False, False, True, True]
    # Waits need no clock, but that two collectives are the same one is known by theirs.
    assert [len(kind.gpus) for kind in kinds] == [2]
    assert waits[2].matched == 0


def test_a_kind_without_its_communicator_is_one_collective_only_where_all_have_it() -> None:
    calls = job({"tensor": TENSOR, "all": ((0, 1, 2, 3),)}, {})
    nameless = {
        gpu: {key.rpartition(" ")[0] if "tensor" in key else key: c for key, c in kinds.items()}
        for gpu, kinds in calls.items()
        if gpu != (3, 0)
    }
    nameless[3, 0] = {key: c for key, c in calls[3, 0].items() if "tensor" not in key}
    _, kinds = compare(nameless)
    assert [kind.key for kind in kinds] == ["all all-reduce 4096 0x0000000000000000"]
