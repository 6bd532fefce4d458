"""`prof doctor`: every check with its state and remedy, and an exit code for scripts."""

import json

import pytest

from nsight_prof.orchestrator.cli import main
from nsight_prof.orchestrator.run import doctor
from nsight_prof.orchestrator.run.doctor import Check

GOOD = [Check("GPU 0", "ok", "NVIDIA H200 [141 GiB]"), Check("torch", "warning", "none", "get it")]
BAD = [*GOOD, Check("counters", "missing", "refused", "ask the administrator")]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str | None]:
    """What `examine` is asked for; it answers BAD for an interpreter that is named."""
    asked: list[str | None] = []

    def examine(target_python: str | None = None) -> list[Check]:
        asked.append(target_python)
        return BAD if target_python else GOOD

    monkeypatch.setattr(doctor, "examine", examine)
    return asked


@pytest.mark.usefixtures("asked")
def test_a_machine_that_can_profile_gives_0(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "ok       GPU 0  NVIDIA H200 [141 GiB]",
        "warning  torch  none",
        "                remedy: get it",
        "",
        "this machine can profile",
    ]


def test_what_is_missing_gives_3_and_the_remedy(
    asked: list[str | None], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor", "--target-python", "/opt/python"]) == 3
    out = capsys.readouterr().out
    assert "remedy: ask the administrator" in out
    assert out.endswith("missing: counters\n")
    assert asked == ["/opt/python"]


@pytest.mark.usefixtures("asked")
def test_json_holds_every_check(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--json", "--target-python", "x"]) == 3
    checks = json.loads(capsys.readouterr().out)
    assert [check["state"] for check in checks] == ["ok", "warning", "missing"]
    assert checks[2]["remedy"] == "ask the administrator"


def test_a_machine_without_a_gpu_is_told_what_works_there(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    checks = [Check("GPU", "missing", "none", "install the driver")]
    monkeypatch.setattr(doctor, "examine", lambda _python: checks)
    assert main(["doctor"]) == 3
    assert "missing: GPU\nfiles that you already have need none of it: prof import" in (
        capsys.readouterr().out
    )
