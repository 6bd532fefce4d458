"""Calls of NCCL: payloads in the layout of NCCL's headers, and a recorded run of known sizes."""

import json
import struct
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsight_prof.parsers.nsys.stages.nccl import bus_factor
from nsight_prof.parsers.nsys.trace import open_trace

ROOT = Path(__file__).resolve().parents[3]
RECORDED = ROOT / "captures/h200-data-parallel/steps/1-trace"
STAGES = ["^forward$", "^backward$", "^optimizer$", "^collectives$"]
SCHEMAS = "NVTX_PAYLOAD_SCHEMA_ENTRIES"
NCCL, STATIC = 1, 1 << 24  # domain; NVTX_PAYLOAD_ENTRY_TYPE_SCHEMA_ID_STATIC_START
REDUCTIONS = STATIC + 20
# Schema ids of nvtx.h, and the structs of nvtx_payload_schemas.h: (type, name, offset) and format.
COMMUNICATOR = (18, "NCCL communicator ID", None)  # the export leaves an offset of 0 empty
SIZE = (22, "Message size [bytes]", 8)
LAYOUTS: dict[str, tuple[int, list[tuple[int, str, int | None]], str]] = {
    "ncclAllReduce": (5, [COMMUNICATOR, SIZE, (REDUCTIONS, "Reduction operation", 16)], "<QQi4s"),
    "ncclAllGather": (4, [COMMUNICATOR, SIZE], "<QQ"),
    "ncclBroadcast": (6, [COMMUNICATOR, SIZE, (5, "Root", 16)], "<QQi4s"),
    "ncclReduceScatter": (
        7,
        [COMMUNICATOR, SIZE, (REDUCTIONS, "Reduction operation", 16)],
        "<QQi4s",
    ),
    "ncclCommInitRank": (
        0,
        [COMMUNICATOR, (5, "No. of ranks", 8), (5, "Rank", 12), (5, "CUDA device", 16)],
        "<Qiii4s",
    ),
}
PADDING = b"\x39\x7f\x00\x00"  # of a struct of three members: whatever stood on the stack


def blob(function: str, *values: int) -> bytes:
    number, _, form = LAYOUTS[function]
    padded = (*values, PADDING) if form.endswith("4s") else values
    payload = struct.pack(form, *padded)
    return struct.pack("<4Q", NCCL, STATIC + number, len(payload), 32) + payload


class Job:
    """A trace of ranks, each a process with a GPU, in which calls of NCCL are made."""

    def __init__(self, export: Any) -> None:
        self.export, self.number = export, 0
        export.columns[SCHEMAS] = (
            "domainId INTEGER, schemaId INTEGER, idx INTEGER, type INTEGER, name TEXT,"
            " offset INTEGER"
        )
        export.columns["NVTX_PAYLOAD_ENUM_ENTRIES"] = (
            "domainId INTEGER, schemaId INTEGER, idx INTEGER, name TEXT, value INTEGER"
        )
        for _ in range(2):  # each process registers them
            for number, entries, _form in LAYOUTS.values():
                for index, (kind, name, offset) in enumerate(entries):
                    export.add(SCHEMAS, NCCL, STATIC + number, index, kind, name, offset)
            for value, word in enumerate(("Sum", "Product", "Max", "Min", "Avg")):
                row = (NCCL, REDUCTIONS, value, word, value or None)
                export.add("NVTX_PAYLOAD_ENUM_ENTRIES", *row)

    def range(self, start: int, end: int, name: str, rank: int, data: bytes | None = None) -> None:
        self.export.range(start, end, name, process=rank + 7, domain=NCCL, payload=data)

    def call(
        self, start: int, name: str, data: bytes | None, rank: int, kernel: tuple[int, int]
    ) -> None:
        """A call of NCCL from `start` that launches a kernel (start, duration) there."""
        self.range(start, start + 10, name, rank, data)
        self.launch(start + 5, rank, kernel, name)

    def launch(
        self, at: int, rank: int, kernel: tuple[int, int], name: str = "ncclAllReduce"
    ) -> None:
        self.number += 1
        self.export.call(at, 2, self.number, process=rank + 7)
        kind = name.removeprefix("nccl")
        self.export.kernel(
            *kernel, f"ncclDevKernel_{kind}_Sum_bf16_RING_LL", self.number, rank + 7, device=rank
        )


