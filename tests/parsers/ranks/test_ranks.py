"""Clocks, waits and times of ranks, where the answer is known: planted, or from the recording."""

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from nsight_prof.parsers import tables
from nsight_prof.parsers.build.rank_tables import build_rank_tables
from nsight_prof.parsers.cells import records
from nsight_prof.parsers.nsys.trace import open_trace
from nsight_prof.parsers.ranks.clocks import fit_clock
from nsight_prof.parsers.ranks.times import LATE, MOST_BINS
from nsight_prof.parsers.ranks.waits import Calls, compare
from nsight_prof.parsers.run.directory import RunDir, read_manifest, write_manifest
from nsight_prof.reports.engine import ranks
from nsight_prof.reports.engine.rank_times import straggler, times_row, waiting_findings
from nsight_prof.reports.page.markdown import section_markdown
from nsight_prof.reports.page.writer import Writer
from tests.made_up_ranks import Planted, write_job


@pytest.fixture(scope="module")
def recorded(root: Path) -> pd.DataFrame:
    """Collectives of two tensor-parallel ranks, by one clock."""
    with open_trace(root / "captures/h200-vllm-tensor-parallel/steps/1-trace/trace.sqlite.xz") as t:
        launches, kernels = t.launches(), t.kernels(with_stages=False)
    names = kernels.loc[kernels["category"] == "collective", "kernel_id"]
    found = launches[launches["kernel_id"].isin(names)].copy()
    found["end"] = (found["start_ns"] + found["duration_ns"]).astype("int64")
    return found


@pytest.mark.parametrize(("offset", "drift"), [(3_200_000, 8.0), (-300_000, 0.0), (0, -20.0)])
def test_a_planted_clock_is_found_from_the_ends_of_recorded_collectives(
    recorded: pd.DataFrame, offset: int, drift: float
) -> None:
    kinds = [
        tuple(part.loc[part["device"] == d, "end"].to_numpy(np.int64) for d in (0, 1))
        for _, part in recorded.groupby("kernel_id", observed=True)
    ]
    planted = [(a, b + offset + (b * drift * 1e-6).astype(np.int64)) for a, b in kinds]
    before, clock = fit_clock(kinds), fit_clock(planted)  # type: ignore[arg-type]
    assert before is not None
    assert clock is not None
    expected = offset + clock.at_ns * drift * 1e-6
    assert clock.offset_ns == pytest.approx(expected, abs=500)
    assert clock.drift_ppm == pytest.approx(drift, abs=1)
    assert 100 < clock.residual_p95_ns < 1000
    assert clock.pairs == len(recorded) // 2


def test_too_few_collectives_align_no_clock() -> None:
    ends = np.arange(7) * 1000
    assert fit_clock([(ends, ends + 5)]) is None


def read(folder: Path, ranks: int, planted: dict[int, Planted], **more: int) -> pd.DataFrame:
    job = write_job(folder, ranks, planted, **more)
    build_rank_tables(job)
    return tables.read(job.tables, "rank_times")


CAUSES = {
    "matrix products": (Planted(matrix=1.2), 8 * 20_000, "matrix products take 20"),
    "clock": (Planted(matrix=2.0, others=2.0), 8 * 100_000 + 12 * 25_000, "A lower clock"),
    "host": (Planted(sleep_ns=5_000_000), 5_000_000, "idle"),
    "input": (Planted(batch=1.5), 8 * 50_000 + 12 * 12_500, "Its input is larger: 100 %"),
    "work": (Planted(more=2), 2 * 102_000, "It has more work"),
}


@pytest.mark.parametrize("ranks", [2, 8])
@pytest.mark.parametrize("name", CAUSES)
def test_a_planted_straggler_is_named_with_its_time_and_cause(
    tmp_path: Path, name: str, ranks: int
) -> None:
    planted, a_step, words = CAUSES[name]
    slow = ranks - 1
    frame = read(tmp_path / "job", ranks, {slow: planted})
    rows = [times_row(row) for row in records(frame)]
    found = straggler(rows)
    assert found is not None
    assert found.rank == slow
    assert found.late_ns == pytest.approx(99 * a_step, rel=0.05)  # the first is left out
    sentence = Writer().text(next(iter(waiting_findings(rows, None))).verdict)
    assert f"Rank {slow} is late: the others wait" in sentence
    assert words in sentence
    if name == "host":
        assert "does something else than launch" in sentence


