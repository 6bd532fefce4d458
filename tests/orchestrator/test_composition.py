"""Recipes made of several: lists of extends, groups, the user's folders, origins of values."""

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from nsight_prof.orchestrator.cli import main
from nsight_prof.orchestrator.recipe.files import bundled_folder, user_recipes
from nsight_prof.orchestrator.recipe.origins import with_origins
from nsight_prof.orchestrator.recipe.read import expand, load_recipe, load_with_layers
from nsight_prof.orchestrator.recipe.starting import first_recipe
from nsight_prof.parsers.errors import RecipeError

Write = Callable[..., Path]


def test_of_several_parents_the_later_one_goes_over_the_earlier(write: Write) -> None:
    write("target: {file: a.py, args: {x: 1}}\nselect: {top_k: 1}\n", "base.yaml")
    write("extends: base.yaml\ntarget: {args: {x: 2}}\n", "left.yaml")
    write("extends: base.yaml\nselect: {top_k: 3}\n", "right.yaml")
    recipe = load_recipe(write("extends: [left.yaml, right.yaml]\n"))
    # base.yaml counts once, below both: it does not undo left.yaml.
    assert (recipe.target.args, recipe.select.top_k) == ({"x": 2}, 3)
    with pytest.raises(RecipeError, match="extends"):
        load_recipe(write("extends: {a: 1}\ntarget: {file: a.py}\n"))


def test_a_choice_goes_over_the_recipe_and_under_values(write: Write) -> None:
    recipe = load_recipe("inference", ["target.args.batch=2", "model=vit-base", "dataset=pages"])
    assert recipe.target.args["model"] == "vit-base"
    assert recipe.target.args["batch"] == 2
    assert recipe.dataset is not None
    assert recipe.dataset.root == "pages"
    with pytest.raises(RecipeError, match=r"no model/absent\.yaml") as caught:
        load_recipe("inference", ["model=absent"])
    assert "vit-base" in caught.value.hint


def test_a_sweep_over_groups_is_a_choice_in_each_run(write: Write) -> None:
    path = write(
        "extends: inference\nsweep: {model: [vit-base, resnet-50], target.args.seed: [1]}\n"
    )
    found = dict(expand(load_recipe(path, ["target.args.batch=2", "workload=short-answer"])))
    assert list(found) == ["model=vit-base,seed=1", "model=resnet-50,seed=1"]
    for name, recipe in found.items():
        args = recipe.target.args
        assert args["model"] == name.removeprefix("model=").partition(",")[0]
        assert (args["batch"], args["seed"], args["output_tokens"]) == (2, 1, 32)
        assert recipe.name == path.stem
    with pytest.raises(RecipeError, match=r"no model/absent\.yaml"):
        load_recipe(path, ["sweep.model=[vit-base, absent]"])


@pytest.mark.parametrize(
    "choice", sorted(f"{p.parent.name}={p.stem}" for p in bundled_folder().glob("*/*.yaml"))
)
def test_each_bundled_part_fits(choice: str) -> None:
    recipe = load_recipe("inference", [choice])
    assert recipe != load_recipe("inference")


def test_the_folders_of_the_user_go_first(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = tmp_path / "mine"
    (mine / "model").mkdir(parents=True)
    (mine / "top-kernels.yaml").write_text("extends: top-kernels\nselect: {top_k: 7}\n")
    (mine / "model" / "vit-base.yaml").write_text("target: {args: {batch: 3}}\n")
    monkeypatch.setenv("PROF_RECIPES", f"{tmp_path / 'absent'}:{mine}")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    recipe = load_recipe("top-kernels")
    assert (recipe.select.top_k, recipe.target.file) == (7, "llm_block.py")
    assert load_recipe("inference", ["model=vit-base"]).target.args["batch"] == 3
    assert [path.stem for path in user_recipes()] == ["top-kernels"]


def test_every_value_says_where_it_comes_from(write: Write) -> None:
    base = write("target: {file: a.py}\nnotes: ['two\\nlines']\n", "base.yaml")
    path = write("extends: base.yaml\nselect:\n  top_k: 4\n")
    recipe, layers = load_with_layers(path, ["target.args.n=1"])
    text = with_origins(recipe.to_dict(), layers)
    assert f"  file: a.py  # {base}:1\n" in text
    assert f"  top_k: 4  # {path}:3\n" in text
    assert "    n: 1  # --set target.args.n=1\n" in text
    assert "  coverage: 0.95\n" in text
    assert yaml.safe_load(text) == recipe.to_dict()


SOURCE = """
import torch
with torch.cuda.nvtx.range("not this: a variable"): pass
torch.cuda.nvtx.range_push("load data")
with nvtx.annotate('step'): torch.cuda.profiler.start()
"""


def test_the_first_recipe_of_a_program_fits_its_source(write: Write, tmp_path: Path) -> None:
    program = write(SOURCE, "train.py")
    recipe = load_recipe(write(first_recipe([str(program), "--batch", "8"])))
    assert recipe.target.command == ("python", str(program), "--batch", "8")
    assert (recipe.capture, recipe.operators.enabled) == ("profiler-api", True)
    assert r"^load\ data$" in recipe.stages
    assert "^step$" in recipe.stages
    words = ["/usr/bin/python3.12", str(program), "--batch", "8"]
    named = load_recipe(write(first_recipe(words)))
    assert (named.target.command, named.capture) == (tuple(words), "profiler-api")
    plain = load_recipe(write(first_recipe(["./app", "4096"])))
    assert (plain.capture, plain.stages, plain.operators.enabled) == ("all", (), False)


def test_init_writes_a_recipe_and_replaces_none(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    program = write("print()\n", "work.py")
    assert main(["init", str(program), "--size", "3"]) == 0
    command = load_recipe(tmp_path / "work.yaml").target.command
    assert command is not None
    assert command[-2:] == ("--size", "3")
    assert main(["init", str(program)]) == 2
    assert main(["init", "-o", "x.yaml", str(program)]) == 2  # no option of ours, and no program
    assert not Path("-o.yaml").exists()