@pytest.fixture
def job(new_export: Callable[[], Any]) -> Job:
    return Job(new_export())


def table(job: Job, folder: Path) -> Any:
    with open_trace(job.export.write(folder / "t.sqlite")) as trace:
        return trace.collectives()


@pytest.mark.parametrize(
    ("function", "operation", "message", "values", "size", "factor", "reduction"),
    [
        ("ncclAllReduce", "all-reduce", 4096, (4,), 4096, 1.0, "avg"),
        ("ncclAllReduce", "all-reduce", 4096, (0,), 4096, 1.0, "sum"),
        ("ncclAllGather", "all-gather", 4096, (), 8192, 0.5, None),
        ("ncclReduceScatter", "reduce-scatter", 4096, (2,), 8192, 0.5, "max"),
        ("ncclBroadcast", "broadcast", 4096, (0,), 4096, 1.0, None),
    ],
)
def test_payloads_give_bytes_and_the_bandwidth_of_nccl_tests_from_the_last_arrival(
    job: Job,
    tmp_path: Path,
    function: str,
    operation: str,
    message: int,
    values: tuple[int, ...],
    size: int,
    factor: float,
    reduction: str | None,
) -> None:
    identity = 0xFF8D40A788F7DBA6  # larger than a signed number
    for rank, start in ((0, 100), (1, 400)):  # both end at 900: rank 1 came last
        made = blob("ncclCommInitRank", identity, 2, rank, rank)
        job.range(1, 5, "ncclCommInitRank", rank, made)
        data = blob(function, identity, message, *values)
        job.call(20, function, data, rank, (start, 900 - start))
    first, second = table(job, tmp_path).astype(object).to_dict("records")
    moves_only = operation in ("all-gather", "broadcast")  # one kernel for all types
    dtype = first["dtype"] if moves_only else "bf16"
    assert (first["operation"], first["communicator"]) == (operation, "0xff8d40a788f7dba6")
    assert (first["rank"], second["rank"], first["ranks"]) == (0, 1, 2)
    assert (first["ranks_known_by"], first["gpu"], second["gpu"]) == ("communicator", 0, 1)
    assert (first["message_bytes"], first["bytes"], first["dtype"]) == (message, size, dtype)
    assert (first["wait_ns"], second["wait_ns"], first["transfer_ns"]) == (300, 0, 500)
    assert first["algorithm_bandwidth"] == pytest.approx(size / 500e-9)
    assert first["bus_bandwidth"] == pytest.approx(factor * size / 500e-9)
    told = first["reduction"]
    assert told == reduction if reduction else told is None or told != told


def test_the_factors_of_nccl_tests() -> None:
    """https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md."""
    assert bus_factor("all-reduce", 8) == 2 * 7 / 8
    assert {bus_factor(o, 8) for o in ("all-gather", "reduce-scatter", "all-to-all")} == {7 / 8}
    assert {bus_factor(o, 8) for o in ("broadcast", "reduce", "send", "receive")} == {1.0}


def test_calls_of_a_group_belong_to_the_kernel_at_its_end(job: Job, tmp_path: Path) -> None:
    job.range(10, 12, "ncclGroupStart", 0)
    for start, size in ((15, 100), (25, 200)):
        job.range(start, start + 5, "ncclAllReduce", 0, blob("ncclAllReduce", 1, size, 0))
    job.range(40, 60, "ncclGroupEnd", 0)
    job.launch(50, 0, (100, 50))
    (row,) = table(job, tmp_path).to_dict("records")
    assert (row["calls"], row["message_bytes"], row["kernels"]) == (2, 300, 1)
    assert (row["ranks"], row["ranks_known_by"]) == (1, "trace")


