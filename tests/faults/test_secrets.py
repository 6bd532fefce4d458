"""No secret of the environment, command line or output of the target is written or shown."""

import json
import mmap
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nsight_prof.orchestrator.system import secrets
from nsight_prof.orchestrator.system.secrets import (
    choose_environment,
    looks_secret,
    mask_file,
    redact_forms,
    secrets_in,
)
from nsight_prof.parsers.errors import StepFailed

TOKEN = "hf_Zx9Qw8Er7Ty6Ui5Op4As"


def written(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def holding(folder: Path, *secrets: str) -> list[str]:
    """Return the files that hold one of the secrets."""
    return [
        name
        for name, content in written(folder).items()
        if any(secret.encode() in content for secret in secrets)
    ]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SSHPASS", "hunter2"),
        ("JWT", "eyJhbGciOi"),
        ("CI_JOB_JWT_V2", "eyJhbGciOi"),
        ("LDAP_BINDPW", "x1y2"),
        ("ENCRYPTION_SALT", "pepper"),
        ("SLACK_WEBHOOK_URL", "https://hooks.slack.com/services/T0/B0/x"),
        ("AZURE_STORAGE_CONNECTION_STRING", "AccountName=a;AccountKey=b"),
        ("PIP_INDEX_URL", "https://__token__:glpat-x@host/simple"),
        ("PIP_EXTRA_INDEX_URL", "https://a1b2c3d4e5f6g7@host/simple"),
    ],
)
def test_names_that_were_not_known_as_secrets(name: str, value: str) -> None:
    assert looks_secret(name, value)


@pytest.mark.parametrize(
    ("name", "value"),
    [("BYPASS", "cache"), ("COMPASS", "north"), ("GIT_URL", "ssh://git@host/x"), ("SORT", "key")],
)
def test_names_that_are_no_secrets(name: str, value: str) -> None:
    assert not looks_secret(name, value)


@pytest.mark.parametrize(
    "text",
    [
        "curl -H 'Authorization: Bearer SECRET1' x",
        "Authorization: Basic SECRET1",
        "prog --api-key SECRET1 --size 4",
        "prog --hf-token=SECRET1",
        "--set target.args.api_key=SECRET1",
        "https://me:SECRET1@host/x",
        "https://host/x?sig=SECRET1&y=1",
        '{"api_key": "SECRET1"}',
        "{'password': 'SECRET1'}",
        "MY_TOKEN=SECRET1 prog",
        "-----BEGIN RSA PRIVATE KEY-----\nSECRET1\n-----END RSA PRIVATE KEY-----",
        "Bearer SECRET1x",
    ],
)
def test_a_secret_is_known_by_its_form(text: str, tmp_path: Path) -> None:
    assert "SECRET1" not in redact_forms(text)
    assert "[redacted]" in redact_forms(text)
    log = tmp_path / "stderr.log"
    log.write_text(f"a line\n{text}\nanother\n")
    assert mask_file(log, (), forms=True)
    assert "SECRET1" not in log.read_text()
    assert len(log.read_text()) == len(f"a line\n{text}\nanother\n")


@pytest.mark.parametrize(
    "text",
    [
        "unexpected token: the",
        "max_tokens=512 tokenizer='x' eos_token=</s> pad_token: <pad>",
        "next token = get_token()",
        "num_key_value_heads=8 key_cache=auto",
        "tcp://host:80,mail a@b",
        "ssh://git@github.com/x",
        "Bearer authentication failed",
        "cutlass::gemm::kernel::GemmUniversal<cute::tuple<int>>",
    ],
)
def test_plain_words_stay(text: str) -> None:
    assert redact_forms(text) == text


@given(st.text(max_size=200))
def test_masking_never_fails_and_is_done_once(text: str) -> None:
    once = redact_forms(text)
    assert redact_forms(once) == once


@given(st.text(min_size=8, max_size=60).filter(lambda value: len(value.strip()) >= 8))
@example("~no-user\0")
def test_a_known_value_is_found_in_each_spelling(value: str) -> None:
    known = choose_environment({"MY_PASSWORD": value}, {})
    if not known.withheld:
        return  # a number or a switch
    for spelled in (value, json.dumps(value), repr(value), json.dumps(value, ensure_ascii=False)):
        assert spelled.strip("\"'") not in known.redact(f"x {spelled} y")


def test_parts_of_a_secret_are_secrets() -> None:
    account = json.dumps({"type": "service", "private_key": "line-one-of-it\nline-two-of-it"})
    known = choose_environment({"CREDENTIALS": account, "DB_URL": "pg://u:swordfish99@h/d"}, {})
    for text in ("swordfish99", "line-one-of-it\nline-two-of-it", "line-one-of-it\\nline-two"):
        assert "swordfish99" not in known.redact(text)
        assert "line-one-of-it" not in known.redact(text)


