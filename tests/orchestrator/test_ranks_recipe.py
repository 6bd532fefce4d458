"""`ranks:` in a recipe: prof starts the launcher, traces its ranks and reports the job."""

import json
import lzma
import os
import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nsight_prof.orchestrator.cli import main
from nsight_prof.orchestrator.ranks.job import counters_argv, job_argv
from nsight_prof.orchestrator.recipe.read import load_recipe
from nsight_prof.parsers.errors import ProfError
from nsight_prof.parsers.run.directory import RunDir, read_manifest
from nsight_prof.reports.notebook import load_run
from tests.orchestrator.test_import_many import two_gpus
from tests.rank_node import warm_ranks

__all__ = ["two_gpus"]  # a fixture
FAKES = Path(__file__).resolve().parent.parent / "fakes"
RECIPE = """
name: job
target: {{command: [sh, -c, '{script}']}}
ranks: {{launcher: mpirun, count: 2{more}}}
"""


@pytest.fixture(autouse=True, scope="module")
def _warm() -> Iterator[None]:
    with warm_ranks() as name, pytest.MonkeyPatch.context() as patch:
        patch.setenv("FAKE_WARM", name)
        yield


@pytest.fixture(autouse=True)
def _tools(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", f"{FAKES}:{os.defpath}")
    monkeypatch.setenv("TMPDIR", str(tmp_path / "scratch"))
    (tmp_path / "scratch").mkdir()


def write(folder: Path, script: str = "exit 0", more: str = "") -> str:
    path = folder / "job.yaml"
    path.write_text(RECIPE.format(script=script, more=more))
    return str(path)


def test_prof_starts_the_launcher_and_reports_all_ranks(tmp_path: Path) -> None:
    out = tmp_path / "run"
    assert main(["run", write(tmp_path), "--out", str(out)]) == 0
    manifest = read_manifest(RunDir(out))
    assert [record.rank for record in manifest.ranks] == [0, 1]
    assert manifest.recipe["ranks"]["count"] == 2
    assert "# job: 2 ranks" in (out / "report/report.md").read_text()
    assert not list((tmp_path / "scratch").glob("prof-rank-*"))
    assert main(["run", write(tmp_path), "--out", str(out)]) == 2  # there is a job already
    assert main(["run", write(tmp_path), "--out", str(out), "--force"]) == 0
    assert [record.rank for record in read_manifest(RunDir(out)).ranks] == [0, 1]


def test_what_the_ranks_leave_is_reported_where_one_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = "exit $OMPI_COMM_WORLD_RANK"
    out = tmp_path / "run"
    assert main(["run", write(tmp_path, script), "--out", str(out), "--json"]) == 1
    printed = json.loads(capsys.readouterr().out)
    assert "mpirun ended with exit code 1" in printed["errors"][0]["error"]
    assert [record.reason for record in read_manifest(RunDir(out)).ranks] == ["", ""]
    assert (out / "report/report.md").is_file()


@pytest.mark.parametrize(("missing", "code"), [("report", 0), ("fail", 1)])
def test_a_rank_without_a_trace_fails_the_run_only_where_that_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str, code: int
) -> None:
    monkeypatch.setenv("FAKE_NSYS", "no-report")
    out = tmp_path / "run"
    recipe = write(tmp_path, more=f", missing: {missing}")
    assert main(["run", recipe, "--out", str(out)]) == code
    reasons = [record.reason for record in read_manifest(RunDir(out)).ranks]
    assert all("nsys left no report" in reason for reason in reasons)
    assert "0 of 2 ranks" in (out / "report/report.md").read_text()


def test_a_launcher_that_starts_nothing_is_an_error_and_leaves_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FAKE_MPIRUN", "fails")
    assert main(["run", write(tmp_path), "--out", str(tmp_path / "run")]) == 1
    assert "mpirun ended with exit code 2: mpirun: no slots available" in capsys.readouterr().err
    assert not (tmp_path / "run/manifest.json").exists()


def test_a_job_that_takes_too_long_is_ended_and_keeps_its_traces(
    tmp_path: Path, timeout_when: Callable[[Callable[[], int]], None]
) -> None:
    out, begun = tmp_path / "run", tmp_path / "begun"
    begun.mkdir()
    recipe = write(tmp_path, f"touch {begun}/$OMPI_COMM_WORLD_RANK; exec sleep 600")
    timeout_when(lambda: len(list(begun.iterdir())) == 2)
    assert main(["run", recipe, "--set", "trace.timeout=600", "--out", str(out)]) == 1
    assert [record.reason for record in read_manifest(RunDir(out)).ranks] == ["", ""]


