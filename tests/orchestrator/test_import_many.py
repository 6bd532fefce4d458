"""Importing several files: ncu files become one run, traces of several ranks become one job."""

import csv
import io
import json
import lzma
import os
import shutil
import sqlite3
from contextlib import closing, redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from nsight_prof.orchestrator.cli import main
from nsight_prof.orchestrator.imports.importing import import_files
from nsight_prof.orchestrator.imports.rank_numbers import number_ranks
from nsight_prof.parsers.errors import ArtifactUnreadable, UsageError
from nsight_prof.parsers.run.directory import RunDir, read_manifest
from nsight_prof.reports.notebook import load_run
from tests.recorded import whole_report

BUSY = """
WITH operations AS (
    SELECT start AS s, end AS e FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE deviceId = :device
    UNION ALL SELECT start, end FROM CUPTI_ACTIVITY_KIND_MEMCPY WHERE deviceId = :device
    UNION ALL SELECT start, end FROM CUPTI_ACTIVITY_KIND_MEMSET WHERE deviceId = :device),
merged AS (
    SELECT s, e, max(e) OVER (
        ORDER BY s, e ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before FROM operations)
SELECT max(e) - min(s), sum(max(0, e - max(s, coalesce(before, s)))) FROM merged
"""
OPERATIONS = tuple(f"CUPTI_ACTIVITY_KIND_{kind}" for kind in ("KERNEL", "MEMCPY", "MEMSET"))
SUMS = """SELECT count(*), sum(end - start) FROM {table} WHERE deviceId = :device"""


FIRST_NS = 60_000_000


def prof(*arguments: object) -> tuple[int, str]:
    """Run a command; return its exit code and all that it printed."""
    said = io.StringIO()
    with redirect_stdout(said), redirect_stderr(said):
        code = main([str(argument) for argument in arguments])
    return code, said.getvalue()


