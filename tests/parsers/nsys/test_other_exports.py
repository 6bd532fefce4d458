"""Real exports as another nsys, another machine or a fault would have left them.

What cannot matter leaves every value as it is. A table or column that is absent, empty, NULL or 0
leaves what does not come from it, and the rest unknown; or the export is refused by its name.
"""

import shutil
import sqlite3
import tempfile
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from nsight_prof.parsers import tables
from nsight_prof.parsers.errors import ArtifactUnreadable
from nsight_prof.parsers.nsys.events import read_events
from nsight_prof.parsers.nsys.sqlite.schema import NEEDED
from nsight_prof.parsers.nsys.trace import open_trace
from nsight_prof.parsers.run.directory import decompress

KERNEL, RUNTIME, MEMCPY, MEMSET, GRAPH = (
    f"CUPTI_ACTIVITY_KIND_{kind}"
    for kind in ("KERNEL", "RUNTIME", "MEMCPY", "MEMSET", "GRAPH_TRACE")
)
GPU, DEVICE, NVTX = "TARGET_INFO_GPU", "TARGET_INFO_CUDA_DEVICE", "NVTX_EVENTS"
OPTIONAL = {
    KERNEL: "mangledName graphNodeId",
    RUNTIME: "eventClass",
    NVTX: "text textId domainId endGlobalTid",
    **dict.fromkeys((MEMCPY, MEMSET, GRAPH), "deviceId contextId streamId"),
    MEMCPY: "deviceId contextId streamId srcKind dstKind",
    GPU: "id cuDevice name chipName computeMajor computeMinor smCount clockRate totalMemory "
    "memoryBandwidth l2CacheSize maxWarpsPerSm uuid",
    DEVICE: "gpuId cudaId",
    "TARGET_INFO_SESSION_START_TIME": "utcEpochNs",
    "META_DATA_EXPORT": "name value",
    "ThreadNames": "globalTid nameId",
    "PROCESSES": "pid name",
}
READ = {name: f"{NEEDED.get(name, '')} {OPTIONAL.get(name, '')}".split()
        for name in (*NEEDED, *OPTIONAL)}  # fmt: skip
"""Columns that are read of each table."""
SOURCES: dict[str, tuple[set[str], list[str]]] = {
    "gpus": ({GPU, DEVICE, KERNEL}, []),
    "kernels": ({KERNEL, "StringIds"}, ["stage"]),
    "launches": ({KERNEL, "StringIds"}, ["stage", "nvtx_path", "memory_before"]),
    "memory_operations": ({MEMCPY, MEMSET}, []),
    "api_calls": ({RUNTIME, "StringIds"}, []),
}
"""Where a table of ours comes from, and which of its columns come from elsewhere as well."""
MAY_BE_0 = {"device", "context", "stream", "index", "graph_node", "shared_bytes",
            "static_shared_bytes", "dynamic_shared_bytes",
            "late_calls", "before_call_ns", "in_call_ns"}  # fmt: skip
REPOSITORY = {
    "gemm": "captures/h200-known-gemm/steps/1-trace/trace.sqlite.xz",
    "layers": "captures/compare/eager/steps/1-trace/trace.sqlite.xz",
    "engine": "tests/fixtures/vllm_nsys/spawned.sqlite.xz",
}
SHARED = ["morluto+flameox/nsight-2025.5.2", "cestwc+balinski-and-gomory-cuda/report23",
          "bwyogatama+Mordred-Deprecated/report1"]  # fmt: skip
Frames = dict[str, pd.DataFrame]


@dataclass(frozen=True)
class Mutation:
    """Statements that change an export, and the table and column that they change."""

    words: str
    statements: tuple[str, ...]
    table: str = ""
    column: str = ""

    def __repr__(self) -> str:
        return self.words


