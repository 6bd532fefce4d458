import sqlite3
from pathlib import Path

import pytest

from nsight_prof.orchestrator.system.recorded_environment import drop_environments
from nsight_prof.orchestrator.system.secrets import choose_environment, looks_secret, mask_file


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HF_TOKEN", "hf_abcdefgh"),
        ("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI"),
        ("OPENAI_API_KEY", "sk-123"),
        ("DB_PASSWORD", "swordfish"),
        ("GITHUB_PAT", "ghp_x"),
        ("dockerPassword", "x1y2"),
        ("SENTRY_DSN", "https://a@b/1"),
        ("HTTP_PROXY", "http://me:pw@proxy:3128"),
        ("GOOGLE_CREDENTIALS", '{"type": "service_account"}'),
    ],
)
def test_secrets_are_seen_by_name_or_by_a_password_in_a_url(name: str, value: str) -> None:
    assert looks_secret(name, value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TOKENIZERS_PARALLELISM", "false"),
        ("MAX_TOKENS", "4096"),
        ("PWD", "/home/u"),
        ("CUDA_VISIBLE_DEVICES", "0"),
        ("KEYBOARD", "us"),
        ("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True"),
        ("GOOGLE_APPLICATION_CREDENTIALS", "/etc/hostname"),
        ("USE_AUTH", "true"),
        ("HTTP_PROXY", "http://proxy:3128"),
    ],
)
def test_settings_that_programs_need_are_no_secrets(name: str, value: str) -> None:
    assert not looks_secret(name, value)


def test_secrets_are_withheld_unless_the_recipe_passes_them() -> None:
    user = {"PATH": "/bin", "HF_TOKEN": "hf_abcdefgh", "API_KEY": "k-123456789"}
    chosen = choose_environment(user, {"HF_TOKEN": "${HF_TOKEN}", "X": "1"})
    assert chosen.variables == {"PATH": "/bin", "HF_TOKEN": "hf_abcdefgh", "X": "1"}
    assert chosen.withheld == ("API_KEY",)
    assert chosen.redacted() == {"HF_TOKEN": "[redacted]", "X": "1"}
    assert chosen.redact("Bearer hf_abcdefgh, k-123456789") == "Bearer [redacted], [redacted]"


def test_a_secret_inside_a_longer_one_does_not_cut_it() -> None:
    chosen = choose_environment({"A_TOKEN": "abcdefgh", "B_TOKEN": "abcdefgh-and-more"}, {})
    assert chosen.redact("abcdefgh-and-more abcdefgh") == "[redacted] [redacted]"


def test_a_file_is_masked_in_place_and_keeps_its_size(tmp_path: Path) -> None:
    path = tmp_path / "report"
    path.write_bytes(b"\0\1 abcdefgh \2 abcdefgh")
    assert mask_file(path, ("abcdefgh",)) == 2
    assert path.read_bytes() == b"\0\1 ******** \2 ********"
    assert mask_file(path, ("abcdefgh",)) == 0
    assert mask_file(tmp_path / "absent", ("abcdefgh",)) == 0


def test_the_recorded_environment_is_dropped_without_a_trace(tmp_path: Path) -> None:
    path = tmp_path / "trace.sqlite"
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE TARGET_INFO_SYSTEM_ENV (name TEXT, value TEXT)")
        database.execute("CREATE TABLE META_DATA_CAPTURE (name TEXT, value TEXT)")
        rows = [("DeviceEnvironment", "A=1;T=precious-value"), ("CpuCores", "8")]
        database.executemany("INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES (?, ?)", rows)
        database.execute(
            "INSERT INTO META_DATA_CAPTURE VALUES ('PROCESS_0:ENVIRONMENT_VARIABLE', 'T=precious')"
        )
    database.close()
    drop_environments(path)
    assert b"precious" not in path.read_bytes()
    assert b"CpuCores" in path.read_bytes()


def test_an_export_without_those_tables_keeps_its_rows_and_no_index(tmp_path: Path) -> None:
    path = tmp_path / "trace.sqlite"
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE StringIds (id INTEGER, value TEXT)")
        database.execute("INSERT INTO StringIds VALUES (7, 'kernel')")
        database.execute("CREATE INDEX added_by_a_tool ON StringIds (value)")
    database.close()
    drop_environments(path)
    with sqlite3.connect(path) as database:
        assert database.execute("SELECT * FROM StringIds").fetchall() == [(7, "kernel")]
        assert database.execute("SELECT name FROM sqlite_master").fetchall() == [("StringIds",)]
    database.close()


def test_a_real_nsys_report_can_be_exported_after_masking(
    tmp_path: Path, nsight: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the mask of a report rests on: nsys keeps no checksum over it."""
    from nsight_prof.orchestrator.system.discover import find_nsys
    from nsight_prof.orchestrator.system.export import export_sqlite
    from nsight_prof.orchestrator.system.process import ask

    monkeypatch.setenv("PATH", f"{nsight}:/usr/bin:/bin")
    monkeypatch.setenv("MY_TOKEN", "supersecretvalue123")
    options = ["--trace=nvtx", "--sample=none", "--cpuctxsw=none", f"--output={tmp_path}/t"]
    nsys = find_nsys({"PATH": f"{nsight}:/usr/bin:/bin"})
    answer = ask([nsys.program, "profile", *options, "/bin/true"], timeout_s=60.0)
    report = tmp_path / "t.nsys-rep"
    assert report.is_file(), answer
    assert mask_file(report, ("supersecretvalue123",)) > 0
    sqlite = export_sqlite(report, tmp_path / "t.sqlite")
    # Compressed parts of the report may keep the value (seen with nsys 2023.4.4 where the
    # environment is long), so the export is masked too, as in a run.
    mask_file(sqlite, ("supersecretvalue123",))
    assert b"supersecretvalue123" not in sqlite.read_bytes()
    with sqlite3.connect(sqlite) as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    database.close()
