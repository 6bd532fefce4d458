"""Shared fixtures: the folder of real Nsight exports, and our own recorded captures."""

import gc
import gzip
import hashlib
import io
import json
import os
import pickle
import signal
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import chdir, nullcontext, redirect_stderr, redirect_stdout
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis.internal import charmap
from hypothesis.internal.conjecture import providers
from hypothesis.strategies import just
from jsonschema import Draft202012Validator

import tests.as_prof  # noqa: F401  # before all that reads tables
from nsight_prof.orchestrator.cli import main
from nsight_prof.orchestrator.system import process
from nsight_prof.parsers import tables
from nsight_prof.parsers.build.load import load_run
from nsight_prof.parsers.run.directory import (
    Manifest,
    RunDir,
    StepRecord,
    StepState,
    write_manifest,
)
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.page.catalogue import file_in
from nsight_prof.reports.render import drawing, second_process
from nsight_prof.reports.render.drawing import Drawn
from nsight_prof.reports.render.gallery import Picture
from nsight_prof.reports.render.style import MARKDOWN, Style
from tests.recorded import CHOSEN, REPLAYED, TABLES, made_once, with_tables

pytest_plugins = ["tests.ran"]

ROOT = Path(__file__).resolve().parent.parent
BENCH_CLOCK, BENCH_SMS = 1.755e9, 132

# No test is about time: on a busy machine the first example of any may be slow.
# The same examples in every run: what fails, fails for everybody. `--hypothesis-profile explore`
# looks for new ones, also where `settings().max_examples // 3` keeps costly ones few.
settings.register_profile("same", deadline=None, derandomize=True, max_examples=50)
settings.register_profile("explore", deadline=None, max_examples=2000)
settings.load_profile("same")


def pytest_configure(config: pytest.Config) -> None:
    """Leave numbers and words of our own modules out of the examples.

    Which of them Hypothesis knows depends on what a worker has imported, so that no two runs would
    have the same examples, and it parses all of our files to find them.
    """
    if config.getoption("--hypothesis-profile") != "explore":
        providers.is_local_module_file = lambda path: False  # type: ignore[assignment,attr-defined]


