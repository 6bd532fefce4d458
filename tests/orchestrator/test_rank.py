"""`prof rank` inside of launchers: what it keeps, and what becomes of the program."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from nsight_prof.orchestrator.cli import main
from nsight_prof.orchestrator.ranks.launcher import Launch, parse_selection, read_launch
from nsight_prof.parsers.errors import UsageError
from nsight_prof.parsers.run.directory import RunDir, read_manifest
from nsight_prof.reports.notebook import load_run
from tests.rank_node import Node, wait_for

LAUNCHER = {"torchrun": ("RANK", "WORLD_SIZE"), "srun": ("SLURM_PROCID", "SLURM_NTASKS"),
            "mpirun": ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE")}  # fmt: skip
STOPPED = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
print("ready", flush=True)
time.sleep(600)
"""


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


@pytest.mark.parametrize("launcher", LAUNCHER)
def test_each_launcher_names_the_rank_and_the_program_keeps_its_exit_code(
    node: Node, launcher: str
) -> None:
    rank, size = LAUNCHER[launcher]
    names: dict[str, Any] = {"RANK": "", "WORLD_SIZE": "", rank: "1", size: "2"}
    code, said = node.run(0, "sh", "-c", "exit 5", **names)
    assert code == 5, said
    run = load_run(node.job / "ranks/0001")
    assert len(run.kernels) == 3
    assert not list(node.scratch.iterdir())
    assert main(["report", str(node.job)]) == 0
    job = read_manifest(RunDir(node.job))
    assert [record.rank for record in job.ranks] == [1]
    assert job.job is not None
    assert (job.job.size, job.job.traced) == (2, [0, 1])


def test_a_rank_that_is_not_traced_is_the_program(node: Node) -> None:
    process = node.start(1, "sh", "-c", "echo $$; exit 3", options=("--trace", "0"))
    out, _ = process.communicate()
    assert (process.returncode, int(out)) == (3, process.pid)
    assert not node.job.exists()


def test_sigterm_goes_to_the_program_after_the_end_of_the_collection(node: Node) -> None:
    process = node.start(0, sys.executable, "-c", STOPPED, FAKE_NSYS="unflushed")
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.terminate()
    assert process.wait() == 7
    assert len(load_run(node.job / "ranks/0000").kernels) == 3
    process.communicate()


def test_a_launcher_that_kills_loses_no_trace(node: Node) -> None:
    process = node.start(0, sys.executable, "-c", STOPPED, FAKE_NSYS="unflushed")
    assert process.stdout is not None
    process.stdout.readline()
    os.killpg(process.pid, signal.SIGKILL)  # torchrun's group, before nsys could write a byte
    process.communicate()
    wait_for(node.job / "ranks/0000")
    assert len(load_run(node.job / "ranks/0000").kernels) == 3


def test_a_program_that_is_killed_unasked_has_no_kernels(node: Node) -> None:
    _, said = node.run(0, "sh", "-c", "kill -9 $$", FAKE_NSYS="unflushed")
    assert "holds CUDA calls but no kernels" in said


def test_the_program_outlives_a_profiler_that_is_killed(node: Node) -> None:
    code, said = node.run(0, "sh", "-c", "exit 4", FAKE_NSYS="killed")
    assert code == 137
    assert "rank 0 has no trace: nsys left no report" in said
    assert node.reason(0) == "nsys left no report"


@pytest.mark.parametrize(
    ("mode", "reason"),
    [
        ("no-report", "nsys left no report"),
        ("export-fails", "Cannot read from stream"),
        ("disk-full", "nsys left no report"),
    ],
)
def test_what_goes_wrong_after_the_program_is_said_and_costs_it_nothing(
    node: Node, mode: str, reason: str
) -> None:
    code, said = node.run(0, "true", FAKE_NSYS=mode)
    assert code == (1 if mode == "disk-full" else 0)  # what nsys returns for it
    assert reason in said
    assert reason in node.reason(0)
    kept = list(node.scratch.glob("prof-rank-0-*/trace.nsys-rep"))
    assert bool(kept) == (mode == "export-fails")
    assert not kept or str(kept[0].parent) in node.reason(0)


def test_a_shared_folder_that_is_full_keeps_the_capture_on_the_node(
    node: Node, tmp_path: Path
) -> None:
    full = tmp_path / "full.py"
    full.write_text(
        "import errno, shutil, sys\n"
        "def fails(*_, **__): raise OSError(errno.ENOSPC, 'No space left on device')\n"
        "shutil.copytree = fails\n"
        "from nsight_prof.orchestrator.start import main\n"
        "sys.exit(main())\n"
    )
    assert node.run(0, "true", script=full)[0] == 0
    assert "No space left on device; what was captured is on" in node.reason(0)
    assert list(node.scratch.glob("prof-rank-0-*/trace.nsys-rep"))
    assert [path.name for path in (node.job / "ranks/0000.partial").iterdir()] == ["rank.json"]


