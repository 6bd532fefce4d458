"""Importing a job by any executor, and on a real Ray of several nodes on this machine."""

import gc
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from nsight_prof.orchestrator.imports.importing import import_files
from nsight_prof.orchestrator.workers.mapping import executor_of
from nsight_prof.orchestrator.workers.on_ray import Node, RayExecutor, ray_executor
from nsight_prof.parsers import tables
from nsight_prof.parsers.errors import StepFailed, ToolMissing, UsageError
from nsight_prof.parsers.run.directory import RunDir, read_manifest
from tests.orchestrator.test_import_many import prof, ranks, two_gpus

__all__ = ["ranks", "two_gpus"]  # fixtures
# Ray's processes take most of a test: beside others on two cores one took over five minutes.
# Nothing in it waits for a time: the limit is for a hang.
pytestmark = pytest.mark.timeout(1800)
NO_RAY = "Ray is not installed: pip install 'nsight-prof[ray]'"


class Failing(Executor):
    """Loses the worker of the second rank, as a cluster may."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        if args[0][2] == 1:
            future.set_exception(StepFailed("the node was lost", "--resume"))
        else:
            future.set_result(fn(*args, **kwargs))
        return future


def files(run: RunDir) -> dict[Path, int]:
    """The files of a run with their inodes: what was made anew has another."""
    return {path: path.stat().st_ino for path in run.path.rglob("*") if path.is_file()}


def test_an_import_that_lost_a_worker_goes_on_with_what_is_missing(
    ranks: list[Path], tmp_path: Path
) -> None:
    out = tmp_path / "job"
    with pytest.raises(StepFailed):
        import_files(ranks, out, executor=Failing())
    (left,) = tmp_path.iterdir()
    assert not out.exists()
    before = files(RunDir(left).rank(0))
    with ThreadPoolExecutor(2) as threads:
        job = import_files(ranks, out, executor=threads, resume=True)
    assert [record.rank for record in read_manifest(job).ranks] == [0, 1]
    after = files(job.rank(0))
    assert {p.relative_to(out): n for p, n in after.items()} == {
        p.relative_to(left): n for p, n in before.items()
    }
    assert sorted(path.name for path in tmp_path.iterdir()) == ["job"]
    assert sorted(path.name for path in (out / "ranks").iterdir()) == ["0000", "0001"]


def test_an_import_that_was_killed_goes_on_with_what_is_missing(
    ranks: list[Path], tmp_path: Path
) -> None:
    killed = (
        "import os, signal, sys\n"
        "from nsight_prof.orchestrator.imports import importing\n"
        "fill = importing._fill_rank\n"
        "def killed(*args):\n"
        "    if args[-1][2] == 1: os.kill(os.getpid(), signal.SIGKILL)\n"
        "    return fill(*args)\n"
        "importing._fill_rank = killed\n"
        "from nsight_prof.orchestrator.start import main\n"
        "sys.exit(main())\n"
    )
    words = ["import", *map(str, ranks), "--out", str(tmp_path / "job")]
    path = {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", killed, *words], env={**os.environ, **path})
    assert done.returncode == -signal.SIGKILL
    (left,) = tmp_path.iterdir()
    before = files(RunDir(left).rank(0))
    assert prof(*words, "--resume")[0] == 0
    after = files(RunDir(tmp_path / "job").rank(0))
    assert list(after.values()) == list(before.values())
    assert [path.name for path in tmp_path.iterdir()] == ["job"]


def test_a_rank_of_another_content_is_read_again(ranks: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "job"
    with pytest.raises(StepFailed):
        import_files(ranks, out, executor=Failing())
    swapped = [tmp_path / f"swapped/rank{rank}.sqlite" for rank in (0, 1)]
    swapped[0].parent.mkdir()
    for source, copy in zip(reversed(ranks), swapped, strict=True):
        os.link(source, copy)
    job = import_files(swapped, out, resume=True)
    fresh = import_files(swapped, tmp_path / "fresh")
    assert [r.sha256 for r in read_manifest(job).ranks] == [
        r.sha256 for r in read_manifest(fresh).ranks
    ]


def test_what_cannot_be_resumed_or_is_no_engine_is_refused(
    ranks: list[Path], tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match="was cut off"):
        import_files(ranks, tmp_path / "job", resume=True)
    for workers, engine in ((1, "dask"), (2, "ray")):
        with pytest.raises(UsageError), executor_of(workers, engine):
            pass


def test_without_ray_the_extra_is_named(
    monkeypatch: pytest.MonkeyPatch, ranks: list[Path], tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    code, said = prof("import", *ranks, "--on", "ray", "--out", tmp_path / "job")
    assert code == ToolMissing.exit_code
    assert "nsight-prof[ray]" in said


def test_an_address_where_nobody_answers_is_no_cluster(ranks: list[Path], tmp_path: Path) -> None:
    pytest.importorskip("ray", reason=NO_RAY)
    code, said = prof("import", *ranks, "--on", "ray:127.0.0.1:9", "--out", tmp_path / "job")
    assert code == ToolMissing.exit_code
    assert "127.0.0.1:9" in said
    assert "--workers" in said


@pytest.fixture
def head() -> Iterator[Any]:
    """A cluster of a head without CPUs."""
    pytest.importorskip("ray", reason=NO_RAY)
    from ray.cluster_utils import Cluster

    found = Cluster()
    soon = {"health_check_period_ms": 500, "health_check_failure_threshold": 4}
    found.add_node(num_cpus=0, _system_config=soon)
    yield found
    found.shutdown()
    del found
    with warnings.catch_warnings():  # Ray leaves open files to the garbage collector
        warnings.simplefilter("ignore")
        gc.collect()


@pytest.fixture
def cluster(head: Any) -> Any:
    """A head without CPUs, and two nodes that work."""
    for _ in range(2):
        head.add_node(num_cpus=1)
    head.wait_for_nodes()
    return head


@pytest.mark.filterwarnings("ignore")  # Ray's own
def test_a_node_that_is_lost_in_the_middle(
    cluster: Any, ranks: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rank is read on the other node, and it is named; a trace on its disk alone is lost."""
    began, go = tmp_path / "began", tmp_path / "go"
    began.mkdir()

    def held(work: Callable[..., Any], *args: Any) -> Any:
        import ray

        node_id = ray.get_runtime_context().get_node_id()
        (began / node_id).touch()
        while not go.exists() or go.read_text() == node_id:  # that of the lost node never ends
            time.sleep(0.05)
        return work(*args)

    def submit(self: RayExecutor, work: Callable[..., Any], /, *args: Any) -> Future[Any]:
        return any_node(self, held, work, *args)

    def kill(node: Any) -> None:
        while len(list(began.iterdir())) < 2:
            time.sleep(0.05)
        written = go.with_name("written")
        written.write_text(node.node_id)
        written.rename(go)
        cluster.remove_node(node, allow_graceful=False)

    any_node = RayExecutor.submit
    monkeypatch.setattr(RayExecutor, "submit", submit)
    with ray_executor(cluster.address) as executor:
        import ray

        # The driver is attached to one of the nodes of this machine, which may not go.
        own = ray.get_runtime_context().get_node_id()
        workers = cluster.list_all_nodes()[1:]
        assert {node.id for node in executor.nodes} == {node.node_id for node in workers}
        lost = next(node for node in workers if node.node_id != own)
        killer = threading.Thread(target=kill, args=(lost,))
        killer.start()
        job = import_files(ranks, tmp_path / "job", executor=executor)
        killer.join()
        (node,) = executor.lost()
        assert node.id == lost.node_id
        with pytest.raises(StepFailed, match=node.id[:8]):
            executor.submit_to(Node(node.id, node.host), os.getpid).result()
    assert {path.name for path in began.iterdir()} == {node.node_id for node in workers}
    manifest = read_manifest(job)
    assert any(str(node) in sentence for sentence in manifest.assumptions)
    here = import_files(ranks, tmp_path / "here")
    assert [r.sha256 for r in manifest.ranks] == [r.sha256 for r in read_manifest(here).ranks]
    launches = {len(tables.read(job.rank(rank).tables, "launches")) for rank in (0, 1)}
    assert 0 not in launches  # the nodes have made the tables


@pytest.mark.filterwarnings("ignore")
def test_the_commands_on_a_cluster(
    cluster: Any, ranks: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of both ranks the first worker is killed in the middle."""
    pattern, job = ranks[0].with_name("rank*.sqlite"), tmp_path / "job"

    def killed(work: Callable[..., Any], *args: Any) -> Any:
        first = tmp_path / f"killed-{args[0][2]}"
        if not first.exists():
            first.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return work(*args)

    any_node = RayExecutor.submit
    monkeypatch.setattr(
        RayExecutor, "submit", lambda self, work, /, *args: any_node(self, killed, work, *args)
    )
    on = ("--on", f"ray:{cluster.address}")
    assert prof("import", pattern, *on, "--out", job)[0] == 0
    assert len(list(tmp_path.glob("killed-*"))) == 2
    monkeypatch.undo()
    code, said = prof("report", job, *on)
    assert code == 0, said
    assert (job / "report/report.md").is_file()
