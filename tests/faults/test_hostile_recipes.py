"""Recipes that somebody made to harm: refused with exit code 2, at once and with a sentence."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from nsight_prof.orchestrator.cli import main
from nsight_prof.orchestrator.recipe.read import MOST_VARIANTS
from nsight_prof.parsers import patterns, safe_yaml
from nsight_prof.parsers.errors import UsageError
from nsight_prof.parsers.names import matching
from nsight_prof.parsers.names.ranges import name_stages

LAUGHS = ", ".join(
    f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9) if i else 'x'}]" for i in range(12)
)
TARGET = "target: {command: [x]}\n"
SWEEP = "sweep:\n" + "".join(f"  target.args.k{i}: [1, 2, 3, 4, 5]\n" for i in range(15))
BOMBS = {
    "aliases": (f"target: {{command: [x], args: {{{LAUGHS}}}}}", "once its aliases are written"),
    "an alias in its anchor": ("target: {command: [x], args: &a {b: [*a]}}", "its own anchor"),
    "10,000 levels": ("target: {command: [x], args: {a: " + "[" * 10_000, "nests deeper"),
    "a long file": (TARGET + "# " + "x" * safe_yaml.LONGEST, "longer than 1 MiB"),
    "30 billion runs": (TARGET + SWEEP, f"at most {MOST_VARIANTS:,}"),
    "a name with =": ('target: {command: [x], env: {"A=B": c}}', "no = in it"),
    "a name with NUL": ('target: {command: [x], env: {"A\\0": c}}', "NUL"),
    "a value with NUL": ('target: {command: [x], env: {A: "\\0"}}', "NUL"),
    "a word with NUL": ('target: {command: ["x\\0y"]}', "NUL"),
    "an argument with NUL": ('target: {command: [x], args: {a: [1, "\\0"]}}', "NUL"),
    "a folder with NUL": ('target: {command: [x], cwd: "a\\0"}', "NUL"),
    "a slow stage": (TARGET + "stages: ['(a+)+$']", "takes longer than"),
    "a slow include": (TARGET + "select: {include: ['(\\w+\\s?)*$']}", "takes longer than"),
    "a deep regex": (TARGET + f"stages: ['{'(' * 5000}']", "not a regular expression"),
    "a repeat without end": (TARGET + "stages: ['a{99999999999}']", "not a regular expression"),
    "a 13th month": ("target: {command: [x], args: {a: 2001-13-01}}", "month must be in 1..12"),
    "5,000 digits": (f"target: {{command: [x], args: {{a: {'9' * 5000}}}}}", "4300 digits"),
    "lists in lists": ("target: {command: [x], args: {a: [[1]]}}", "one list"),
    "a long name": (f"name: {'a' * 300}\n{TARGET}", "at most 120 characters"),
    "a folder of 5,000 characters": (
        f"target: {{command: [x], cwd: {'d' * 5000}}}",
        "not a folder",
    ),
    "a parent of 5,000 characters": (f"{TARGET}extends: {'e' * 5000}", "there is no recipe"),
    "nobody's home": ("target: {command: [x], cwd: ~nobody-of-this-name/x}", "not a folder"),
    "half a character": ('target: {command: ["\\ud83d"]}', "surrogates not allowed"),
    "a number as a key": (f'{TARGET}"5": 6', "unknown key 5"),
}


@pytest.fixture
def short_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuse slow patterns after less time than those of users: what takes for ever takes that."""
    monkeypatch.setattr(patterns, "_PROBE_SECONDS", 0.1)


@pytest.mark.parametrize("name", BOMBS)
def test_a_hostile_recipe_is_refused_at_once(
    name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], short_probes: None
) -> None:
    text, words = BOMBS[name]
    path = tmp_path / "mine.yaml"
    path.write_text(text, "utf-8")
    for command in (["recipe", "check", str(path)], ["run", str(path), "--dry-run"]):
        assert main(command) == 2
        error = capfd.readouterr().err
        assert words in error
        assert "hint: " in error
        assert len(error) < 20_000