def test_without_nsys_nothing_is_started(node: Node, tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    lonely = tmp_path / "bin"
    lonely.mkdir()
    for name in ("sh", "touch"):
        found = shutil.which(name)
        assert found
        (lonely / name).symlink_to(found)
    code, said = node.run(0, "touch", str(begun), PATH=str(lonely))
    if "nsys (Nsight Systems) is not on PATH" not in said:
        pytest.skip("this machine has nsys in one of its usual folders")
    assert code == 3
    assert not begun.exists()
    assert not node.job.exists()


def test_two_jobs_in_one_folder_and_two_processes_of_one_rank_are_refused(node: Node) -> None:
    assert node.run(0, "true", SLURM_JOB_ID="1")[0] == 0
    code, said = node.run(0, "true", SLURM_JOB_ID="1")
    assert (code, "has a rank 0 already" in said) == (2, True), said
    code, said = node.run(1, "true", SLURM_JOB_ID="2")
    assert (code, "holds another job" in said) == (2, True), said
    assert sorted(path.name for path in (node.job / "ranks").iterdir()) == ["0000"]


def test_a_job_with_missing_ranks_says_which_and_why(node: Node) -> None:
    assert node.run(0, "true")[0] == 0
    assert node.run(1, "true", FAKE_NSYS="no-report")[0] == 0
    assert main(["report", str(node.job)]) == 0
    page = (node.job / "report/report.md").read_text()
    assert "1 of 2 ranks" in page
    assert "nsys left no report" in page


def test_a_job_without_any_trace_is_reported(node: Node) -> None:
    assert node.run(0, "true", FAKE_NSYS="no-report")[0] == 0
    assert main(["report", str(node.job)]) == 0
    assert "0 of 2 ranks" in (node.job / "report/report.md").read_text()


def test_a_job_that_its_launcher_began_again_is_not_traced_twice(node: Node) -> None:
    assert node.run(0, "true")[0] == 0
    kept = (node.job / "ranks/0000").stat().st_ino
    code, said = node.run(0, "sh", "-c", "exit 6", TORCHELASTIC_RESTART_COUNT="1")
    assert code == 6
    assert (node.job / "ranks/0000").stat().st_ino == kept
    assert "not traced" in said


def test_a_job_that_torchrun_goes_on_with_in_other_ranks_keeps_the_trace_of_its_first_start(
    node: Node,
) -> None:
    """A node that joins or leaves begins all ranks anew: no restart is counted, and the port is new
    (so with torch 2.13) or, with a store that agents share, the old one."""

    def start(rank: int, size: int, port: int, run_id: str = "mine") -> tuple[int | None, str]:
        torchrun = {"TORCHELASTIC_RUN_ID": run_id, "TORCHELASTIC_RESTART_COUNT": "0"}
        more: dict[str, Any] = {"WORLD_SIZE": str(size), "MASTER_PORT": str(port), **torchrun}
        return node.run(rank, "sh", "-c", "exit 6", **more)

    def kept() -> dict[Path, int]:
        paths = [path for path in (node.job / "ranks").rglob("*") if path.is_file()]
        return {path: path.stat().st_ino for path in paths}

    assert start(0, 2, 1)[0] == start(1, 2, 1)[0] == 6
    folder = node.job / "ranks/0001"  # of which the trace is not kept yet
    folder.rename(folder.with_name("0001.partial"))
    first = kept()
    for rank, size, port in ((0, 3, 2), (2, 3, 1), (1, 2, 1)):
        code, said = start(rank, size, port)
        assert (code, f"rank {rank} is not traced" in said) == (6, True), said
        assert kept() == first
    code, said = start(2, 2, 1, "another")
    assert (code, "holds another job" in said) == (2, True), said
    assert kept() == first


@pytest.mark.parametrize(
    ("text", "launch", "traced"),
    [
        ("", Launch(5, 5, 8, "RANK", ""), True),
        ("", Launch(5, 5, 64, "RANK", ""), False),
        ("", Launch(8, 0, 64, "RANK", ""), True),
        ("all", Launch(5, 5, 64, "RANK", ""), True),
        ("none", Launch(0, 0, 64, "RANK", ""), False),
        ("every:8", Launch(16, 0, 64, "RANK", ""), True),
        ("0, 8", Launch(8, 0, 64, "RANK", ""), True),
    ],
)
def test_which_ranks_are_traced(text: str, launch: Launch, traced: bool) -> None:
    assert parse_selection(text, launch).has(launch) is traced


def test_words_that_name_no_ranks_are_refused() -> None:
    with pytest.raises(UsageError, match="names no ranks"):
        parse_selection("some", Launch(0, 0, 1, "RANK", ""))


def test_the_rank_of_mpirun_inside_of_a_batch_job_is_that_of_mpi() -> None:
    launch = read_launch({"SLURM_PROCID": "0", "OMPI_COMM_WORLD_RANK": "3"})
    assert (launch.rank, launch.variable) == (3, "OMPI_COMM_WORLD_RANK")
    assert read_launch({"MINE": "4", "RANK": "1"}, "MINE").rank == 4
    with pytest.raises(UsageError, match="is not known"):
        read_launch({})


def test_a_rank_that_is_not_traced_imports_little() -> None:
    """It costs each rank of a job its start: models of recipes and tables take 0.3 s and more."""
    code = (
        "import sys, nsight_prof.orchestrator.commands.rank;"
        "sys.exit(', '.join({'pydantic', 'pandas', 'numpy'} & sys.modules.keys()) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
