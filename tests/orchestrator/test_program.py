"""The program of a recipe: which file, with which interpreter, arguments and folder."""

from collections.abc import Callable
from pathlib import Path

import pytest

from nsight_prof.orchestrator.plan.program import (
    BUNDLED_TARGETS,
    bundled_targets,
    find_target,
    render_args,
    resolve_program,
)
from nsight_prof.orchestrator.recipe.files import bundled
from nsight_prof.orchestrator.recipe.read import load_recipe
from nsight_prof.parsers.errors import RecipeError

Write = Callable[..., Path]


@pytest.mark.parametrize("name", ["roofline/run.py", "serving/offline.py", "gemm.py"])
def test_bundled_targets_are_found_also_in_folders_of_their_own(name: str, tmp_path: Path) -> None:
    assert find_target(name, (tmp_path,)) == BUNDLED_TARGETS / name


def test_arguments_become_options() -> None:
    args = {"prompt_len": 5, "fast": True, "slow": False, "none": None, "sizes": [1, 2], "-n": 3}
    expected = ["--prompt-len", "5", "--fast", "--sizes", "1", "2", "-n", "3"]
    assert render_args(args) == expected


def test_a_target_beside_the_recipe_goes_before_a_bundled_one(write: Write) -> None:
    own = write("print()\n", "llm_block.py")
    recipe = load_recipe(write("target: {file: llm_block.py}\n"))
    assert find_target("llm_block.py", recipe.folders) == own
    assert len(resolve_program(recipe).digest) == 64


def test_a_missing_target_is_refused_with_the_bundled_ones(write: Write) -> None:
    with pytest.raises(RecipeError, match=r"absent\.py does not exist") as caught:
        resolve_program(load_recipe(write("target: {file: absent.py}\n")))
    assert "llm_block.py" in caught.value.hint
    assert "did you mean" not in caught.value.hint


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("offline.py", "serving/offline.py"),
        ("serving/ofline.py", "serving/offline.py"),
        ("targets/serving/server.py", "serving/server.py"),
        ("llm_blok.py", "llm_block.py"),
    ],
)
def test_the_nearest_bundled_target_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: str, right: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RecipeError) as caught:
        find_target(wrong, ())
    assert f"did you mean {right}? " in caught.value.hint


def test_the_bundled_targets_are_what_recipes_and_people_run() -> None:
    names = bundled_targets()
    used = {load_recipe(path).target.file for path in bundled()}
    assert {name for name in used if name and (BUNDLED_TARGETS / name).is_file()} <= set(names)
    # Parts of targets, and what prof itself starts.
    absent = ("serving/worker.py", "tiny_kernel.py", "harness/run.py", "under_torch_profiler.py")
    assert not set(absent) & set(names)


def test_the_interpreter_of_the_recipe_replaces_a_leading_python(write: Write) -> None:
    text = "target: {command: [python, -m, x], python: /opt/py, args: {n: 1}}\n"
    assert resolve_program(load_recipe(write(text))).argv == ("/opt/py", "-m", "x", "--n", "1")
    plain = load_recipe(write("target: {command: [python, x.py]}\n"))
    assert resolve_program(plain).argv[0] == "python"


def test_a_missing_working_folder_is_refused(write: Write) -> None:
    with pytest.raises(RecipeError, match="not a folder"):
        resolve_program(load_recipe(write("target: {command: [a], cwd: /nonexistent}\n")))


def test_a_dataset_becomes_options_and_is_sought_in_datasets_root(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "target: {file: inference/run.py}\ndataset: {root: scans, samples: 3, shuffle: true}\n"
    recipe = load_recipe(write(text))
    with pytest.raises(RecipeError, match=r"dataset\.root scans does not exist"):
        resolve_program(recipe)
    (tmp_path / "sets" / "scans").mkdir(parents=True)
    monkeypatch.setenv("DATASETS_ROOT", str(tmp_path / "sets"))
    words = " ".join(resolve_program(recipe).argv)
    assert f"--dataset-root {tmp_path / 'sets' / 'scans'} --dataset-seed 0" in words
    assert words.endswith("--samples 3 --epochs 1 --shuffle")
    bundled_set = load_recipe("inference", ["dataset.root=pages"])
    assert str(BUNDLED_TARGETS / "inference/datasets/pages") in resolve_program(bundled_set).argv


def test_a_dataset_without_data_is_refused(write: Write) -> None:
    with pytest.raises(RecipeError, match="names no data"):
        load_recipe(write("target: {file: inference/run.py}\ndataset: {samples: 3}\n"))
