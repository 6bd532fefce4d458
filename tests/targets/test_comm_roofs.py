"""The target comm_roofs: what it exchanges, what it counts, and that wrong values are noticed."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

pytest.importorskip("torch", reason="torch is not installed (pip install torch==2.13.0)")

from nsight_prof.targets import comm_roofs
from nsight_prof.targets.comm_roofs import Job, Member, Message

SCRIPT = "targets/comm_roofs.py"


@pytest.fixture(scope="module")
def records(root: Path) -> list[dict[str, Any]]:
    """What two processes wrote on a CPU."""
    command = [sys.executable, str(root / SCRIPT), "--device", "cpu"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/")
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_each_operation_is_checked_and_timed_between_two_processes(
    records: list[dict[str, Any]], bench_schema: Draft202012Validator
) -> None:
    for record in records:
        bench_schema.validate(record)
    _, *cases = records
    assert {(c["operation"], c["status"]) for c in cases} == {
        (operation, "ok") for operation in comm_roofs.OPERATIONS
    }
    assert {c["params"]["message_bytes"] for c in cases} == set(comm_roofs.CPU_SIZES)
    assert all(c["time"]["n"] == comm_roofs.SAMPLES for c in cases)


@pytest.mark.parametrize(
    ("operation", "factor"),
    # nccl-tests, doc/PERFORMANCE.md, for four ranks
    [
        ("all-reduce", 1.5),
        ("all-gather", 0.75),
        ("reduce-scatter", 0.75),
        ("all-to-all", 0.75),
        ("send-receive", 1.0),
    ],
)
def test_bytes_are_those_of_the_bus_bandwidth_of_nccl_tests(operation: str, factor: float) -> None:
    assert Message(operation, 4, 1 << 20).bus_bytes == factor * (1 << 20)


def test_groups_are_powers_of_two_and_all_gpus() -> None:
    assert [comm_roofs.group_sizes(n) for n in (2, 4, 6, 8)] == [
        [2], [2, 4], [2, 4, 6], [2, 4, 8],
    ]  # fmt: skip


def test_wrong_values_are_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    member = Member(0, 1, "cpu", str(tmp_path / "store"))
    try:
        member.prepare(Message("all-to-all", 1, 4096))
        member.check()
        exchange = member._made()
        monkeypatch.setattr(member, "_exchange", replace(exchange, call=lambda: None))
        with pytest.raises(ArithmeticError, match="rank 0 got other values"):
            member.check()
    finally:
        member.close()


def test_the_failure_of_another_rank_is_the_reason_of_the_case(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Job("cpu", str(tmp_path))
    try:
        message = Message("all-reduce", 2, 1 << 12)
        assert len(job.measure(message)) == comm_roofs.SAMPLES
        with pytest.raises(RuntimeError, match="allocate|memory"):
            job.measure(replace(message, bytes=1 << 50))
        assert len(job.measure(message)) == comm_roofs.SAMPLES
        job._processes[0].kill()
        job._processes[0].join()
        with pytest.raises(RuntimeError, match="a rank has ended"):
            job.measure(message)
    finally:
        job.close()


def test_one_gpu_has_no_links(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(comm_roofs, "_gpus", lambda device: 1)
    assert comm_roofs.main(["--device", "cpu"]) == 1
    assert "collectives need two GPUs" in capsys.readouterr().err
