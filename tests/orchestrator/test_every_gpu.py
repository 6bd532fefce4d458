"""`prof run --on ray --every gpu`: each GPU of a real Ray of several nodes is measured once."""

import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nsight_prof.orchestrator.cli import main
from nsight_prof.orchestrator.workers import every_gpu
from nsight_prof.orchestrator.workers.every_gpu import run_on_every_gpu, uuids_of_task
from nsight_prof.orchestrator.workers.on_ray import ray_executor
from nsight_prof.parsers.errors import ToolMissing
from tests.orchestrator.test_on_ray import head

__all__ = ["head"]  # a fixture
pytestmark = pytest.mark.timeout(1800)  # as in test_on_ray
FAKES = Path(__file__).resolve().parent.parent / "fakes"
# Measures, but the GPU that the file `stuck` names: there it says so, and never ends.
TARGET = """#!{python} -IS
import os, pathlib, runpy, time
folder, gpu = pathlib.Path(__file__).parent, os.environ["CUDA_VISIBLE_DEVICES"]
if gpu == (folder / "stuck").read_text():
    (folder / "began").touch()
    time.sleep(600)
runpy.run_path({fake!r}, run_name="__main__")
"""
RECIPE = """
name: boards
question: How fast is this GPU?
target: {{command: [{target}, --roofs]}}
bench: {{processes: 1, repeat: 1}}
trace: {{enabled: false}}
counters: {{enabled: false}}
"""


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    target = tmp_path / "target"  # no file in Python, which would be asked for its torch
    target.write_text(TARGET.format(python=sys.executable, fake=str(FAKES / "bench_target.py")))
    target.chmod(0o755)
    path = tmp_path / "boards.yaml"
    path.write_text(RECIPE.format(target=target))
    return path


def node_with(head: Any, *uuids: str) -> Any:
    """A node with GPUs, of which NVML there tells the UUIDs."""
    path = os.pathsep.join([str(FAKES / "nvml"), os.environ.get("PYTHONPATH", "")])
    env = {"PYTHONPATH": path, "FAKE_GPUS": ",".join(uuids)}
    return head.add_node(num_cpus=1, num_gpus=len(uuids), env_vars=env)


@pytest.mark.filterwarnings("ignore")  # Ray's own
def test_each_gpu_is_measured_once_and_a_lost_node_is_named(
    head: Any, recipe: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, stuck, began = tmp_path / "fleet", tmp_path / "stuck", tmp_path / "began"
    with_two = {"GPU-a0": "GPU-a1", "GPU-b0": "GPU-b1"}
    nodes = {first: node_with(head, first, second) for first, second in with_two.items()}
    # On one machine with the first one: the GPU that both show is measured there.
    node_with(head, "GPU-a0")
    head.wait_for_nodes()

    def kill(node: Any) -> None:
        while not began.exists():
            time.sleep(0.05)
        head.remove_node(node, allow_graceful=False)

    with ray_executor(head.address) as executor:
        import ray

        own = ray.get_runtime_context().get_node_id()  # which may not go
        first = next(gpu for gpu, node in nodes.items() if node.node_id != own)
        lost = nodes[first].node_id[:8]
        stuck.write_text(with_two[first])
        killer = threading.Thread(target=kill, args=(nodes[first],), daemon=True)
        killer.start()
        asked = every_gpu.Asked((str(recipe),), out, tmp_path)
        found = {gpu.uuid: gpu for gpu in run_on_every_gpu(executor, asked, print)}
        killer.join(timeout=60)
        assert not killer.is_alive()
    assert sorted(found) == ["GPU-a0", "GPU-a1", "GPU-b0", "GPU-b1"]
    errors = {uuid: gpu.error for uuid, gpu in found.items() if gpu.error}
    assert list(errors) == [with_two[first]], errors
    assert lost in errors[with_two[first]]
    runs = {path: path.stat().st_ino for path in out.glob("*/*/manifest.json")}
    capsys.readouterr()
    assert main(["fleet", str(out)]) == 0
    said = capsys.readouterr()
    assert "None of 3 GPUs is slower" in said.out
    assert f"left out: {out}" in said.err  # what the lost node had begun

    stuck.write_text("")
    node_with(head, first, with_two[first])  # it is back
    on = ["--on", f"ray:{head.address}", "--every", "gpu", "--resume", str(out)]
    assert main(["run", str(recipe), *on, "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert sorted(gpu["uuid"] for gpu in again) == sorted(found)
    assert {gpu["error"] for gpu in again} == {""}
    after = {path: path.stat().st_ino for path in out.glob("*/*/manifest.json")}
    begun = next(path for path in runs if path.parent.name == with_two[first])
    assert {path for path in runs if runs[path] != after[path]} == {begun}
    assert main(["fleet", str(out), "--json"]) == 0
    (model,) = json.loads(capsys.readouterr().out)
    assert (model["gpus"], model["outliers"]) == (4, [])


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    monkeypatch.syspath_prepend(str(FAKES / "nvml"))
    monkeypatch.delitem(sys.modules, "pynvml", raising=False)
    monkeypatch.setenv("FAKE_GPUS", "GPU-a,GPU-b,GPU-c")
    yield monkeypatch
    monkeypatch.delitem(sys.modules, "pynvml", raising=False)


@pytest.mark.parametrize(
    ("visible", "uuids"),
    [("2,0", ["GPU-c", "GPU-a"]), ("GPU-b", ["GPU-b"]), ("", [])],
)
def test_the_gpus_of_a_task_are_known_by_uuid(
    told: pytest.MonkeyPatch, visible: str, uuids: list[str]
) -> None:
    told.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert uuids_of_task() == uuids


def test_more_gpus_than_a_node_has_are_refused(told: pytest.MonkeyPatch) -> None:
    told.setenv("CUDA_VISIBLE_DEVICES", "0,3")
    with pytest.raises(ToolMissing, match="NVML has 3"):
        uuids_of_task()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--on", "ray"), "belong together"),
        (("--every", "gpu"), "belong together"),
        (("--on", "ray", "--every", "gpu", "--dry-run"), "no --dry-run"),
        (("--on", "dask", "--every", "gpu"), "names no engine"),
    ],
)
def test_what_does_not_go_together_is_refused(
    recipe: Path,
    capsys: pytest.CaptureFixture[str],
    options: tuple[str, ...],
    words: str,
) -> None:
    assert main(["run", str(recipe), *options]) == 2
    assert words in capsys.readouterr().err


@pytest.mark.filterwarnings("ignore")
def test_a_cluster_without_gpus_is_named(
    head: Any, recipe: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "fleet"
    on = ["--on", f"ray:{head.address}", "--every", "gpu", "--out", str(out)]
    assert main(["run", str(recipe), *on]) == ToolMissing.exit_code
    assert "no node of the Ray cluster has a GPU" in capsys.readouterr().err
    assert not out.exists()