def test_a_value_at_the_border_of_what_is_mapped_is_masked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    window = mmap.ALLOCATIONGRANULARITY
    monkeypatch.setattr(secrets, "WINDOW_BYTES", window)
    content = bytearray(b"x" * (3 * window + 5))
    for place in (0, window - 4, 2 * window - 8, 3 * window - 3):
        content[place : place + 8] = b"s3cr3t-v"
    path = tmp_path / "stdout.log"
    path.write_bytes(content)
    assert secrets.mask_file(path, ("s3cr3t-v",)) == 4
    assert path.read_bytes() == content.replace(b"s3cr3t-v", b"*" * 8)


def test_a_command_line_is_masked_by_its_options() -> None:
    words = ["prog", "--api-key", "X", "--n", "3", "--token=q", "API_KEY=1a", "--pad-token", "<s>"]
    assert choose_environment({}, {}).redact_words(words) == [
        *("prog", "--api-key", "[redacted]", "--n", "3", "--token=[redacted]"),
        *("API_KEY=[redacted]", "--pad-token", "<s>"),
    ]
    assert secrets_in(words) == {"X", "q", "1a"}


def test_bytes_that_are_no_utf8_are_masked_and_recorded(lab: Any) -> None:
    lab.monkeypatch.setenv("MY_TOKEN", os.fsdecode(b"s\xe9cret-of-mine"))
    lab.monkeypatch.setenv("HF_HOME", os.fsdecode(b"/data/\xe9t\xe9"))
    lab.run(lab.recipe("import os; os.write(1, os.environb[b'HF_HOME'])"))
    record = json.loads((lab.out / "steps/1-trace/command.json").read_text())
    assert record["environment"]["HF_HOME"].startswith("/data/\ufffd")
    assert str(lab.manifest.step("trace").state) == "done"


def test_secrets_on_the_command_line_are_in_no_file_and_in_no_word(lab: Any, watcher: Any) -> None:
    said = watcher()
    script = "import sys; print(sys.argv); print('done', file=sys.stderr)"
    recipe = lab.recipe(
        script,
        target__args={
            "api_key": "swordfish-99",
            "url": "https://me:swordfish-99@host/x",
            "header": "Authorization: Bearer swordfish-99",
        },
    )
    lab.run(recipe, progress=said)
    assert holding(lab.out, "swordfish-99") == []
    assert "swordfish-99" not in " ".join(said.waited_for + said.details + said.warnings)
    assert lab.manifest.recipe["target"]["args"]["api_key"] == "[redacted]"


def test_what_the_target_says_of_its_failure_holds_no_secret(lab: Any, watcher: Any) -> None:
    lab.monkeypatch.setenv("MY_PASSWORD", "swordfish-99")
    said = watcher()
    script = (
        f"print('error: no access with {TOKEN}\\n\\nhint: login with swordfish-99 at https://u:pw1@h')"
        "; raise SystemExit(1)"
    )
    with pytest.raises(StepFailed) as caught:
        lab.run(lab.recipe(script, target__env={"X_PASSWORD": "${MY_PASSWORD}"}), progress=said)
    shown = f"{caught.value.message} {caught.value.hint} {said.states}"
    assert "[redacted]" in caught.value.message
    for secret in (TOKEN, "swordfish-99", "pw1"):
        assert secret not in shown
        assert holding(lab.out, secret) == []


def test_what_a_killed_run_left_is_masked_when_it_is_resumed(lab: Any) -> None:
    lab.monkeypatch.setenv("MY_PASSWORD", "swordfish-99")
    lab.run()
    partial = lab.out / "steps/1-trace.partial"
    (lab.out / "steps/1-trace").rename(partial)
    (partial / "stdout.log").write_text(f"swordfish-99 {TOKEN}\n")
    lab.run(resume=lab.out)
    assert (lab.out / "steps/1-trace.failed-1/stdout.log").is_file()
    assert holding(lab.out, "swordfish-99", TOKEN) == []


def test_a_link_among_the_results_is_not_written_through(lab: Any) -> None:
    victim = lab.folder / "victim"
    victim.write_text("hunter2-hunter2 half a line")
    lab.monkeypatch.setenv("MY_PASSWORD", "hunter2-hunter2")
    lab.run(lab.recipe(f"import os; os.symlink({str(victim)!r}, os.environ['PROF_RESULTS'])"))
    assert victim.read_text() == "hunter2-hunter2 half a line"
    assert not [path for path in lab.out.rglob("*") if path.is_symlink()]


def test_the_command_line_shows_no_secret_of_a_wrong_value(tmp_path: Path) -> None:
    answer = subprocess.run(
        [sys.executable, "-m", "nsight_prof", "run", "top-kernels",
         "--set", "target.args.api_key=swordfish-99", "--set", "bench.prosesses=--api-key qwertz9"],
        capture_output=True, text=True, cwd=tmp_path, check=False,
    )  # fmt: skip
    assert answer.returncode == 2
    assert "swordfish-99" not in answer.stderr
    assert "qwertz9" not in answer.stderr