@dataclass
class Original:
    """A real export, what it says, and the columns of its tables."""

    path: Path
    frames: Frames = field(repr=False)
    columns: dict[str, list[str]] = field(repr=False)

    def read_after(self, *mutations: Mutation) -> Frames:
        """Read the export after mutations; what refuses it must name it."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(shutil.copyfile(self.path, f"{folder}/given.sqlite"))
            with closing(sqlite3.connect(path)) as db:
                for statement in (s for mutation in mutations for s in mutation.statements):
                    db.execute(statement)
                db.commit()
            try:
                return read(path)
            except ArtifactUnreadable as error:
                if str(path) not in error.message or "SELECT" in error.message or not error.hint:
                    raise AssertionError(f"{mutations}: {error.message}") from error
                raise


def read(path: Path) -> Frames:
    """Read all that a report is made of."""
    with open_trace(path) as trace:
        names = ("gpus", "kernels", "launches", "stages", "stage_kernels", "memory_operations",
                 "api_calls", "idle_gaps", "engine_steps", "engine_gaps")  # fmt: skip
        frames = {name: getattr(trace, name)() for name in names}
        frames["modules"], frames["module_kernels"] = trace.modules()
    read_events(path)
    return frames


@pytest.fixture(scope="module", params=[*REPOSITORY, *SHARED])
def original(
    request: pytest.FixtureRequest, root: Path, tmp_path_factory: pytest.TempPathFactory
) -> Original:
    if request.param in REPOSITORY:
        path = tmp_path_factory.mktemp("export") / "given.sqlite"
        decompress(root / REPOSITORY[request.param], path)
    else:
        path = request.getfixturevalue("real_exports") / "nsys" / f"{request.param}.sqlite"
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
        names = db.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")
        columns = {
            name: [row[1] for row in db.execute(f'PRAGMA table_info("{name}")')]
            for (name,) in names.fetchall()
        }
    return Original(path, read(path), columns)


def rebuilt(table: str, select: list[str], order: str = "rowid") -> tuple[str, ...]:
    """Write a table again, with other columns or in another order, and without constraints."""
    return (
        f'CREATE TABLE "new" AS SELECT {", ".join(select)} FROM "{table}" ORDER BY {order}',
        f'DROP TABLE "{table}"',
        f'ALTER TABLE "new" RENAME TO "{table}"',
    )


def harmless(columns: dict[str, list[str]]) -> list[Mutation]:
    """Return what changes no value."""
    empty = [f'CREATE TABLE "{t}" ({", ".join(READ[t])})' for t in READ.keys() - columns.keys()]
    empty.append("CREATE TABLE TARGET_INFO_CUDA_GPU (deviceId, name)")
    found = [Mutation("empty tables, as --lazy=false makes them", tuple(sorted(empty)))]
    for table, names in columns.items():
        own = [name for name in names if name in READ.get(table, ())]
        if table not in READ:
            found.append(Mutation(f"no {table}", (f'DROP TABLE "{table}"',), table))
            continue
        found += [
            Mutation(f"{table} {words}", statements, table)
            for words, statements in (
                ("backwards", rebuilt(table, names, "rowid DESC")),
                ("shuffled", rebuilt(table, names, "(rowid * 2654435761) % 1009")),
                ("of what is read alone", rebuilt(table, own)),
                ("with its columns backwards", rebuilt(table, names[::-1])),
                ("of version 3", (f'ALTER TABLE "{table}" RENAME TO "{table}_V3"',)),
                ("with a new column", (f'ALTER TABLE "{table}" ADD COLUMN new',)),
            )
        ]
    if GPU in columns:
        facts = sorted(set(OPTIONAL[GPU].split()) & set(columns[GPU]) - {"id", "name", "uuid"})
        for number in ("-1", f"(SELECT min(id) FROM {GPU})", f"(SELECT max(id) FROM {GPU})"):
            row = ", ".join(["-1", number, "'Render Driver'", *["0"] * len(facts)])
            add = f"INSERT INTO {GPU} (rowid, id, name, {', '.join(facts)}) VALUES ({row})"
            statements = (*rebuilt(GPU, columns[GPU]), add)
            found.append(Mutation(f"first an adapter without facts, id {number}", statements, GPU))
    if "META_DATA_EXPORT" in columns:
        rename = "ALTER TABLE META_DATA_EXPORT RENAME TO EXPORT_META_DATA"
        found.append(Mutation("facts named as until 2023.1", (rename,), "META_DATA_EXPORT"))
    if {"text", "textId"} <= set(columns.get(NVTX, ())):
        text = "coalesce(text, (SELECT value FROM StringIds WHERE id = textId))"
        inline = f"UPDATE {NVTX} SET text = {text}, textId = NULL"
        found.append(Mutation("texts of NVTX beside their ranges", (inline,), NVTX))
    return found


def losses(columns: dict[str, list[str]]) -> list[Mutation]:
    """Return tables and columns that are read: absent, empty, NULL or 0."""
    found = []
    for table in sorted(columns.keys() & READ.keys()):
        names = columns[table]
        found.append(Mutation(f"no {table}", (f'DROP TABLE "{table}"',), table))
        found.append(Mutation(f"{table} is empty", (f'DELETE FROM "{table}"',), table))
        for name in sorted(set(READ[table]) & set(names)):
            rest = [f'"{other}"' for other in names if other != name]
            for words, select in (
                ("absent", rest),
                ("NULL", [*rest, f'NULL AS "{name}"']),
                ("0", [*rest, f'0 AS "{name}"']),
            ):
                statements = rebuilt(table, select)
                found.append(Mutation(f"{table}.{name} is {words}", statements, table, name))
    return found


def bounded(examples: int) -> settings:
    """Few examples, always the same."""
    return settings(
        max_examples=examples,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=[HealthCheck.too_slow],
    )


@bounded(3)
@given(data=st.data())
def test_another_layout_of_the_same_trace(original: Original, data: st.DataObject) -> None:
    some = st.lists(st.sampled_from(harmless(original.columns)), min_size=5, unique_by=of_table)
    mutations = data.draw(some)
    found = original.read_after(*mutations)
    found["gpus"] = found["gpus"].dropna(subset="device")  # adapters may have come
    for name, frame in original.frames.items():
        pd.testing.assert_frame_equal(
            found[name], frame, check_categorical=False, obj=f"{name}, {mutations}"
        )


@bounded(6)
@given(data=st.data())
def test_a_loss_costs_what_came_from_it_alone(original: Original, data: st.DataObject) -> None:
    mutation = data.draw(st.sampled_from(losses(original.columns)))
    try:
        found = original.read_after(mutation)
    except ArtifactUnreadable:
        return
    for name, (sources, elsewhere) in SOURCES.items():
        if mutation.table not in sources:
            pd.testing.assert_frame_equal(
                found[name].drop(columns=elsewhere),
                original.frames[name].drop(columns=elsewhere),
                check_categorical=False,
                obj=f"{name}, {mutation}",
            )
    kernels, were = found["kernels"], original.frames["kernels"]
    if mutation.column not in ("start", "end"):
        assert kernels[["calls", "total_ns"]].sum().equals(were[["calls", "total_ns"]].sum())
    if mutation.column:  # the events are there: what they do not tell is unknown, never 0
        zeros = {
            f"{name}.{column.name}"
            for name, frame in found.items()
            for column in tables.tables()[name]
            if column.dtype in ("int", "float") and column.name not in MAY_BE_0
            if was_lost(frame[column.name], original.frames[name][column.name])
        }
        assert not zeros, zeros


def of_table(mutation: Mutation) -> str:
    return mutation.table


def was_lost(found: pd.Series, before: pd.Series) -> bool:
    """Whether a column that had values has zeros alone."""
    known = found.dropna()
    return bool(before.fillna(0).ne(0).any() and len(known) and known.eq(0).all())