@pytest.hookimpl(trylast=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """Write which characters UTF-8 has to where Hypothesis looks for them.

    Else each worker of a fresh clone encodes a million characters to find them: 3 s.
    """
    encodable = charmap.charmap_file("codec-v2-utf-8")
    if not hasattr(session.config, "workerinput") and not encodable.exists():
        encodable.parent.mkdir(parents=True, exist_ok=True)
        found: list[Any] = [[[0, 0xD7FF], [0xE000, sys.maxunicode]], []]
        encodable.write_bytes(gzip.compress(json.dumps(found).encode()))


# A shell starts background jobs with these ignored, and every child would inherit that: prof leaves
# what is ignored as it is, and the tests of signals would wait for ever.
for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
    if signal.getsignal(number) is signal.SIG_IGN:
        is_interrupt = number == signal.SIGINT
        signal.signal(number, signal.default_int_handler if is_interrupt else signal.SIG_DFL)


NOT_READ = "is read with --every-run, as by .ci/run"


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Leave what reads many recorded runs to .ci/run."""
    if item.get_closest_marker("every_run") and not item.config.getoption("--every-run"):
        pytest.skip(f"each recorded run {NOT_READ}")


# The files that take longest, by what they took: at the end the other workers would wait for them.
# Each third one waits for programs that it starts: several at once would leave cores idle.
LONGEST = ("test_predict.py", "test_accessibility.py", "test_server.py", "test_captures.py",
           "test_import_many.py", "test_rank_counters.py", "test_browser.py", "test_ranks.py",
           "test_rank_faults.py", "test_planted_on_gpus.py", "test_scripts.py",
           "test_ranks_recipe.py", "test_recorded_jobs.py", "test_wheel.py", "test_rank.py",
           "test_load.py", "test_gemm_staircase.py", "test_signals.py", "test_render.py",
           "test_host_speed.py", "test_vllm_kernels.py", "test_host_floor.py", "test_messages.py",
           "test_target_steps.py", "test_serving_baseline.py", "test_fuzz.py",
           "test_tools_that_lie.py", "test_plots.py", "test_pictures_in_languages.py",
           "test_resume_artifacts.py", "test_pages.py", "test_import_torch.py",
           "test_hostile_imports.py", "test_ncu_rules.py", "test_attribution.py",
           "test_baseline.py", "test_templating.py", "test_secrets.py", "test_resume.py",
           "test_findings.py", "test_run.py", "test_streams.py", "test_job_summary.py",
           "test_proof.py", "test_on_ray.py", "test_trace_file.py", "test_fleet.py",
           "test_offline.py", "test_language.py", "test_site.py", "test_turnaround_fit.py",
           "test_compare.py", "test_export.py", "test_metrics.py", "test_rank_steps.py",
           "test_hostile_runs.py", "test_leaves.py")  # fmt: skip


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Import the files in another order in each worker.

    Each compiles a part of them in a fresh clone, and finds what the others have compiled.
    """
    report = yield
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    first = len(report.result) * worker // int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    if not any(isinstance(found, pytest.Item) for found in report.result):
        report.result = report.result[first:] + report.result[:first]
    return report


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files that take longest, each of which is of one worker."""
    place = {name: number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: (place.get(item.path.name, len(place)), item.path))


def pytest_collection_finish() -> None:
    """Leave thousands of collected tests out of each later collection of garbage.

    What is garbage by now, a few MB, may stay: to look for it takes each worker 0.4 s.
    """
    gc.freeze()
    # Hypothesis collects garbage before its first example: up to a second once tests keep much.
    given(just(None))(lambda _: None)()


@pytest.hookimpl(trylast=True)
def pytest_unconfigure() -> None:
    """Leave all that tests kept out of the collections at the end, once pytest has made its own."""
    gc.freeze()


@pytest.fixture(autouse=True, scope="session")
def no_wait_for_the_disk() -> Iterator[None]:
    """No test pulls the plug; hundreds of them write through whole_file."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.fixture(autouse=True, scope="session")
def programs_start_without_a_copy_of_this_process() -> Iterator[None]:
    """Nobody kills this process, with which its programs would have to end.

    With a function to call in the child, Python copies the page tables of hundreds of megabytes for
    each of thousands of programs. `prof` as a program does so.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(process, "end_with_parent", None)
        yield


@pytest.fixture(autouse=True, scope="session")
def no_second_process_draws() -> Iterator[None]:
    """All cores have tests already; a fork of this process would cost more than it draws.

    Tests of the second process import what starts it; `prof` as a program has it as well.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(drawing, "drawing_in_parallel", lambda: nullcontext(drawing.draw_here))
        patch.setattr(second_process, "second_process", lambda _: nullcontext())
        yield


_draw, _read_table = drawing._drawn, tables.read
MOST_BYTES = 1_000_000
"""Of a table that is kept for tests that read it again."""


@pytest.fixture(autouse=True, scope="session")
def pictures_are_drawn_once() -> Iterator[None]:
    """Many tests render the same run: a picture of the same data is the one that was drawn before,
    each language by itself."""
    drawn: dict[tuple[bytes, str], Drawn] = {}

    def once(picture: Picture, style: Style) -> Drawn:
        try:
            key = pickle.dumps((picture, style.formats, style.png))
        except (AttributeError, pickle.PicklingError):  # drawn by a function within a test
            return _draw(picture, style)
        found = Drawn(picture.name, {}, {})
        for language in style.all_languages:
            if (key, language) not in drawn:
                alone: Any = SimpleNamespace(
                    all_languages=(language,), formats=style.formats, png=style.png
                )
                drawn[key, language] = _draw(picture, alone)
            found.files.update(drawn[key, language].files)
            found.html.update(drawn[key, language].html)
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(drawing, "_drawn", once)
        yield


@pytest.fixture(autouse=True, scope="session")
def tables_are_read_once() -> Iterator[None]:
    """Hundreds of tests open the same run or a copy of it: a table of the same bytes is read once.

    Each gets a frame of its own, since pandas copies what one of them writes. Tests of reading
    import what reads.
    """
    frames: dict[tuple[str, tuple[str, ...] | None, bytes | None], pd.DataFrame] = {}

    def once(folder: Path, table: str, only: Sequence[str] | None = None) -> pd.DataFrame:
        path = folder / f"{table}.parquet"
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            content = None
        if content is not None and len(content) > MOST_BYTES:
            return _read_table(folder, table, only)
        digest = None if content is None else hashlib.sha256(content).digest()
        key = table, None if only is None else (*only,), digest
        if key not in frames:
            frames[key] = _read_table(folder, table, only)
        return frames[key].copy(deep=False)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables, "read", once)
        yield


@pytest.fixture
def timeout_when(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], int]], None]:
    """Lets the time of started programs be over once a function returns something true.

    Where it counts, the time of the next program is over once it counts one more.

    A test that gives a timeout in seconds asks whether this machine is fast enough.
    """

    def when(event: Callable[[], int]) -> None:
        later = SimpleNamespace(
            sleep=time.sleep, monotonic=lambda: time.monotonic() + 1e9 * event()
        )
        monkeypatch.setattr(process, "time", later)

    return when


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout."""
    return ROOT


@pytest.fixture
def no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures have tests of their own: whoever asks for this looks at text."""

    monkeypatch.setattr(drawing, "_drawn", blank)


