"""The command line: help, errors, exit codes, and what each command prints."""

import errno
import inspect
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from nsight_prof.orchestrator import cli
from nsight_prof.orchestrator.cli import COMMANDS, group, main
from nsight_prof.parsers.errors import (
    ArtifactUnreadable,
    ProfError,
    StepFailed,
    ToolMissing,
    UsageError,
)

HEAVY = ("numpy", "pandas", "pyarrow", "matplotlib", "torch", "pydantic", "rich", "yaml", "jinja2",
         "difflib", "click.shell_completion")  # fmt: skip


def commands(parent: click.Group, path: str = "prof") -> Iterator[tuple[str, click.Command]]:
    """Give every command and subcommand with its path."""
    context = click.Context(parent)
    for name in parent.list_commands(context):
        command = parent.get_command(context, name)
        assert command is not None, name
        yield f"{path} {name}", command
        if isinstance(command, click.Group):
            yield from commands(command, f"{path} {name}")


def test_help_and_version_import_nothing_heavy(root: Path) -> None:
    code = (
        "import sys; from orchestrator.cli import main; "
        "main(['--help']); main(['run', '--help']); main(['--version']); "
        f"print([m for m in {HEAVY!r} if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_wrong_name_is_told_before_pandas_is_imported(root: Path) -> None:
    code = (
        "import sys; from orchestrator.cli import main; "
        "print(main(['report', 'nowhere']), main(['recipe', 'check', '-q', 'nowhere.yaml']), "
        "'pandas' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "2 2 False"


def test_python_m_runs_the_same_command(root: Path) -> None:
    argv = [sys.executable, "-m", "nsight_prof", "recipe", "chek"]
    done = subprocess.run(argv, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "No such command 'chek'" in done.stderr


def test_every_command_has_help_with_an_example_and_described_options() -> None:
    for path, command in commands(group):
        assert command.help, path
        assert "\n  prof " in inspect.cleandoc(command.help), f"{path}: no example"
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                assert parameter.help, f"{path} {parameter.name}"


def test_the_listing_says_what_each_command_says_of_itself() -> None:
    for path, command in commands(group):
        name = path.removeprefix("prof ")
        if name in COMMANDS:
            assert command.help is not None
            assert command.help.splitlines()[0] == COMMANDS[name], name


def test_an_installed_package_has_its_recipes_and_targets(root: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    shutil.copytree(root / "nsight_prof", site / "nsight_prof")
    names = ("recipes/top-kernels.yaml", "roofline")
    argv = [sys.executable, "-m", "nsight_prof", "recipe", "check", *names]
    environment = {**os.environ, "PYTHONPATH": str(site)}
    done = subprocess.run(
        argv, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout == "".join(f"{name}: ok, 1 run\n" for name in names)


class Boom:
    """A command that raises what the test says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.monkeypatch = monkeypatch

    def __call__(self, error: BaseException, *words: str) -> int:
        @click.command()
        def command() -> None:
            raise error

        self.monkeypatch.setattr(cli.LazyGroup, "get_command", lambda *_: command)
        return main([*words, "run"])


@pytest.fixture
def boom(monkeypatch: pytest.MonkeyPatch) -> Boom:
    return Boom(monkeypatch)


@pytest.mark.parametrize(
    ("kind", "code"),
    [(StepFailed, 1), (UsageError, 2), (ToolMissing, 3), (ArtifactUnreadable, 4)],
)
def test_an_error_prints_message_and_hint_and_gives_its_exit_code(
    kind: type[ProfError], code: int, boom: Boom, capsys: pytest.CaptureFixture[str]
) -> None:
    assert boom(kind("it broke", "mend it")) == code
    captured = capsys.readouterr()
    assert captured.err == "error: it broke\n\nhint: mend it\n"
    assert captured.out == ""


def test_ctrl_c_exits_with_130(boom: Boom, capsys: pytest.CaptureFixture[str]) -> None:
    assert boom(KeyboardInterrupt()) == 130
    assert "error: interrupted" in capsys.readouterr().err


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_said_plainly(
    number: int, boom: Boom, capsys: pytest.CaptureFixture[str]
) -> None:
    assert boom(OSError(number, os.strerror(number), "runs/x/trace")) == 1
    error = capsys.readouterr().err
    assert "error: the disk is full: runs/x/trace" in error
    assert "--resume" in error


def test_a_file_error_names_the_file(boom: Boom, capsys: pytest.CaptureFixture[str]) -> None:
    assert boom(PermissionError(errno.EACCES, "Permission denied", "/root/x")) == 1
    assert "error: /root/x: Permission denied" in capsys.readouterr().err


def test_a_defect_is_short_without_debug_and_has_a_traceback_with_it(
    boom: Boom, capsys: pytest.CaptureFixture[str]
) -> None:
    assert boom(KeyError("x")) == 1
    short = capsys.readouterr().err
    assert short.startswith("error: KeyError: 'x'")
    assert "prof --debug" in short
    assert boom(KeyError("x"), "--debug") == 1
    assert "Traceback (most recent call last)" in capsys.readouterr().err


def test_a_wrong_option_exits_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--wrong"]) == 2
    assert "No such option" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("hlep", "prof --help"),
        ("improt trace.sqlite", "prof import"),
        ("--verson", "prof --version"),
        ("recipe chek", "prof recipe check"),
        ("roofs lits", "prof roofs list"),
        ("run top-kernels --relpay x", "prof run --replay"),
    ],
)
def test_a_misspelt_command_or_option_is_told_what_it_was_meant_to_be(
    words: str, meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words.split()) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: No such ")
    assert f"\n\nhint: did you mean {meant}? prof " in captured.err


def test_an_option_of_another_command_is_told_to_be_that(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["run", "top-kernels", "--png", "yes"]) == 2
    assert "hint: it is an option of prof report; prof run --help" in capsys.readouterr().err


def test_a_word_like_none_of_the_commands_is_told_where_they_stand(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["xyzzy"]) == 2
    assert capsys.readouterr().err == (
        "error: No such command 'xyzzy'\n\nhint: prof --help shows how it is called\n"
    )


def test_a_pipe_that_closes_early_is_no_error(root: Path) -> None:
    argv = f"{sys.executable} -m nsight_prof recipe schema | head -1"
    done = subprocess.run(
        ["bash", "-c", argv], cwd=root, capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("{\n", "")


def run(*words: str) -> str:
    result = CliRunner().invoke(group, list(words), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_recipe_list_shows_each_question() -> None:
    lines = run("recipe", "list").splitlines()
    assert any(line.startswith("top-kernels ") and line.endswith("?") for line in lines)


def test_recipe_show_prints_the_file_with_its_comments(root: Path) -> None:
    expected = (root / "recipes" / "top-kernels.yaml").read_text(encoding="utf-8")
    assert run("recipe", "show", "top-kernels") == expected


def test_recipe_show_resolved_prints_every_key() -> None:
    text = run("recipe", "show", "trace-only", "--resolved", "--set", "select.top_k=7")
    assert "top_k: 7" in text
    assert "file: llm_block.py" in text


def test_recipe_check_counts_the_runs() -> None:
    assert run("recipe", "check", "top-kernels", "batch-sweep") == (
        "top-kernels: ok, 1 run\nbatch-sweep: ok, 4 runs\n"
    )


def test_recipe_check_refuses_a_misspelt_key(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("extends: top-kernels\nselect:\n  topk: 5\n", encoding="utf-8")
    assert main(["recipe", "check", str(path)]) == 2
    error = capsys.readouterr().err
    assert f"error: {path}:3: unknown key select.topk" in error
    assert "hint: did you mean select.top_k?" in error


def test_recipe_check_goes_through_all_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    misspelt, gone = tmp_path / "misspelt.yaml", tmp_path / "gone.yaml"
    misspelt.write_text("extends: top-kernels\nselect:\n  topk: 5\n", encoding="utf-8")
    unknown = tmp_path / "unknown.yaml"
    unknown.write_text("target: {file: nowhere.py}\n", encoding="utf-8")
    files = [str(misspelt), "top-kernels", str(gone), str(unknown), "batch-sweep"]
    assert main(["recipe", "check", *files]) == 2
    captured = capsys.readouterr()
    assert captured.out.splitlines() == [
        f"{misspelt}: wrong",
        "top-kernels: ok, 1 run",
        f"{gone}: wrong",
        f"{unknown}: wrong",
        "batch-sweep: ok, 4 runs",
    ]
    errors = [line for line in captured.err.splitlines() if line.startswith("error: ")]
    assert len(errors) == 3
    for path, error in zip((misspelt, gone, unknown), errors, strict=True):
        assert str(path) in error


def test_recipe_schema_is_json_schema() -> None:
    assert json.loads(run("recipe", "schema"))["title"] == "Recipe"


@pytest.fixture
def no_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with neither nsys nor ncu."""
    monkeypatch.setattr("nsight_prof.orchestrator.run.dry_run.find_nsys", missing("nsys"))
    monkeypatch.setattr("nsight_prof.orchestrator.run.dry_run.find_ncu", missing("ncu"))


def missing(name: str) -> Callable[[object], None]:
    def find(_environment: object) -> None:
        raise ToolMissing(f"no {name}", "install it")

    return find


@pytest.mark.usefixtures("no_tools")
def test_a_dry_run_prints_quoted_commands_and_makes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = run("run", "top-kernels", "--dry-run", "--set", "target.env.TOKEN=s3cret")
    assert "nsys profile" in text
    assert "--capture-range=cudaProfilerApi" in text
    assert "--kernel-name 'regex:<the selected kernels>'" in text
    assert "llm_block.py --batch 8 --prompt-len 1024" in text
    assert "TOKEN" in text
    assert "s3cret" not in text
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("no_tools")
def test_without_a_profile_the_program_runs_alone() -> None:
    text = run("run", "top-kernels", "--dry-run", "--no-profile")
    assert "# untraced" in text
    assert not any(step in text for step in ("nsys", "ncu", "# operators", "# select"))


@pytest.mark.usefixtures("no_tools")
def test_a_dry_run_with_given_kernels_is_exact() -> None:
    text = run("run", "counters-only", "--dry-run", "--set", "select.kernels=[a$b]")
    assert "nsys profile" not in text
    assert r"regex:^(a\$b)$" in text
    assert "the selected kernels" not in text


@pytest.mark.usefixtures("no_tools")
def test_a_dry_run_of_a_sweep_shows_every_run() -> None:
    text = run("run", "batch-sweep", "--dry-run", "--out", "here")
    assert "# run 4 of 4: batch=64" in text
    assert "here/variants/batch=64/steps/1-trace/trace" in text