def test_balanced_ranks_have_no_straggler(tmp_path: Path) -> None:
    for seed in range(8):
        frame = read(tmp_path / str(seed), 4, {}, seed=seed, steps=50)
        assert straggler([times_row(row) for row in records(frame)]) is None


def test_too_few_collectives_tell_nobody_late_and_nobody_equal(tmp_path: Path) -> None:
    rows = [times_row(row) for row in records(read(tmp_path / "job", 2, {}, steps=8))]
    sentence = Writer().text(next(iter(waiting_findings(rows, None))).verdict)
    assert "is not known: the trace has 8 collectives" in sentence


def test_a_late_rank_is_named_and_shown_behind_the_rows_of_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranks, "MOST_RANKS", 2)
    job = write_job(tmp_path / "job", 4, {3: Planted(matrix=1.2)}, steps=30)
    build_rank_tables(job)
    page = section_markdown(ranks.job_section(ranks.job_view(job.path)))
    assert "Rank 3 is late: the others wait" in page
    assert "4 ranks gave work to 4 GPUs" in page
    assert page.count('<a id="rank_times-3+0"></a>') == 1


def test_a_rank_without_tables_is_named_and_the_others_are_reported(tmp_path: Path) -> None:
    job = write_job(tmp_path / "job", 3, {}, steps=20)
    shutil.rmtree(job.rank(1).tables)
    build_rank_tables(job, {1: "counters.ncu-rep is gone"})
    page = section_markdown(ranks.job_section(ranks.job_view(job.path)))
    assert "2 of 3 ranks have numbers" in page
    assert "Rank 1 (rank1) has no numbers: counters.ncu-rep is gone" in page.replace("`", "")
    assert tables.read(job.tables, "rank_times")["rank"].tolist() == [0, 2]


def noisy(seed: int, ranks: int, slower: float) -> list[tuple[int, int]]:
    """Return the GPUs that are named in a job of 60 steps whose hosts other programs disturb.

    Each rank is slower by 30 % for some ten steps, some sixty steps apart; the last by `slower`.
    """
    random = np.random.default_rng(seed)
    steps, transfer = 60, 200_000
    own = 2e6 * random.normal(1, 0.005, (ranks, steps))
    for of_rank in own:
        at = int(random.exponential(60))
        while at < steps:
            end = at + 1 + int(random.exponential(10))
            of_rank[at:end] *= 1.3
            at = end + int(random.exponential(60))
    own[-1] *= 1 + slower
    ready = own.max(axis=0)
    durations = (ready - own + transfer).astype(np.int64)
    ends = np.cumsum(ready + transfer).astype(np.int64)
    waits, _ = compare(
        {(r, 0): {"k": Calls(ends - took, took, took)} for r, took in enumerate(durations)}
    )
    late = {gpu: w.late_ns for gpu, w in waits.items() if w.low_ns > 0}
    return [gpu for gpu, time in late.items() if time >= LATE * ends[-1]]


@pytest.mark.parametrize("ranks", [2, 8])
def test_what_slows_ranks_by_chance_for_some_steps_names_hardly_any(ranks: int) -> None:
    """At 95 %, one job of twenty may."""
    assert sum(bool(noisy(seed, ranks, 0.0)) for seed in range(20)) <= 1
    named = [noisy(seed, ranks, 0.2) for seed in range(20)]
    assert {gpu for gpus in named for gpu in gpus} == {(ranks - 1, 0)}
    assert sum(map(len, named)) >= 14


def test_the_parts_of_each_rank_add_up_to_its_wall_time(tmp_path: Path) -> None:
    frame = read(tmp_path / "job", 4, {2: Planted(sleep_ns=1_000_000)})
    parts = frame[["compute_ns", "wait_ns", "transfer_ns", "copies_ns", "idle_ns"]].sum(axis=1)
    assert (parts == frame["wall_ns"]).all()
    # The transfer of 200 us is what remains where the last one waits for nobody.
    assert frame["transfer_ns"].to_numpy() == pytest.approx(100 * 200_000, rel=0.01)
    assert frame["wait_ns"][2] < 0.02 * frame["wait_ns"][0]