def test_ranks_that_are_not_in_the_trace_leave_the_bandwidth_unknown(
    job: Job, tmp_path: Path
) -> None:
    job.range(1, 5, "ncclCommInitRank", 0, blob("ncclCommInitRank", 5, 16, 3, 0))
    job.call(20, "ncclAllGather", blob("ncclAllGather", 5, 1000), 0, (100, 50))
    frame = table(job, tmp_path)
    (row,) = frame.to_dict("records")
    assert (row["rank"], row["ranks"], row["bytes"]) == (3, 16, 16_000)
    assert (
        frame[["transfer_ns", "wait_ns", "algorithm_bandwidth", "bus_bandwidth"]]
        .isna()
        .all(axis=None)
    )


ANY = st.integers(0, (1 << 64) - 1)


@settings(max_examples=settings().max_examples // 3)
@given(data=st.binary(max_size=80), cut=st.integers(0, 60), said=ANY, size=ANY, ranks=st.integers())
def test_payloads_of_any_bytes_are_read_or_left_out(
    new_export: Callable[[], Any], data: bytes, cut: int, said: int, size: int, ranks: int
) -> None:
    job = Job(new_export())
    whole = blob("ncclAllGather", said, size)
    several = max(-(1 << 31), min(ranks, (1 << 31) - 1))
    job.range(1, 5, "ncclCommInitRank", 0, blob("ncclCommInitRank", said, several, 0, 0))
    for number, one in enumerate((data, whole[:cut], whole[:32] + data, whole), 1):
        job.call(20 * number, "ncclAllGather", one, 0, (100 * number, 10))
    with tempfile.TemporaryDirectory() as folder:
        frame = table(job, Path(folder))
    assert len(frame) <= 4
    assert (frame["message_bytes"] >= 0).all()
    assert (size in set(frame["message_bytes"])) is (size <= 1 << 40)


def test_why_there_is_nothing_is_told(job: Job, tmp_path: Path) -> None:
    job.call(20, "ncclAllReduce", None, 0, (100, 50))
    with open_trace(job.export.write(tmp_path / "t.sqlite")) as trace:
        assert trace.collectives().empty
        assert "--include-blobs=true" in str(trace.why_no_collectives())
    with open_trace(ROOT / "captures/h200-top-kernels/steps/1-trace/trace.sqlite.xz") as trace:
        assert trace.why_no_collectives() is None


def test_a_recorded_job_has_the_messages_that_its_program_told() -> None:
    lines = (RECORDED / "stdout.log").read_text(encoding="utf-8").splitlines()
    (told,) = [json.loads(line) for line in lines if line.startswith("{")]
    with open_trace(RECORDED / "trace.sqlite.xz", STAGES) as trace:
        frame = trace.collectives()
    ours = frame[frame["stage"] == "collectives"]
    expected = Counter(
        {(one["operation"], one["bytes"]): 2 * one["calls"] for one in told["collectives"]}
    )
    assert Counter(zip(ours["operation"], ours["bytes"], strict=True)) == expected
    assert set(frame["ranks"]) == {2}
    # DistributedDataParallel averages every gradient once a step, on each rank.
    backward = frame[frame["stage"] == "backward"]
    assert set(backward["operation"]) == {"all-reduce"}
    steps = told["config"]["steps"]
    assert (
        backward.groupby("gpu")["message_bytes"].sum().tolist()
        == [steps * told["gradient_bytes"]] * 2
    )
    # Two H200 have 18 links of NVLink 4, 25 GB/s each and way; large messages come near it.
    large = frame[frame["bytes"] == 1 << 28]
    assert (large["bus_bandwidth"] < 450e9).all()
    assert (large["bus_bandwidth"] > 200e9).all()
