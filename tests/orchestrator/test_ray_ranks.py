"""`launcher: ray`: a real Ray of two nodes on this machine starts the ranks of a job."""

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from nsight_prof.orchestrator.cli import main
from nsight_prof.parsers.run.directory import RunDir, read_manifest
from tests.orchestrator.test_on_ray import head
from tests.rank_node import FAKES

__all__ = ["head"]  # a fixture
pytestmark = pytest.mark.timeout(1800)  # as in test_on_ray
RECIPE = """
name: job
target: {{command: [sh, -c, '{script}']}}
ranks: {{launcher: ray, count: 3, trace: all}}
engine: {{kind: ray, address: {address}}}
"""
NAMES = "$RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $CUDA_VISIBLE_DEVICES $MASTER_PORT"


@pytest.fixture
def address(head: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """The address of a cluster of a node with two GPUs, and one with one."""
    for gpus in (2, 1):
        head.add_node(num_cpus=2, num_gpus=gpus)
    head.wait_for_nodes()
    monkeypatch.setenv("PATH", f"{FAKES}:{os.defpath}")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return str(head.address)


@pytest.mark.filterwarnings("ignore")  # Ray's own
def test_ray_starts_the_ranks_of_a_job(address: str, tmp_path: Path) -> None:
    said, recipe, out = tmp_path / "said", tmp_path / "job.yaml", tmp_path / "run"
    said.mkdir()
    recipe.write_text(RECIPE.format(script=f"echo {NAMES} > {said}/$RANK", address=address))
    assert main(["run", str(recipe), "--out", str(out)]) == 0, (
        out / "launcher.stderr.log"
    ).read_text()
    ranks = [(said / str(rank)).read_text().split() for rank in range(3)]
    assert [rank[:3] for rank in ranks] in (
        [["0", "0", "3"], ["1", "1", "3"], ["2", "0", "3"]],
        [["0", "0", "3"], ["1", "0", "3"], ["2", "1", "3"]],
    )
    assert sorted(rank[3:5] for rank in ranks) == [["1", "0"], ["2", "0,1"], ["2", "0,1"]]
    assert len({rank[5] for rank in ranks}) == 1
    job = read_manifest(RunDir(out))
    assert [(record.rank, record.reason) for record in job.ranks] == [(0, ""), (1, ""), (2, "")]

    # One rank fails while the others work: they get SIGTERM, and all traces are kept.
    works = f"until [ -e {said}/works0 -a -e {said}/works2 ]; do sleep 0.1; done"
    script = f"touch {said}/works$RANK; [ $RANK = 1 ] && {{ {works}; exit 5; }}; exec sleep 600"
    recipe.write_text(RECIPE.format(script=script, address=address))
    assert main(["run", str(recipe), "--out", str(out), "--force"]) == 1
    assert [record.reason for record in read_manifest(RunDir(out)).ranks] == ["", "", ""]

    # The job is interrupted once all ranks have begun.
    recipe.write_text(
        RECIPE.format(script=f"touch {said}/on$RANK; exec sleep 600", address=address)
    )

    def interrupt() -> None:
        while len(list(said.glob("on*"))) < 3:
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    assert main(["run", str(recipe), "--out", str(out), "--force"]) == 130
    assert len(list((out / "ranks").glob("[0-9]*/manifest.json"))) == 3


@pytest.mark.filterwarnings("ignore")
def test_a_cluster_without_enough_gpus_is_named(
    address: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = tmp_path / "job.yaml"
    recipe.write_text(RECIPE.format(script="true", address=address))
    words = ["run", str(recipe), "--set", "ranks.count=9", "--out", str(tmp_path / "run")]
    assert main(words) == 1
    assert "ray ended with exit code 3" in capsys.readouterr().err