def test_the_command_of_torchrun_is_that_of_the_targets_python(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(
        "name: job\n"
        "target: {command: [python, train.py], python: /opt/torch/bin/python}\n"
        "capture: profiler-api\n"
        "stages: [^step$]\n"
        "trace: {extra_args: [--cuda-memory-usage=true]}\n"
        "ranks: {count: 2, trace: 'every:2', options: [--nnodes=2]}\n"
    )
    recipe = load_recipe(str(path))
    assert recipe.ranks is not None
    argv = job_argv(recipe, recipe.ranks, Path("runs/job"))
    assert argv == [
        "/opt/torch/bin/python", "-m", "torch.distributed.run", "--nproc-per-node=2",
        "--nnodes=2", "--no-python", sys.executable, "-m", "nsight_prof", "rank", "runs/job",
        "--trace=every:2", "--stage=^step$", "--nsys=--capture-range=cudaProfilerApi",
        "--nsys=--capture-range-end=stop", "--nsys=--cuda-memory-usage=true", "--",
        "/opt/torch/bin/python", "train.py",
    ]  # fmt: skip
    assert main(["run", str(path), "--dry-run", "--out", "runs/job"]) == 0
    assert shlex.join(argv) in capsys.readouterr().out


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ("counters: {enabled: true}", "say how ranks are counted"),
        ("counters: {rules: true}", "leave counters.rules out"),
        ("untraced: {enabled: true}", "leave `untraced` out beside `ranks`"),
        ("trace: {cublas_log: true}", "leave trace.cublas_log out"),
        ("stages: {step: ^step$}", "is a list of regexes"),
        ("sweep: {ranks.count: [1, 2]}", "leave `sweep` out beside `ranks`"),
    ],
)
def test_what_a_job_cannot_have_is_refused(tmp_path: Path, keys: str, words: str) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(f"name: job\ntarget: {{command: [./app]}}\nranks: {{count: 2}}\n{keys}\n")
    with pytest.raises(ProfError, match=words):
        load_recipe(str(path))


@pytest.mark.parametrize(
    ("mode", "keys", "words"),
    [
        ("one-pass", "counters: {sets: [roofline]}", "leave counters.sets out, or"),
        ("one-rank", "select: {collectives: true}", "leave select.collectives out, or"),
    ],
)
def test_what_would_wait_forever_is_refused_with_a_way_out(
    tmp_path: Path, mode: str, keys: str, words: str
) -> None:
    path = tmp_path / "job.yaml"
    ranks = f"ranks: {{count: 2, counters: {mode}}}"
    path.write_text(f"name: job\ntarget: {{command: [./app]}}\n{ranks}\n{keys}\n")
    with pytest.raises(ProfError, match=words):
        load_recipe(str(path))


def test_the_counters_of_ranks_have_a_limit_and_the_range_of_the_capture(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(
        "name: job\ntarget: {command: [./app]}\ncapture: profiler-api\n"
        "ranks: {launcher: srun, count: 2, trace: '0', gpu_metrics: 20000, counters: one-rank}\n"
    )
    recipe = load_recipe(str(path))
    assert recipe.ranks is not None
    assert "--gpu-metrics=20000" in job_argv(recipe, recipe.ranks, Path("job"))
    argv = counters_argv(recipe, recipe.ranks, Path("job"))
    assert argv[argv.index("job") + 1 :] == [
        "--trace=0", "--counters=one-rank", "--limit=600", "--ncu=--profile-from-start",
        "--ncu=off", "--", "./app",
    ]  # fmt: skip


def test_a_job_is_not_replayed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", write(tmp_path), "--replay", str(tmp_path)]) == 2
    assert "is not replayed" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("keys", "options"),
    [
        ("trace: [0, 8]", ["--trace=0,8"]),
        ("trace: {every: 8}", ["--trace=every:8"]),
        ("trace: {roles: [a, b]}, role_from: PART", ["--trace=role:a,b", "--role-from=PART"]),
        ("window: {steps: [20, 23]}", ["--window=step:20-23"]),
        (
            "window: {steps: [2, 2], nvtx: 'a b'}, keep: tables",
            ["--window=a b:2-2", "--keep=tables"],
        ),
        ("keep: both, scratch: /local", ["--scratch=/local", "--keep=both"]),
    ],
)
def test_keys_of_ranks_are_options_of_prof_rank(
    tmp_path: Path, keys: str, options: list[str]
) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(
        f"name: job\ntarget: {{command: [./app]}}\nranks: {{launcher: srun, count: 2, {keys}}}\n"
    )
    recipe = load_recipe(str(path))
    assert recipe.ranks is not None
    argv = job_argv(recipe, recipe.ranks, Path("job"))
    assert argv[argv.index("job") + 1 : argv.index("--")] == options


@pytest.mark.parametrize(
    ("ranks", "words"),
    [
        ("per_node: 8", "of torchrun, ranks.count is of each node"),
        ("nodes: [a, b]", "name them in ranks.options"),
        ("counters: [0]", "values: one-rank, one-pass, application"),
        ("how: sampling", "samples: ranks.gpu_metrics"),
        ("trace: {nodes: 1}", "write all, first-of-node"),
        ("window: profiler-api", "capture: {nvtx: NAME} or profiler-api"),
        ("window: {http: 8000}", "running-server"),
        ("window: {steps: [4, 2]}", "4 is after 2"),
        ("keep: reports", "values: traces, tables, both"),
        ("keep: tables, counters: one-rank", "leave ranks.keep out"),
        ("launcher: own, counters: one-rank", "leave ranks.counters out"),
        ("align: ntp", "values: collectives, epoch, none"),
        ("engine: ray", "it stands beside `ranks`"),
    ],
)
def test_keys_that_ranks_do_not_have_are_refused_with_a_way_out(
    tmp_path: Path, ranks: str, words: str
) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(f"name: job\ntarget: {{command: [./app]}}\nranks: {{count: 2, {ranks}}}\n")
    with pytest.raises(ProfError) as refused:
        load_recipe(str(path))
    assert words in f"{refused.value.message} {refused.value.hint}"