def test_steps_show_when_a_rank_was_slow(tmp_path: Path) -> None:
    job = write_job(tmp_path / "job", 4, {2: Planted(matrix=1.2)}, steps=50)
    build_rank_tables(job)
    frame = tables.read(job.tables, "rank_steps")
    assert frame.groupby("rank")["step"].count().tolist() == [50] * 4
    assert set(frame["stage"]) == {"step"}
    parts = frame[["compute_ns", "wait_ns", "transfer_ns", "other_ns"]].sum(axis=1)
    assert (parts == frame["wall_ns"]).all()
    # Products of 100 us, eight a step, take a fifth longer on rank 2, and on no other.
    own = frame.pivot_table(index="step", columns="rank", values="own_ns")
    assert own[2].mean() - own[[0, 1, 3]].mean().mean() == pytest.approx(8 * 20_000, rel=0.05)
    assert (own.idxmax(axis=1) == 2).all()
    times = tables.read(job.tables, "rank_times")
    waits = frame.groupby("rank")["wait_ns"].sum()
    assert waits[0] == pytest.approx(times["wait_ns"][0], rel=0.01)


def test_ranks_with_unlike_steps_are_not_compared_step_by_step(tmp_path: Path) -> None:
    job = write_job(tmp_path / "job", 2, {}, steps=20)
    folder = job.rank(1).tables
    instances = tables.read(folder, "stage_instances")
    tables.write(instances[:-1], "stage_instances", folder, csv=False)
    build_rank_tables(job)
    assert tables.read(job.tables, "rank_steps").empty


def test_waits_do_not_depend_on_clocks(tmp_path: Path) -> None:
    shifted = Planted(offset_ns=300_000_000, drift_ppm=15)
    frame = read(tmp_path / "job", 2, {1: shifted})
    assert frame["clock"].tolist() == ["reference", "collectives"]
    assert frame["clock_drift_ppm"][1] == pytest.approx(15, abs=1)
    assert frame["collectives"].tolist() == [100, 100]


def test_ranks_without_common_collectives_are_compared_in_nothing(tmp_path: Path) -> None:
    job = write_job(tmp_path / "job", 2, {}, steps=20)
    folder = job.rank(1).tables
    launches = tables.read(folder, "launches")
    tables.write(launches[launches["kernel_id"] != "nccl"], "launches", folder, csv=False)
    build_rank_tables(job)
    frame = tables.read(job.tables, "rank_times")
    assert frame["wait_ns"].isna().all()
    assert frame["late_ns"].isna().all()
    assert frame["clock"].tolist() == ["epoch", "epoch"]
    assert not list(waiting_findings([times_row(row) for row in records(frame)], None))


def aligned(folder: Path, align: str) -> RunDir:
    """A job whose second clock is 3.2 ms ahead, as the start of its trace by its host's says."""
    job = write_job(folder, 2, {1: Planted(offset_ns=3_200_000)})
    manifest = read_manifest(job)
    manifest.recipe["ranks"] = {"align": align}
    for record in manifest.ranks:
        first = int(tables.read(job.rank(record.rank).tables, "launches")["start_ns"].min())
        record.started_ns = 1_700_000_000_000_000_000 + first - 3_200_000 * record.rank
    write_manifest(job, manifest)
    build_rank_tables(job)
    return job


def test_clocks_of_the_hosts_align_where_that_is_asked_for(tmp_path: Path) -> None:
    frame = tables.read(aligned(tmp_path / "job", "epoch").tables, "rank_times")
    assert frame["clock"].tolist() == ["reference", "epoch"]
    assert frame["clock_offset_ns"][1] == 3_200_000
    assert frame["clock_residual_ns"].isna().all()  # nothing measured it
    by_collectives = tables.read(aligned(tmp_path / "same", "collectives").tables, "rank_times")
    for column in ("wait_ns", "late_ns", "collectives"):  # which durations alone tell
        assert frame[column].tolist() == by_collectives[column].tolist()
    assert by_collectives["clock_offset_ns"][1] == pytest.approx(3_200_000, abs=500)


def test_nothing_is_compared_where_clocks_are_not_to_be_aligned(tmp_path: Path) -> None:
    job = aligned(tmp_path / "job", "none")
    assert tables.read(job.tables, "rank_times")["wait_ns"].isna().all()
    caveats = [Writer().text(caveat) for caveat in ranks.job_view(job.path).caveats]
    assert any("not aligned, as the recipe asks" in caveat for caveat in caveats)


