"""Importing a job by executors of Dask and MPI, where these are installed."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from nsight_prof.parsers.run.directory import RunDir, read_manifest
from tests.orchestrator.test_import_many import ranks, two_gpus

__all__ = ["ranks", "two_gpus"]  # fixtures
pytestmark = pytest.mark.timeout(1200)
IMPORT = """
import sys
from pathlib import Path
from nsight_prof.orchestrator.imports.importing import import_files

def job(executor):
    import_files([*map(Path, sys.argv[2:])], Path(sys.argv[1]), executor=executor)
"""
DASK = """
from dask.distributed import Client, LocalCluster

if __name__ == "__main__":
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        with Client(cluster) as client:
            job(client.get_executor())
"""
MPI = """
from mpi4py.futures import MPIPoolExecutor

if __name__ == "__main__":
    with MPIPoolExecutor() as executor:
        job(executor)
"""


def imported(root: Path, folder: Path, code: str, ranks: list[Path], *launcher: str) -> None:
    script = folder / "import_job.py"
    script.write_text(IMPORT + code)
    argv = [*launcher, str(script), str(folder / "job"), *map(str, ranks)]
    paths = os.pathsep.join(filter(None, (str(root), os.environ.get("PYTHONPATH"))))
    subprocess.run(argv, env={**os.environ, "PYTHONPATH": paths}, check=True)
    manifest = read_manifest(RunDir(folder / "job"))
    assert [record.rank for record in manifest.ranks] == [0, 1]
    assert not any(record.reason for record in manifest.ranks)


def test_an_executor_of_dask(root: Path, ranks: list[Path], tmp_path: Path) -> None:
    pytest.importorskip("distributed", reason="Dask is not installed: pip install distributed")
    imported(root, tmp_path, DASK, ranks, sys.executable)


def test_an_executor_of_mpi(root: Path, ranks: list[Path], tmp_path: Path) -> None:
    pytest.importorskip("mpi4py", reason="mpi4py is not installed")
    near = shutil.which("mpiexec", path=str(Path(sys.executable).parent))
    mpiexec = near or shutil.which("mpiexec") or pytest.skip("there is no mpiexec")
    # One process asks, two work.
    argv = [mpiexec, "-n", "3", sys.executable, "-m", "mpi4py.futures"]
    imported(root, tmp_path, MPI, ranks, *argv)
