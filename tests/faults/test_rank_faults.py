"""What breaks a job of ranks beside its launcher: each is named, and nothing captured is lost."""

import errno
import fcntl
import os
import signal
import socket
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from nsight_prof.orchestrator.cli import main
from nsight_prof.parsers.build.rank_tables import build_rank_tables
from nsight_prof.parsers.run.directory import JobRecord, RunDir, read_manifest, write_manifest
from nsight_prof.reports.engine.ranks import job_view
from nsight_prof.reports.notebook import load_run
from nsight_prof.reports.page.writer import Writer
from tests.made_up_ranks import write_job
from tests.rank_node import Node, wait_for

BROKEN = """
import {module}, sys
def fails(*_, **__): {statement}
{module}.{name} = fails
from nsight_prof.orchestrator.start import main
sys.exit(main())
"""
SLEEPS = ("sh", "-c", "echo ready; exec sleep 60")


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def headline(job: Path) -> str:
    assert main(["report", str(job), "--format", "md", "--quiet"]) == 0
    return (job / "report/report.md").read_text()


@pytest.mark.parametrize(
    ("mode", "reason"),
    [("empty-report", "nsys left no report"), ("unknown-schema", "schema")],
)
def test_a_report_that_cannot_be_read_is_the_reason_why_the_rank_is_missing(
    node: Node, mode: str, reason: str
) -> None:
    assert node.run(0, "true")[0] == 0
    code, said = node.run(1, "true", FAKE_NSYS=mode)
    assert (code, reason in said) == (0, True), said
    page = headline(node.job)
    assert "1 of 2 ranks" in page
    assert reason in page
    # What there is stays, in the job or on the node.
    assert load_run(node.job / "ranks/0000").kernels is not None
    assert list(node.scratch.glob("prof-rank-1-*/trace.nsys-rep"))


def test_a_rank_of_which_every_process_is_killed_is_missing_and_the_others_are_kept(
    node: Node,
) -> None:
    assert node.run(0, "true")[0] == 0
    process = node.start(1, *SLEEPS)
    assert process.stdout is not None
    process.stdout.readline()
    # The keeper has a session of its own, and so has what it started.
    for pid in descendants(process.pid):
        os.kill(pid, signal.SIGKILL)
    process.communicate()
    page = headline(node.job)
    assert "1 of 2 ranks" in page
    assert "its processes were killed before the trace was kept" in page


def descendants(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(found for child in children for found in descendants(int(child)))]


def test_a_job_that_is_cancelled_in_the_middle_of_the_export_keeps_its_trace(node: Node) -> None:
    process = node.start(0, "true", FAKE_NSYS="slow-export")
    wait_for(node.scratch / "exporting")
    os.killpg(process.pid, signal.SIGTERM)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    wait_for(node.job / "ranks/0000")
    assert len(load_run(node.job / "ranks/0000").kernels) == 3


@pytest.mark.parametrize("small", [8, 16, 256], indirect=True)
def test_a_disk_of_the_node_that_becomes_full_costs_the_program_nothing(
    node: Node, small: Path
) -> None:
    """Of so many KiB the report fits, not its copy; that, not the export; that, not the tables."""
    assert node.run(0, "true")[0] == 0
    node.scratch = small
    code, said = node.run(1, "sh", "-c", "exit 3")
    assert (code, "rank 1 has no trace" in said) == (3, True), said
    (report,) = small.glob("prof-rank-1-*/trace.nsys-rep")
    assert report.stat().st_size
    reason = node.reason(1)
    assert "No space left on device" in reason or "the disk is full" in reason
    assert f"what was captured is on {socket.gethostname()} in {report.parent}" in reason
    page = headline(node.job)
    assert page.startswith("# job: 1 of 2 ranks")
    assert str(report.parent) in page.replace("\\", "")


def test_what_nsys_wrote_until_its_disk_was_full_is_kept(node: Node, small: Path) -> None:
    node.scratch = small
    code, said = node.run(0, "true", FAKE_NSYS="fills-disk")
    assert (code, "No space left on device" in said) == (1, True), said  # the code of nsys
    (left,) = small.glob("prof-rank-0-*/trace.qdstrm")
    assert left.stat().st_size > 200_000
    assert str(left.parent) in node.reason(0)