def test_bins_are_the_same_times_of_all_ranks_and_add_up_to_what_these_do(tmp_path: Path) -> None:
    """A clock that is 300 ms ahead and fast, and a rank that sleeps 5 ms per step."""
    planted = {1: Planted(offset_ns=300_000_000, drift_ppm=15), 2: Planted(sleep_ns=5_000_000)}
    job = write_job(tmp_path / "job", 4, planted, steps=50)
    build_rank_tables(job)
    bins, times = (tables.read(job.tables, name) for name in ("rank_bins", "rank_times"))
    assert bins.groupby("rank")["bin"].count().tolist() == [MOST_BINS] * 4
    assert bins.groupby("bin")["start_ns"].nunique().max() == 1
    parts = ["compute_ns", "wait_ns", "transfer_ns", "other_ns"]
    assert (bins[parts] >= -1).all(axis=None)
    assert (bins[parts].sum(axis=1) - bins["wall_ns"]).abs().max() <= 2  # rounding
    sums = bins.groupby("rank")[parts].sum()
    for column in ("compute_ns", "wait_ns", "transfer_ns"):
        expected = times.set_index("rank")[column]
        assert sums[column].to_numpy() == pytest.approx(expected.to_numpy(), rel=0.02, abs=2e5)
    # While rank 2 sleeps, none of the others does anything but wait for it.
    asleep = bins[bins["rank"] == 2].set_index("bin").query("other_ns > 0.99 * wall_ns").index
    assert len(asleep) > MOST_BINS / 2
    others = bins[(bins["rank"] != 2) & bins["bin"].isin(asleep)]
    assert others["wait_ns"].sum() / others["wall_ns"].sum() > 0.7


def test_each_call_says_who_came_last_and_how_long_each_waited(tmp_path: Path) -> None:
    """A clock that is 300 ms ahead and fast, and a rank that sleeps 5 ms per step."""
    planted = {1: Planted(offset_ns=300_000_000, drift_ppm=15), 2: Planted(sleep_ns=5_000_000)}
    job = write_job(tmp_path / "job", 4, planted, steps=50)
    build_rank_tables(job)
    names = ("collective_calls", "collective_waits", "rank_collectives", "rank_times")
    calls, waits, kinds, times = (tables.read(job.tables, name) for name in names)
    assert len(calls) == kinds["instances"].sum()
    assert calls["start_ns"].is_monotonic_increasing
    by_kind = calls.groupby("kernel_id")
    kinds = kinds.set_index("kernel_id")
    assert by_kind["wait_ns"].sum().to_dict() == kinds["wait_ns"].to_dict()
    assert by_kind["transfer_ns"].median().to_dict() == kinds["transfer_ns"].to_dict()
    assert calls["last_rank"].value_counts().to_dict() == {
        rank: last for rank, last in zip(times["rank"], times["last"], strict=True) if last
    }
    of_call = waits.groupby("call")["wait_ns"]
    assert of_call.sum().tolist() == calls["wait_ns"].tolist()
    assert of_call.max().tolist() == calls["longest_wait_ns"].tolist()
    # Arrivals are of the clocks, waits of durations: two measurements of one time.
    slept = calls[calls["wait_ns"] > 12_000_000]
    assert set(slept["last_rank"]) == {2}
    assert len(slept) >= 49
    apart = slept["spread_ns"] - slept["longest_wait_ns"]
    assert apart.abs().max() < 2_000


def test_of_many_waits_those_of_the_calls_with_most_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nsight_prof.parsers.ranks.times.MOST_OF_ALL", 30)
    job = write_job(tmp_path / "job", 4, {2: Planted(sleep_ns=5_000_000)}, steps=20)
    build_rank_tables(job)
    calls, waits = (tables.read(job.tables, f"collective_{name}") for name in ("calls", "waits"))
    kept = waits["call"].unique()
    assert len(waits) == 4 * len(kept) == 28
    assert sorted(calls.nlargest(len(kept), "wait_ns")["call"]) == sorted(kept)


@pytest.mark.parametrize(
    ("cause", "words"),
    [
        ("launches", "because its host launches too slowly"),
        ("synchronisation", "after its host has waited for the GPU"),
        ("queued", "with work that its host had launched already"),
        ("unknown", "for a reason that the trace does not tell"),
    ],
)
def test_why_a_late_gpu_is_idle_is_told_in_words(tmp_path: Path, cause: str, words: str) -> None:
    job = write_job(tmp_path / "job", 2, {1: Planted(sleep_ns=5_000_000)})
    folder = job.rank(1).tables
    gaps = tables.read(folder, "gpu_idle_gaps").assign(cause=cause)
    tables.write(tables.check(gaps, "gpu_idle_gaps"), "gpu_idle_gaps", folder, csv=False)
    build_rank_tables(job)
    rows = [times_row(row) for row in records(tables.read(job.tables, "rank_times"))]
    sentence = Writer().text(next(iter(waiting_findings(rows, None))).verdict)
    assert f"longer, most of it {words}." in sentence
    assert "  " not in sentence