def blank(picture: Picture, style: Style) -> Drawn:
    """Stand in for `drawing._drawn`: the files of a picture, without anything drawn."""
    languages = style.all_languages
    names = (file_in(f"{picture.name}.svg", language) for language in languages)
    files = dict.fromkeys(names, b"<svg/>") if MARKDOWN in style.formats else {}
    return Drawn(picture.name, files, dict.fromkeys(languages, "<svg></svg>"))


@pytest.fixture(scope="session")
def replay(
    request: pytest.FixtureRequest, root: Path, of_all_workers: Path
) -> Callable[[str], Path]:
    """Replays a recorded run with the recipe of the same name; gives the new run's folder.

    It is one for all workers: who writes, copies it. All but a few are for `--every-run`.
    """
    every = request.config.getoption("--every-run")

    def run(recipe: str) -> Path:
        if not every and recipe not in CHOSEN:
            pytest.skip(f"captures/h200-{recipe} {NOT_READ}")
        recorded = root / "captures" / f"h200-{recipe}"
        if not recorded.is_dir():
            pytest.skip(f"captures/{recorded.name} is not recorded yet")
        return made_once(
            of_all_workers / f"replayed-{recipe}", partial(_replayed, root, recipe, recorded)
        )

    return cache(run)


def _replayed(root: Path, recipe: str, recorded: Path, folder: Path) -> None:
    """Replay within this process: a process of its own reads and compiles all of prof anew.

    Without pictures: scripts/example draws those of all recorded runs, with processes of its own.
    """
    command = ["run", f"recipes/{recipe}.yaml", "--replay", str(recorded), "--out", str(folder)]
    command += ["--language", "all"]
    said = io.StringIO()
    with (
        chdir(root),
        redirect_stdout(said),
        redirect_stderr(said),
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(drawing, "_drawn", blank)
        code = main(command)
    assert code == 0, said.getvalue()


@pytest.fixture(scope="session")
def of_all_workers(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """Folder that all workers of pytest-xdist see: for `made_once`."""
    folder = tmp_path_factory.getbasetemp()
    return folder.parent if hasattr(request.config, "workerinput") else folder


@pytest.fixture(scope="session")
def recorded_folder(
    request: pytest.FixtureRequest, of_all_workers: Path, replay: Callable[[str], Path]
) -> Callable[[str], Path]:
    """Folder of a recorded run with its tables, one for all workers: who writes, copies it.

    The tables are those of the replay where there is one: `refresh_tables` would make the same.
    """
    every = request.config.getoption("--every-run")
    replayed = {name for name in REPLAYED if every or name.removeprefix("h200-") in CHOSEN}

    def folder(name: str) -> Path:
        in_each = name.startswith("prediction/") or name.removeprefix("h200-") in CHOSEN + TABLES
        if not (every or in_each):
            pytest.skip(f"captures/{name} {NOT_READ}")
        tables = replay(name.removeprefix("h200-")) / "tables" if name in replayed else None
        place = of_all_workers / f"recorded-{name.replace('/', '-')}"
        return made_once(place, partial(with_tables, name, tables=tables))

    return cache(folder)


@pytest.fixture(scope="session")
def recorded_run_of(recorded_folder: Callable[[str], Path]) -> Callable[[str], Run]:
    """Opens a recorded run by the name of its folder, with its tables: to be read only."""
    return cache(lambda name: load_run(recorded_folder(name)))


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of material beside the checkout; tests that need it are skipped without it."""
    folder = Path(os.environ.get("PROF_SHARED", ROOT.parent / "shared"))
    if not (folder / "data" / "real-exports.tar.xz").is_file():
        pytest.skip(f"no real exports: {folder}/data/real-exports.tar.xz is absent")
    return folder


@pytest.fixture(scope="session")
def nsight() -> Path:
    """Folder of a real nsys and ncu, which a machine without a GPU can have too."""
    named = os.environ.get("PROF_NSIGHT")
    if not named:
        pytest.skip("no Nsight tools: name the folder of nsys and ncu in PROF_NSIGHT")
    return Path(named)


@pytest.fixture(scope="session")
def real_exports(shared: Path) -> Path:
    """Folder of unpacked real exports of many tool versions (read only), cached by content."""
    archive = shared / "data" / "real-exports.tar.xz"
    key = hashlib.sha256(f"{archive.stat().st_size} {archive.stat().st_mtime_ns}".encode())
    cache = Path(tempfile.gettempdir()) / f"prof-real-exports-{key.hexdigest()[:12]}"
    if not cache.is_dir():
        with tempfile.TemporaryDirectory(dir=cache.parent) as partial:
            with tarfile.open(archive) as tar:
                tar.extraction_filter = getattr(tarfile, "data_filter", None)  # since 3.11.4
                tar.extractall(partial)
            try:
                os.rename(partial, cache)
            except OSError:
                if not cache.is_dir():
                    raise
            Path(partial).mkdir(exist_ok=True)
    return cache


@pytest.fixture(scope="session")
def bench_schema() -> Draft202012Validator:
    """Validator of the records of benchmark targets: `bench_schema.validate(record)`."""
    schema = json.loads((ROOT / "parsers" / "bench.schema.json").read_text(encoding="utf-8"))
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def bench_row(name: str, **columns: Any) -> dict[str, Any]:
    """One row of table `bench`: a measured case of 3 processes x 10 samples; columns override."""
    row: dict[str, Any] = {c.name: None for c in tables.tables()["bench"]}
    row |= {"name": name, "target": "roofline", "operation": name, "mode": "cold", "data": "normal",
            "dtype": "", "level": "", "launch": "graph", "duration": "", "params": {}, "reason": "",
            "status": "ok", "roof": "", "n": 30, "processes": 3, "repeats": 1, "outliers": 0,
            "relative_std": 0.002, "process_spread": 0.003, "captured": True, "copies": 4,
            "clock_hz": BENCH_CLOCK, "throttled_samples": 0, "throttle_reasons": "",
            "kernel_names": "", "roof_used": "", "roof_unit": "", "roof_source": ""}  # fmt: skip
    row |= columns
    row["case_id"] = row["case_id"] or f"{name}|{row['mode']}|{row['data']}"
    row["params"] = json.dumps(row["params"], sort_keys=True)
    if row["median_s"] and row["status"] == "ok":
        _fill_times(row)
    return row


def _fill_times(row: dict[str, Any]) -> None:
    median = row["median_s"]
    factors = {"mean_s": 1, "std_s": 0.002, "min_s": 0.99, "max_s": 1.02, "p5_s": 0.992,
               "p95_s": 1.01, "iqr_s": 0.003, "ci_low_s": 0.999, "ci_high_s": 1.001}  # fmt: skip
    row |= {key: median * factor for key, factor in factors.items()}
    for amount, rate in (("flops", "flop"), ("bytes", "bytes")):
        if row[amount] is not None:
            row[f"{rate}_per_s"] = row[amount] / median
            row[f"{rate}_per_clock_sm"] = row[amount] / median / row["clock_hz"] / BENCH_SMS
    if row["accesses"]:
        row["latency_s"] = median / row["accesses"]
        row["latency_cycles"] = row["latency_s"] * row["clock_hz"]


def build_bench_run(
    folder: Path, rows: list[dict[str, Any]], *, target: str = "roofline", **frames: pd.DataFrame
) -> Path:
    """Write a benchmark run whose table `bench` has `rows`; `frames` are its other tables."""
    run = RunDir(folder)
    repeats = max([row["repeats"] or 1 for row in rows], default=1)
    recipe = {"name": target, "question": "What can this GPU do?", "notes": [],
              "target": {"file": f"targets/{target}/run.py"},
              "bench": {"processes": 3, "repeat": repeats},
              "counters": {"sets": ["roofline"], "clock_control": "none"}}  # fmt: skip
    manifest = Manifest(f"{target}-20261121-080000", "2026-11-21T08:00:00Z", recipe)
    manifest.steps = [
        StepRecord("bench", "a1", StepState.DONE, "steps/1-bench", ["python", "run.py"],
                   seconds=200.0, exit_code=0),
        StepRecord("counters", "c3", StepState.DONE, "steps/2-counters", ["ncu", "python"],
                   seconds=93.0, exit_code=0),
    ]  # fmt: skip
    for step in manifest.steps:
        (folder / step.directory).mkdir(parents=True, exist_ok=True)
    write_manifest(run, manifest)
    gpu = {"name": "NVIDIA H200", "chip": "GH100", "sm_count": BENCH_SMS, "l2_bytes": 62_914_560.0}
    given = {"gpus": _frame("gpus", [gpu]), "bench": _frame("bench", rows)} | frames
    for table, frame in given.items():
        tables.write(frame, table, run.tables, csv=False)
    return folder


def _frame(table: str, rows: list[dict[str, Any]]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=[c.name for c in tables.tables()[table]])


@pytest.fixture
def make_bench_run(tmp_path: Path) -> Callable[..., Run]:
    """Builder of benchmark runs: `make_bench_run([bench_row(...)], target="roofline")`."""
    made: list[Path] = []

    def make(rows: list[dict[str, Any]], **options: Any) -> Run:
        made.append(tmp_path / f"bench{len(made)}")
        return load_run(build_bench_run(made[-1], rows, **options))

    return make


@pytest.fixture(name="bench_row")
def bench_row_fixture() -> Callable[..., dict[str, Any]]:
    """Maker of one row of table `bench`."""
    return bench_row