@pytest.mark.parametrize(
    ("engine", "words"),
    [
        ("{kind: ray, workers: 8}", "Ray has a worker for each CPU"),
        ("{memory: 2GiB}", "leave engine.memory out"),
        ("{kind: ray, memory: 2 pages}", "768MiB, 2GiB"),
    ],
)
def test_an_engine_has_the_keys_of_its_kind(tmp_path: Path, engine: str, words: str) -> None:
    path = tmp_path / "job.yaml"
    recipe = f"name: job\ntarget: {{command: [./app]}}\nengine: {engine}\n"
    path.write_text(f"{recipe}ranks: {{count: 2}}\n")
    with pytest.raises(ProfError, match=words):
        load_recipe(str(path))
    path.write_text(recipe)
    with pytest.raises(ProfError, match=r"engine"):
        load_recipe(str(path))


def test_processes_of_this_machine_make_the_tables(tmp_path: Path) -> None:
    out = tmp_path / "run"
    recipe = write(tmp_path)
    assert main(["run", recipe, "--set", "engine.workers=2", "--out", str(out)]) == 0
    assert "# job: 2 ranks" in (out / "report/report.md").read_text()


def test_the_ranks_of_a_role_are_traced(tmp_path: Path) -> None:
    out = tmp_path / "run"
    recipe = write(tmp_path, more=", trace: {roles: [decode]}")
    assert main(["run", recipe, "--out", str(out)]) == 0
    (record,) = read_manifest(RunDir(out)).ranks
    assert (record.rank, record.role) == (1, "decode")
    assert "1 of the 2 ranks was traced" in (out / "report/report.md").read_text()


@pytest.mark.parametrize("keep", ["tables", "both"])
def test_what_is_kept_of_a_rank(tmp_path: Path, keep: str) -> None:
    out = tmp_path / "run"
    assert main(["run", write(tmp_path, more=f", keep: {keep}"), "--out", str(out)]) == 0
    rank = out / "ranks/0001"
    assert (rank / "trace.nsys-rep").is_file() == (keep == "both")
    assert bool(list(rank.glob("steps/*/trace.sqlite"))) == (keep == "both")
    assert len(load_run(rank).kernels) == 3
    assert main(["report", str(out)]) == 0
    assert main(["report", str(out), "--rank", "1"]) == 0
    assert len(load_run(rank).kernels) == 3  # which were not made anew of nothing


def test_a_program_that_starts_its_ranks_itself_is_a_job_of_them(
    tmp_path: Path, two_gpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_EXPORT", str(two_gpus))
    path, out = tmp_path / "job.yaml", tmp_path / "run"
    path.write_text(
        "name: job\ntarget: {command: [sh, -c, 'exit 0']}\n"
        "ranks: {launcher: own, count: 3, missing: report}\n"
    )
    assert main(["run", str(path), "--out", str(out)]) == 0
    job = read_manifest(RunDir(out))
    assert [(record.rank, record.local_rank) for record in job.ranks] == [(0, 0), (1, 1)]
    pids = [record.pids for record in job.ranks]
    assert len({pid for (pid,) in pids}) == 2
    times = load_run(out).rank_times
    assert times["rank"].tolist() == [0, 1]
    assert times["collectives"].nunique() == 1
    assert times["collectives"][0] > 30
    text = (out / "report/report.md").read_text()
    assert "# job: 2 of 3 ranks" in text
    assert "which were to be traced: 2." in text
    assert not list((tmp_path / "scratch").glob("prof-rank-*"))


def test_a_window_of_steps_is_what_each_rank_keeps(
    tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = root / "tests/fixtures/ranks/balanced/ranks/0000/steps/1-trace/trace.sqlite.xz"
    export = tmp_path / "trace.sqlite"
    export.write_bytes(lzma.decompress(packed.read_bytes()))
    monkeypatch.setenv("FAKE_EXPORT", str(export))
    out = tmp_path / "run"
    recipe = write(tmp_path, more=", window: {steps: [5, 8]}, missing: fail")
    assert main(["run", recipe, "--set", "stages=[^step$]", "--out", str(out)]) == 0
    for rank in (0, 1):
        run = load_run(out / f"ranks/{rank:04d}")
        assert run.stages.set_index("stage")["instances"]["step"] == 4
    recipe = write(tmp_path, more=", window: {steps: [15, 17]}, missing: fail")
    assert main(["run", recipe, "--out", str(out), "--force"]) == 1
    reasons = [record.reason for record in read_manifest(RunDir(out)).ranks]
    assert all("has 16 closed NVTX ranges 'step'" in reason for reason in reasons)