@pytest.fixture(scope="session")
def two_gpus(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first 60 ms of the recorded trace of two tensor-parallel ranks: two GPUs in one file."""
    packed = root / "captures/h200-vllm-tensor-parallel/steps/1-trace/trace.sqlite.xz"
    path = tmp_path_factory.mktemp("two-gpus") / "trace.sqlite"
    path.write_bytes(lzma.decompress(packed.read_bytes()))
    with closing(sqlite3.connect(path)) as database:
        ((first,),) = database.execute("SELECT min(start) FROM CUPTI_ACTIVITY_KIND_KERNEL")
        for table in (*OPERATIONS, "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS"):
            database.execute(f"DELETE FROM {table} WHERE start > ?", (first + FIRST_NS,))
        database.commit()
    return path


@pytest.fixture(scope="session")
def ranks(two_gpus: Path) -> list[Path]:
    """The same as each rank would have left it: a file for each GPU."""
    return [
        split(two_gpus, device, two_gpus.with_name(f"rank{device}.sqlite")) for device in (0, 1)
    ]


def split(trace: Path, device: int, path: Path) -> Path:
    """Copy what one device and its process did."""
    shutil.copyfile(trace, path)
    pids = "SELECT DISTINCT globalPid >> 24 FROM CUPTI_ACTIVITY_KIND_KERNEL"
    with closing(sqlite3.connect(path)) as database:
        for table in OPERATIONS:
            database.execute(f"DELETE FROM {table} WHERE deviceId <> {device}")
        for table in ("CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS"):
            database.execute(f"DELETE FROM {table} WHERE globalTid >> 24 NOT IN ({pids})")
        database.commit()
    return path


@pytest.fixture(scope="session")
def job(ranks: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of both ranks, with its report."""
    out = tmp_path_factory.mktemp("job") / "job"
    for command in (("import", *ranks, "--out", out), ("report", out)):
        code, said = prof(*command)
        assert code == 0, said
    return out


def test_each_rank_has_the_numbers_that_sql_finds_for_its_gpu(two_gpus: Path, job: Path) -> None:
    table = load_run(job).ranks.set_index("rank")
    assert sorted(table.index) == [0, 1]
    with closing(sqlite3.connect(two_gpus)) as database:
        for device in (0, 1):
            one = {"device": device}
            wall, busy = database.execute(BUSY, one).fetchone()
            launches, kernel_ns = database.execute(
                SUMS.format(table="CUPTI_ACTIVITY_KIND_KERNEL"), one
            ).fetchone()
            copies = [
                database.execute(SUMS.format(table=f"CUPTI_ACTIVITY_KIND_{kind}"), one).fetchone()[
                    1
                ]
                for kind in ("MEMCPY", "MEMSET")
            ]
            (uuid,) = database.execute(
                "SELECT uuid FROM TARGET_INFO_GPU WHERE cuDevice = :device", one
            ).fetchone()
            (pid,) = database.execute(
                "SELECT DISTINCT globalPid >> 24 & 0xFFFFFF FROM CUPTI_ACTIVITY_KIND_KERNEL"
                " WHERE deviceId = :device",
                one,
            ).fetchone()
            row = table.loc[device]
            assert row["device"] == device
            assert (row["wall_ns"], row["gpu_busy_ns"]) == (wall, busy)
            assert row["idle_ns"] == wall - busy
            assert (row["launches"], row["kernel_ns"]) == (launches, kernel_ns)
            assert row["memory_ns"] == sum(copies)
            assert (row["uuid"], row["pids"]) == (uuid, str(pid))


def test_a_rank_of_two_gpus_has_a_row_for_each_as_sql_finds_them(
    two_gpus: Path, tmp_path: Path
) -> None:
    """Both GPUs lie in the traces of both ranks, of which the second is of a later kernel on."""
    files = [shutil.copy(two_gpus, tmp_path / f"rank{rank}.sqlite") for rank in (0, 1)]
    with closing(sqlite3.connect(files[1])) as database:
        ((first,),) = database.execute("SELECT min(start) FROM CUPTI_ACTIVITY_KIND_KERNEL")
        for table in OPERATIONS:
            database.execute(f"DELETE FROM {table} WHERE start < ?", (first + FIRST_NS // 4,))
        database.commit()
    run = import_files([Path(file) for file in files], tmp_path / "job")
    found_ranks = load_run(run.path).ranks
    assert found_ranks["problem"].eq("").all()
    assert list(zip(found_ranks["rank"], found_ranks["device"], strict=True)) == [
        (0, 0),
        (0, 1),
        (1, 0),
        (1, 1),
    ]
    for rank, file in enumerate(files):
        with closing(sqlite3.connect(file)) as database:
            found = [database.execute(BUSY, {"device": gpu}).fetchone() for gpu in (0, 1)]
            ends = [
                database.execute(f"SELECT min(start), max(end) FROM {table}").fetchone()
                for table in OPERATIONS
            ]
        wall = max(end for _, end in ends if end) - min(start for start, _ in ends if start)
        rows = found_ranks[found_ranks["rank"] == rank]
        assert rows["wall_ns"].tolist() == [wall, wall]
        assert rows["gpu_busy_ns"].tolist() == [busy for _, busy in found]
        assert rows["idle_ns"].tolist() == [wall - busy for _, busy in found]


def test_kernels_are_summed_over_ranks_as_sql_sums_them(two_gpus: Path, job: Path) -> None:
    ours = load_run(job).rank_kernels
    query = """
        SELECT n.value, gridX || 'x' || gridY || 'x' || gridZ,
               blockX || 'x' || blockY || 'x' || blockZ,
               deviceId, count(*), sum(k.end - k.start)
        FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN StringIds n ON n.id = k.demangledName
        GROUP BY 1, 2, 3, 4"""
    expected: dict[tuple[str, str, str], dict[int, tuple[int, int]]] = {}
    with closing(sqlite3.connect(two_gpus)) as database:
        for name, grid, block, device, calls, total in database.execute(query):
            expected.setdefault((name, grid, block), {})[device] = (calls, total)
    assert len(ours) == len(expected)
    for row in ours.to_dict("records"):
        found = expected[row["name"], row["grid"], row["block"]]
        totals = {rank: total for rank, (_, total) in found.items()}
        assert row["total_ns"] == sum(totals.values())
        assert row["calls"] == sum(calls for calls, _ in found.values())
        assert (row["min_ns"], row["max_ns"]) == (min(totals.values()), max(totals.values()))
        assert totals[row["min_rank"]] == row["min_ns"]
        assert totals[row["max_rank"]] == row["max_ns"]


def test_workers_make_the_same_tables_and_what_is_made_is_kept(job: Path, tmp_path: Path) -> None:
    copy = tmp_path / "job"
    shutil.copytree(job, copy)
    for rank in ("0000", "0001"):
        shutil.rmtree(copy / "ranks" / rank / "tables")
    assert prof("report", copy, "--workers", 2)[0] == 0
    for name in ("rank_times.csv", "rank_kernels.csv", "ranks.csv"):
        assert (copy / "tables" / name).read_bytes() == (job / "tables" / name).read_bytes()
    made = copy / "ranks/0001/tables/kernels.parquet"
    before = made.stat().st_mtime_ns
    shutil.rmtree(copy / "ranks/0000/tables")
    assert prof("report", copy, "--workers", 2)[0] == 0
    assert made.stat().st_mtime_ns == before
    assert (copy / "ranks/0000/tables/kernels.parquet").is_file()


def test_ranks_are_imported_at_a_time_as_one_after_the_other(
    ranks: list[Path], job: Path, tmp_path: Path
) -> None:
    code, printed = prof("import", *ranks, "--workers", 2, "--out", tmp_path / "job")
    assert code == 0, printed
    made, one_by_one = (read_manifest(RunDir(path)) for path in (tmp_path / "job", job))
    assert made.ranks == one_by_one.ranks
    for rank in (0, 1):
        trace = f"ranks/{rank:04}/steps/1-trace/trace.sqlite"
        assert (tmp_path / "job" / trace).read_bytes() == (job / trace).read_bytes()


def test_a_rank_that_another_process_cannot_read_is_refused_by_the_name_of_its_file(
    ranks: list[Path], tmp_path: Path
) -> None:
    broken = tmp_path / "rank1.sqlite"
    broken.write_bytes(ranks[1].read_bytes()[:5000])
    code, printed = prof("import", ranks[0], broken, "--workers", 2, "--out", tmp_path / "job")
    assert code != 0
    assert str(broken) in printed
    assert ".job." not in printed  # the folder that it was copied to is gone
    assert not (tmp_path / "job").exists()


def test_the_report_of_a_job_says_of_each_rank_what_is_true(job: Path) -> None:
    text = (job / "report/report.md").read_text(encoding="utf-8")
    assert "2 ranks gave work to 2 GPUs" in text
    for row in load_run(job).ranks.to_dict("records"):
        assert f"{100 * row['idle_ns'] / row['wall_ns']:.1f} %" in text
        assert row["file"] in text
        assert row["uuid"] in text
    assert "is waiting for other ranks in collectives" in text
    metrics = json.loads((job / "report/metrics.json").read_text(encoding="utf-8"))
    assert metrics["kind"] == "ranks"
    assert [row["rank"] for row in metrics["ranks"]] == [0, 1]
    assert (job / "report/report.html").is_file()


def test_a_notebook_shows_a_job_as_its_ranks(job: Path) -> None:
    run = load_run(job)
    screen = run._repr_html_()
    assert "2 ranks" in screen
    assert "2 ranks gave work to 2 GPUs" in screen
    assert len(screen) < 4000
    assert set(run.findings["run"]) == {"0000", "0001"}
    assert run.figures == []
    with pytest.raises(UsageError, match="it has none"):
        run.figure("time")


def test_a_rank_is_a_complete_run_of_its_own(job: Path) -> None:
    code, said = prof("report", job, "--rank", 1, "--format", "md")
    assert code == 0, said
    assert f"report: {job}/ranks/0001/report/report.md" in said
    whole = load_run(job / "ranks" / "0001")
    assert whole.kernels["total_ns"].sum() == load_run(job).ranks["kernel_ns"].iloc[1]
    code, said = prof("report", job, "--rank", 7)
    assert (code, "it has the ranks 0, 1" in said) == (2, True), said
    code, said = prof("report", job / "ranks" / "0001", "--rank", 1)
    assert (code, "is one run, without ranks" in said) == (2, True), said


@pytest.mark.parametrize(
    ("names", "numbers", "basis"),
    [
        (["rank3.sqlite", "rank0.sqlite"], (3, 0), "rank"),
        (["a.rank_02.nsys-rep", "a.rank_10.nsys-rep"], (2, 10), "rank"),
        (["job77.0.sqlite", "job77.1.sqlite"], (0, 1), "differ"),
        (["0/trace.sqlite", "1/trace.sqlite"], (0, 1), "differ"),
        (["n1_local_rank0_rank8.sqlite", "n0_local_rank0_rank0.sqlite"], (8, 0), "rank"),
        (["job_node0_0.sqlite", "job_node0_1.sqlite", "job_node1_2.sqlite"], (0, 1, 2), "differ"),
        (["t_4537_1.sqlite", "t_4538_0.sqlite"], (1, 0), "differ"),
        (["t_4537.sqlite", "t_4538.sqlite"], (0, 1), "order"),
        (["first.sqlite", "second.sqlite"], (0, 1), "order"),
        (["n0_local_rank0.sqlite", "n1_local_rank0.sqlite"], (0, 1), "differ"),
        (["n0_r0.sqlite", "n0_r1.sqlite", "n1_r0.sqlite", "n1_r1.sqlite"], (0, 1, 2, 3), "order"),
    ],
)
def test_the_number_of_a_rank_is_read_from_the_name(
    names: list[str], numbers: tuple[int, ...], basis: str
) -> None:
    found = number_ranks(names)
    assert found.numbers == numbers
    assert basis in found.basis


def test_two_files_of_one_rank_are_refused_by_name(ranks: list[Path], tmp_path: Path) -> None:
    again = tmp_path / "rank0.sqlite"
    shutil.copyfile(ranks[1], again)
    with pytest.raises(UsageError, match=r"two files are of rank 0: .*rank0\.sqlite"):
        import_files([ranks[0], again], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_same_trace_twice_is_refused(ranks: list[Path], tmp_path: Path) -> None:
    again = tmp_path / "rank7.sqlite"
    shutil.copyfile(ranks[0], again)
    with pytest.raises(UsageError, match=r"rank0\.sqlite and rank7\.sqlite are the same file"):
        import_files([ranks[0], again], tmp_path / "out")


def test_traces_of_other_times_are_no_job(ranks: list[Path], tmp_path: Path) -> None:
    later = tmp_path / "rank1.sqlite"
    shutil.copyfile(ranks[1], later)
    with closing(sqlite3.connect(later)) as database:
        database.execute(
            "UPDATE TARGET_INFO_SESSION_START_TIME SET utcEpochNs = utcEpochNs + 86400000000000"
        )
        database.commit()
    with pytest.raises(UsageError, match=r"were not recorded at the same time"):
        import_files([ranks[0], later], tmp_path / "out")


def on_node(trace: Path, path: Path, host: str, uuid: str = "", pause_s: int = 0) -> Path:
    """Copy a rank's trace as a node with another GPU, whose clock is ahead, would have it."""
    shutil.copyfile(trace, path)
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE TARGET_INFO_SYSTEM_ENV (name TEXT, value TEXT)")
        database.execute("INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES ('Hostname', ?)", [host])
        if uuid:
            database.execute("UPDATE TARGET_INFO_GPU SET uuid = ? WHERE cuDevice = 0", [uuid])
        database.execute(
            "UPDATE TARGET_INFO_SESSION_START_TIME SET utcEpochNs = utcEpochNs + ?",
            [pause_s * 10**9],
        )
        database.commit()
    return path


def test_nodes_may_have_unlike_numbers_of_gpus(ranks: list[Path], tmp_path: Path) -> None:
    """Two GPUs on one node and one on the other, where it is the first one, too."""
    job = import_files(
        [
            on_node(ranks[0], tmp_path / "rank0.sqlite", "node-a"),
            on_node(ranks[1], tmp_path / "rank1.sqlite", "node-a"),
            on_node(ranks[0], tmp_path / "rank2.sqlite", "node-b", "GPU-of-node-b"),
        ],
        tmp_path / "job",
    )
    assert prof("report", job.path, "--format", "md")[0] == 0
    table = load_run(job.path).ranks.set_index("rank")
    assert table["device"].tolist() == [0, 1, 0]
    assert table["host"].tolist() == ["node-a", "node-a", "node-b"]
    assert table["uuid"].nunique() == 3
    assert table["launches"][2] == table["launches"][0]
    assert "3 ranks gave work to 3 GPUs on 2 hosts" in (job.report / "report.md").read_text()


def test_nodes_whose_clocks_are_a_day_apart_are_a_job_that_says_so(
    ranks: list[Path], tmp_path: Path
) -> None:
    traces = [
        on_node(ranks[0], tmp_path / "rank0.sqlite", "node-a"),
        on_node(ranks[1], tmp_path / "rank1.sqlite", "node-b", pause_s=86_400),
    ]
    job = import_files(traces, tmp_path / "job")
    assert prof("report", job.path, "--format", "md")[0] == 0
    assert "the clocks of the hosts differ" in (job.report / "report.md").read_text()
    # Collectives align what the hosts' own clocks do not.
    clocks = load_run(job.path).rank_times["clock"].tolist()
    assert clocks == ["reference", "collectives"]


def test_counters_beside_several_traces_are_refused_with_a_way_out(
    ranks: list[Path], real_exports: Path, tmp_path: Path
) -> None:
    counters = real_exports / "ncu/AveryClapp+ESMM-Research/profile_multi3.txt"
    with pytest.raises(UsageError, match="of which rank") as caught:
        import_files([*ranks, counters], tmp_path / "out")
    assert "prof import" in caught.value.hint


@pytest.mark.parametrize(
    "command",
    [
        ("compare", "{job}", "{job}"),
        ("export", "{job}", "-o", "{job}/x.json"),
        ("top-kernels", "{job}"),
        ("run", "top-kernels", "--replay", "{job}", "--out", "{job}-replayed"),
    ],
)
def test_what_needs_one_run_names_a_rank(job: Path, command: tuple[str, ...]) -> None:
    code, said = prof(*(part.format(job=job) for part in command))
    assert code == 2, said
    assert f"{job}/ranks/0000" in said


@pytest.mark.parametrize("rank", [-1, 10**7, 10**400])
def test_a_manifest_with_a_rank_that_cannot_be_is_refused(
    job: Path, tmp_path: Path, rank: int
) -> None:
    manifest = json.loads((job / "manifest.json").read_text(encoding="utf-8"))
    manifest["ranks"][0]["rank"] = rank
    (tmp_path / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    code, said = prof("report", tmp_path)
    assert (code, "manifest.json" in said) == (4, True), said


def test_a_rank_that_leads_out_of_the_job_is_refused(job: Path, tmp_path: Path) -> None:
    sent, mine = tmp_path / "sent", tmp_path / "mine"
    shutil.copytree(job / "ranks" / "0001", mine)
    (sent / "ranks").mkdir(parents=True)
    shutil.copy(job / "manifest.json", sent)
    shutil.copytree(job / "ranks" / "0000", sent / "ranks" / "0000")
    (sent / "ranks" / "0001").symlink_to(mine)
    before = {path: path.stat().st_mtime_ns for path in mine.rglob("*")}
    code, said = prof("report", sent)
    assert (code, "does not lie inside of the run" in said) == (4, True), said
    assert {path: path.stat().st_mtime_ns for path in mine.rglob("*")} == before


@pytest.fixture
def kernel_folders(real_exports: Path) -> Path:
    """A folder for each kernel, four printed pages of its report in each (llm-perf-opt)."""
    return real_exports / "ncu/CodeGandee+llm-perf-opt"


def cells(path: Path) -> list[dict[str, str]]:
    """Records of a details page that hold a metric."""
    with path.open(encoding="utf-8", newline="") as stream:
        return [row for row in csv.DictReader(stream) if row["Metric Name"]]


def test_a_folder_with_a_folder_for_each_kernel_becomes_one_run(
    kernel_folders: Path, tmp_path: Path
) -> None:
    code, said = prof("import", kernel_folders, "--out", tmp_path / "run")
    assert code == 0, said
    folders = sorted(path for path in kernel_folders.iterdir() if path.is_dir())
    run = load_run(tmp_path / "run")
    assert len(run.kernels) == len(folders) == 20
    durations = {}
    for folder in folders:
        rows = [row for path in sorted(folder.glob("*.csv")) for row in cells(path)]
        of_details = run.counter_files.set_index("file").loc[f"{folder.name}/ncu.details.csv"]
        assert (of_details["new_launches"], of_details["new_kernels"]) == (1, 1)
        (shown,) = {row["Metric Value"] for row in rows if row["Metric Name"] == "Duration"}
        durations[rows[0]["Kernel Name"], rows[0]["Grid Size"]] = float(shown.replace(",", ""))
    counted = run.counters.merge(run.kernels[["kernel_id", "name", "grid"]], on="kernel_id")
    assert len(counted) == 20
    found = {
        (row["name"], f"({row['grid'].replace('x', ', ')})"): row["duration_ns"]
        for row in counted.to_dict("records")
    }
    assert found.keys() == durations.keys()
    for key, ns in found.items():
        assert ns in (durations[key], durations[key] * 1e3, durations[key] * 1e6)  # ns, us, ms
    # The roofline's chart adds what the details page lacks; the other two pages add nothing.
    files = run.counter_files.set_index("file")
    assert len(files) == 80
    kept = sorted(path.name for path in (tmp_path / "run/steps/3-counters").iterdir())
    assert kept == [f"counters-{number:04d}.csv" for number in range(80)]
    of_page = files.groupby(files.index.str.rpartition("/").to_frame()[2].to_numpy())
    assert (of_page["new_values"].max() > 0).to_dict() == {
        "ncu.details.csv": True,
        "ncu.metrics.csv": False,
        "ncu.section_Occupancy.csv": False,
        "ncu.section_SpeedOfLight_RooflineChart.csv": True,
    }
    assert "ncu.details.csv is the same file as" in said  # the folder holds two pages twice
    # Of so many files only the sums are told; the table has each.
    assert said.count("ncu.details.csv adds") == 0
    assert "80 files of ncu add 20 launches, 20 new kernels" in said
    assert "ncu.section_Occupancy.csv" in said.splitlines()[-3]


def test_the_report_names_each_file_and_what_it_adds(kernel_folders: Path, tmp_path: Path) -> None:
    folder = min(path for path in kernel_folders.iterdir() if path.is_dir())
    run = import_files([folder], tmp_path / "run")
    assert main(["report", str(run.path), "--format", "md"]) == 0
    text = whole_report(run.path / "report")
    (idle,) = [line for line in text.splitlines() if line.startswith("| ncu.metrics.csv")]
    assert "0: adds nothing" in idle
    (first,) = [line for line in text.splitlines() if line.startswith("| ncu.details.csv")]
    assert "adds nothing" not in first
    assert "the one with the most values" in text


def test_files_of_two_gpus_are_refused(kernel_folders: Path, tmp_path: Path) -> None:
    of_a10g = kernel_folders.parent / "AveryClapp+ESMM-Research/profile.ncu-rep"
    of_a100 = kernel_folders.parent / "SebastianKuckuk+ihpcss-gpu-perf/stream-cuda_391f3e.ncu-rep"
    with pytest.raises(UsageError, match="of different GPUs: profile.ncu-rep .NVIDIA A10G"):
        import_files([of_a10g, of_a100], tmp_path / "names")
    with pytest.raises(UsageError, match=r"of different GPUs: profile.ncu-rep .8\.6., .*12\.0"):
        import_files([of_a10g, kernel_folders / "ncu.details.csv"], tmp_path / "capabilities")


def test_a_named_file_is_refused_and_one_of_a_folder_is_skipped_by_name(
    kernel_folders: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "ncu"
    folder.mkdir()
    good = shutil.copy(kernel_folders / "ncu.details.csv", folder / "good.csv")
    report = kernel_folders.parent / "AveryClapp+ESMM-Research/profile.ncu-rep"
    (folder / "cut.ncu-rep").write_bytes(report.read_bytes()[:5000])
    (folder / "notes.md").write_text("mine\n", encoding="utf-8")
    with pytest.raises(ArtifactUnreadable, match=r"ncu/cut\.ncu-rep"):
        import_files([Path(good), folder / "cut.ncu-rep"], tmp_path / "named")
    with pytest.raises(ArtifactUnreadable, match=r"notes\.md is none of the files"):
        import_files([Path(good), folder / "notes.md"], tmp_path / "named")
    with pytest.raises(ArtifactUnreadable, match=r"ncu/cut\.ncu-rep"):
        import_files([folder / "*.ncu-rep"], tmp_path / "pattern")
    assert not (tmp_path / "named").exists()
    code, said = prof("import", folder, "--out", tmp_path / "run")
    assert code == 0, said
    assert "Skipped: cut.ncu-rep cannot be read" in said
    assert "Passed over, as nothing that prof reads: notes.md." in said
    manifest = read_manifest(RunDir(tmp_path / "run"))
    assert manifest.imported == ["good.csv"]
    assert any("cut.ncu-rep" in sentence for sentence in manifest.assumptions)
    (folder / "good.csv").unlink()
    code, said = prof("import", folder, "--out", tmp_path / "none")
    assert (code, "cut.ncu-rep" in said) == (4, True), said


def test_a_pattern_that_fits_nothing_and_a_run_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no file fits .*\*\.ncu-rep"):
        import_files([tmp_path / "*.ncu-rep"], tmp_path / "out")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ArtifactUnreadable, match="holds no file that prof reads"):
        import_files([tmp_path / "empty"], tmp_path / "out")


def test_a_folder_is_searched_without_links_runs_and_hidden_files(
    kernel_folders: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "all"
    (folder / ".git").mkdir(parents=True)
    page = kernel_folders / "ncu.details.csv"
    import_files([page], folder / "earlier")
    for name in (".git/a.csv", ".b.csv"):
        shutil.copy(page, folder / name)
    (folder / "loop").symlink_to(folder)
    os.mkfifo(folder / "pipe.csv")
    with pytest.raises(ArtifactUnreadable, match="holds no file that prof reads"):
        import_files([folder], tmp_path / "out")
    with pytest.raises(UsageError, match="is a run directory of prof"):
        import_files([folder / "earlier"], tmp_path / "out")


def test_a_trace_and_a_folder_of_counters_become_one_run(
    kernel_folders: Path, real_exports: Path, tmp_path: Path
) -> None:
    trace = (
        real_exports / "nsys/openhackathons-org+nways_accelerated_programming/jacobi_report.sqlite"
    )
    run = load_run(import_files([trace, kernel_folders], tmp_path / "run").path)
    assert len(run.joins) == 20
    assert run.kernels["calls"].sum() == 1001
    assert [step.name for step in run.manifest.steps] == ["trace", "counters"]
    assert run.manifest.imported[0].endswith("/jacobi_report.sqlite")