def test_a_disk_of_the_node_that_is_full_before_the_program_starts_is_named(
    node: Node, small: Path, tmp_path: Path
) -> None:
    with (small / "fill").open("wb", buffering=0) as stream, suppress(OSError):
        while stream.write(b"x" * 4096):
            pass
    begun = tmp_path / "begun"
    code, said = node.run(0, "touch", str(begun), options=("--scratch", str(small)))
    assert (code, "No space left on device" in said, "hint: " in said) == (1, True, True), said
    assert not begun.exists()
    assert [path.name for path in small.iterdir()] == ["fill"]
    assert node.run(0, "true")[0] == 0  # no claim was left behind


def test_without_a_folder_on_the_node_nothing_is_started_and_the_rank_is_free(
    node: Node, tmp_path: Path
) -> None:
    begun = tmp_path / "begun"
    code, said = node.run(0, "touch", str(begun), options=("--scratch", "/proc"))
    assert (code, "there is no folder for what is captured" in said) == (1, True), said
    assert "hint: " in said
    assert not begun.exists()
    assert node.run(0, "true")[0] == 0  # no claim was left behind


def test_a_shared_folder_without_hard_links_takes_a_job(node: Node, tmp_path: Path) -> None:
    broken = tmp_path / "broken.py"
    raises = "raise PermissionError(1, 'Operation not permitted')"
    broken.write_text(BROKEN.format(module="os", statement=raises, name="link"))
    assert node.run(0, "true", script=broken)[0] == 0
    assert node.run(1, "true", script=broken)[0] == 0
    assert headline(node.job).startswith("# job: 2 ranks")


def test_a_shared_folder_without_locks_takes_a_job_and_its_report(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_available(*_: Any) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    broken = tmp_path / "broken.py"
    raises = "raise OSError(37, 'No locks available')"
    broken.write_text(BROKEN.format(module="fcntl", statement=raises, name="flock"))
    for rank in (0, 1):
        assert node.run(rank, "true", script=broken)[0] == 0
    counted = node.run(0, "true", options=("--counters", "one-rank"), script=broken)
    assert counted[0] == 0, counted[1]
    monkeypatch.setattr(fcntl, "flock", none_available)
    assert headline(node.job).startswith("# job: 2 ranks")
    counters = read_manifest(RunDir(node.job).rank(0)).step("counters")
    assert counters is not None
    assert counters.error == ""


def test_a_rank_that_never_began_is_named(node: Node) -> None:
    assert node.run(0, "true")[0] == 0
    page = headline(node.job)
    assert page.startswith("# job: 1 of 2 ranks")
    assert "Nothing is known of these ranks, which were to be traced: 1." in page


def test_secrets_of_a_ranks_environment_are_in_nothing_that_is_kept(node: Node) -> None:
    secret = "hf_0123456789abcdefghij"
    assert node.run(0, "sh", "-c", "true", HF_TOKEN=secret)[0] == 0
    assert node.run(0, "true", options=("--counters", "one-rank"), HF_TOKEN=secret)[0] == 0
    assert headline(node.job)
    kept = [path for path in node.job.rglob("*") if path.is_file()]
    assert any(path.name == "counters.ncu-rep" for path in kept)
    assert [path for path in kept if secret.encode() in path.read_bytes()] == []


def test_nothing_is_stated_of_the_many_ranks_that_were_not_traced(tmp_path: Path) -> None:
    job = write_job(tmp_path / "job", 3, {}, steps=20)
    manifest = read_manifest(job)
    manifest.job = JobRecord("", 300, [0, 1, 2], "RANK")
    write_manifest(job, manifest)
    build_rank_tables(job)
    view = job_view(job.path)
    assert (view.rank_count, view.rank_total) == (3, 3)
    said = [Writer().text(caveat) for caveat in view.caveats]
    assert "3 of the 300 ranks were traced; of the others nothing is stated." in said