@pytest.mark.parametrize(
    "value",
    [f"{{{LAUGHS}}}", "&a [*a]", "[" * 10_000, "2001-99-99", "9" * 5000],
    ids=["aliases", "itself", "levels", "date", "digits"],
)
def test_so_is_a_hostile_option(value: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["recipe", "check", "own-command", "--set", f"target.args.a={value}"]) == 2
    assert "the value is not YAML" in capfd.readouterr().err


def test_aliases_that_save_writing_are_read(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("target: {command: [x], args: &a {n: 1}}\ntrace: {args: *a}\n", "utf-8")
    assert main(["recipe", "check", str(path)]) == 0


def test_a_pattern_that_is_slow_on_these_names_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """It needs two characters in turn, which no probe has."""
    slow = "(ab|a|b)+$"
    patterns.compile_pattern(slow)
    monkeypatch.setattr(matching, "SECONDS", 0.2)
    with pytest.raises(UsageError, match="longer than"):
        name_stages([("", "ab" * 40 + "!")], [slow])


def test_a_slow_rule_of_a_comparison_is_refused(
    recorded_folder: Callable[[str], Path], capfd: pytest.CaptureFixture[str], short_probes: None
) -> None:
    runs = [str(recorded_folder(f"compare/{name}")) for name in ("eager", "compiled")]
    assert main(["compare", *runs, "--fail-on", "kernel:(a+)+$>+5%"]) == 2
    assert "takes longer than" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("--batch", "1000000000", "1,000,000,000 requests in one load"),
        ("--concurrency", "1000000000", "4,000,000,000 requests in one load"),
        ("--rate", "999999", "19,999,980 requests in one load"),
        ("--prompt", "1000000000", "1,000,000,000 prompt tokens per request"),
        ("--output", "1000000000", "1,000,000,000 output tokens per request"),
    ],
)
def test_a_load_that_would_be_served_for_days_is_refused(
    option: str, value: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["predict", "qwen2.5-7b", "--gpu", "h200-sxm", option, value]) == 2
    assert words in capsys.readouterr().err


def test_so_is_one_of_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "day.jsonl"
    file.write_text('{"arrival_s": 0, "prompt_tokens": 1, "output_tokens": 1e14}')
    words = ["predict", "qwen2.5-7b", "--gpu", "h200-sxm", "--workload", str(file)]
    assert main(words) == 2
    assert "100,000,000,000,000 output tokens" in capsys.readouterr().err


def test_heads_that_share_no_keys_evenly_are_refused(
    tmp_path: Path, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = json.loads((root / "tests/fixtures/small_llama.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"num_key_value_heads": 3}))
    assert main(["predict", str(tmp_path), "--gpu", "h200-sxm", "--batch", "1"]) == 2
    assert "num_key_value_heads must divide" in capsys.readouterr().err


@pytest.mark.parametrize("value", ["nan", "inf"])
@pytest.mark.parametrize(
    "words",
    [
        ("predict", "qwen2.5-7b", "--gpu", "h200-sxm", "--price-per-hour"),
        ("predict", "qwen2.5-7b", "--gpu", "h200-sxm", "--gpu-memory-utilization"),
        ("predict", "qwen2.5-7b", "--gpu", "h200-sxm", "--speculative-tokens", "3", "--accept"),
        ("history", "check", "--threshold"),
        ("monitor", "--interval"),
        ("rank", "runs/job", "--limit"),
    ],
)
def test_no_number_and_no_end_are_refused(
    words: tuple[str, ...], value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words, value]) == 2
    assert f"Invalid value for '{words[-1]}'" in capsys.readouterr().err


def test_a_folder_is_no_program(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", str(tmp_path)]) == 2
    assert "is a folder" in capsys.readouterr().err
