"""Recipes: what is accepted, what is refused, and with which words."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import jsonschema
import pytest
import yaml

from nsight_prof.orchestrator.plan.metric_choice import TENSOR_DTYPES
from nsight_prof.orchestrator.plan.program import resolve_program
from nsight_prof.orchestrator.recipe.errors import all_keys
from nsight_prof.orchestrator.recipe.files import bundled
from nsight_prof.orchestrator.recipe.read import (
    expand,
    load_recipe,
    recipe_from_dict,
    recipe_schema,
)
from nsight_prof.orchestrator.recipe.schema import Recipe
from nsight_prof.orchestrator.recipe.sections import MetricSet, NvtxCapture, TensorDtype
from nsight_prof.parsers.errors import RecipeError
from nsight_prof.parsers.metrics.catalogue import catalogue
from tests.schemas import of_recipes

Write = Callable[..., Path]


def refusal(path: object, *overrides: str) -> RecipeError:
    with pytest.raises(RecipeError) as caught:
        load_recipe(str(path), overrides)
    return caught.value


APP = "target: {command: [./app]}\n"


def test_a_short_recipe_has_all_the_defaults_and_its_file_name(write: Write) -> None:
    recipe = load_recipe(write(APP))
    assert recipe.name == "mine"
    assert (recipe.capture, recipe.select.top_k, recipe.select.coverage) == ("all", 20, 0.95)
    assert recipe.counters.clock_control == recipe.counters.cache_control == "none"
    assert not recipe.select.collectives


def test_stages_are_a_list_or_have_names(write: Write) -> None:
    listed = load_recipe(write(APP + "stages: [^prefill$]\n"))
    named = load_recipe(write(APP + "stages: {prefill: ^ctx, decode: ^gen}\n"), ["stages.mixed=."])
    assert listed.stages == ("^prefill$",)
    assert isinstance(named.stages, dict)
    assert list(named.stages.items()) == [("prefill", "^ctx"), ("decode", "^gen"), ("mixed", ".")]
    again = recipe_from_dict(named.to_dict(), "manifest")
    assert again.stages == named.stages


def test_a_misspelt_key_is_refused_by_name_with_file_line_and_the_nearest(write: Write) -> None:
    path = write(APP + "select:\n  topk: 5\n")
    error = refusal(path)
    assert error.message == f"{path}:3: unknown key select.topk"
    assert error.hint == "did you mean select.top_k?"
    assert error.exit_code == 2


def test_a_key_at_the_wrong_place_is_pointed_to_its_own(write: Write) -> None:
    error = refusal(write(APP + "top_k: 5\n"))
    assert "unknown key top_k" in error.message
    assert error.hint == "top_k belongs elsewhere: select.top_k"


def test_all_wrong_keys_are_named_at_once(write: Write) -> None:
    text = APP + "selct: {}\ncounters: {timout: 3, sets: [rofline]}\n"
    message = refusal(write(text)).message
    assert "unknown key selct (did you mean select?)" in message
    assert "unknown key counters.timout (did you mean counters.timeout?)" in message
    assert "counters.sets.0: 'rofline' is not one of its values (did you mean roofline?" in message
    assert len(message.splitlines()) == 3


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("select: {top_k: '20'}", "select.top_k: '20' does not fit: it wants a whole number"),
        ("select: {top_k: 0}", "select.top_k: 0 does not fit: input should be greater than"),
        ("select: {coverage: 1.5}", "select.coverage: 1.5 does not fit"),
        ("select: {coverage: .nan}", "select.coverage: nan does not fit"),
        ("select: {by_stage: 1}", "select.by_stage: 1 does not fit: it wants true or false"),
        ("select: {include: abc}", "select.include: 'abc' does not fit: it wants a list"),
        ("select: {include: ['((']}", "select.include.0: not a regular expression: missing )"),
        ("stages: ['*']", "stages.0: not a regular expression: nothing to repeat"),
        ("capture: profiler_api", "capture: 'profiler_api' is not one of its values"),
        ("capture: {nvt: decode}", "unknown key capture.nvt"),
        ("capture: {nvtx: ''}", "capture.nvtx: '' does not fit"),
        ("trace: {timeout: 10 weeks}", "trace.timeout: write seconds (600)"),
        ("trace: {timeout: 0}", "trace.timeout: 0 does not fit"),
        ("trace: 5", "trace: 5 does not fit: it wants a mapping"),
        ("counters: {sets: []}", "counters.sets: the list is empty"),
        ("counters: {clock_control: boost}", "clock_control: 'boost' is not one of its values"),
        ("counters: {tensor_dtypes: bf16}", "counters.tensor_dtypes: 'bf16' is not one of"),
        ("name: a/b", "name: 'a/b' cannot be the name of a folder"),
        ("question: 5", "question: 5 does not fit: it wants text"),
        ("trace: {enabled: false}", "counters without a trace need a kernel list"),
        ("trace: {enabled: false}\ncounters: {enabled: false}", "nothing to do"),
        ("sweep: {target.args.batch: []}", "sweep.target.args.batch: the list is empty"),
        ("sweep: {select.topk: [1]}", "unknown key select.topk"),
        ("bench: {processes: 0}", "bench.processes: 0 does not fit"),
        ("bench: {repeats: 2}", "unknown key bench.repeats"),
        ("bench: {}\ntrace: {timeout: 5m}", "is not traced: leave `trace` out beside `bench`"),
        ("bench: {}\ntrace: {enabled: true}", "is not traced: leave `trace` out beside `bench`"),
        ("bench: {}\nselect: {top_k: 5}", "counts every case: leave `select` out"),
        ("bench: {}\nstages: [a]", "cases and no stages"),
        ("bench: {}\ncapture: all", "leave `capture` out beside `bench`"),
        ("bench: {}\nsweep: {target.args.m: [1]}", "leave `sweep` out beside `bench`"),
        ("bench: {count_args: {out: x}}", "the argument out is set by prof"),
        ("bench: {}\noperators: {enabled: true}", "leave `operators` out beside `bench`"),
        ("bench: {}\nuntraced: {enabled: true}", "leave `untraced` out beside `bench`"),
        ("bench: {}\ncounters: {args: {m: 1}}", "bench.count_args"),
        ("operators: {arg: {}}", "unknown key operators.arg"),
        ("trace: {args: {a: {b: 1}}}", "trace.args: a is a mapping"),
        ("stages: {prefill: '(('}", "stages.prefill: not a regular expression"),
        ("stages: {'a, b': x}", "stages.a, b: a stage is called with letters"),
        ("stages: 5", "stages: 5 does not fit: it wants a list"),
        ("sweep: {select.top_k: [1, 1]}", "two variants are called top_k=1"),
        ("1: 2", "does not fit"),
    ],
)
def test_a_wrong_value_is_explained(write: Write, text: str, words: str) -> None:
    assert words in refusal(write(APP + text + "\n")).message


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("{}", "target: names no program"),
        ("{file: a.py, command: [b]}", "target: names a file and a command"),
        ("{command: []}", "target: the command is an empty list"),
        ("{command: './app --x'}", "target.command: './app --x' does not fit: it wants a list"),
        ("{command: [./app, true]}", "YAML reads this as True; put it in quotes"),
        ("{file: a.py, args: {x: {y: 1}}}", "target.args: x is a mapping"),
        ("{file: a.py, env: {A: null}}", "target.env.A: YAML reads this as None"),
    ],
)
def test_a_wrong_target_is_explained(write: Write, target: str, words: str) -> None:
    assert words in refusal(write(f"target: {target}\n")).message


def test_a_recipe_without_a_target_is_refused(write: Write) -> None:
    error = refusal(write("question: why?\n"))
    assert "the key target is missing" in error.message
    assert error.hint == "add target to the recipe"


def test_a_yaml_error_comes_with_its_line(write: Write) -> None:
    path = write("target:\n  command: [./app\nname: x\n")
    assert refusal(path).message.startswith(f"{path}:3 is not YAML: ")


def test_a_key_that_stands_twice_is_refused(write: Write) -> None:
    message = refusal(write(APP + "select: {top_k: 5}\nselect: {coverage: 0.5}\n")).message
    assert ":3: the key select stands twice (first in line 2)" in message


@pytest.mark.parametrize("text", ["", "- a\n- b\n", "just text\n"])
def test_a_file_that_is_no_mapping_is_refused(write: Write, text: str) -> None:
    assert "is not a recipe" in refusal(write(text)).message


def test_a_program_in_place_of_a_recipe_is_told_how_to_be_profiled(write: Write) -> None:
    error = refusal(write("print()\n", "train.py"))
    assert "is not a recipe: a recipe is a .yaml file" in error.message
    assert "prof run torch-script --set target.file=" in error.hint


def test_an_unknown_recipe_is_refused_with_the_nearest_name() -> None:
    error = refusal("top-kernel")
    assert error.message == "there is no recipe top-kernel"
    assert "did you mean top-kernels?" in error.hint


def test_a_bundled_recipe_is_found_by_name_and_by_path_from_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    recipes = [
        load_recipe(n) for n in ("top-kernels", "top-kernels.yaml", "recipes/top-kernels.yaml")
    ]
    assert recipes[0] == recipes[1] == recipes[2]
    assert resolve_program(recipes[0]).argv[1].endswith("targets/llm_block.py")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("'90'", 90), ("90s", 90), ("10m", 600), ("1.5h", 5400), ("2 min", 120)],
)
def test_a_timeout_is_in_seconds_or_has_a_unit(write: Write, text: str, seconds: float) -> None:
    assert load_recipe(write(APP + f"trace: {{timeout: {text}}}\n")).trace.timeout == seconds


def test_a_recipe_builds_on_another(write: Write) -> None:
    write(
        "target: {file: a.py, args: {x: 1, y: 2}}\nselect: {top_k: 5, exclude: [a]}\n", "base.yaml"
    )
    child = write("extends: base.yaml\ntarget: {args: {y: 3}}\nselect: {exclude: [b]}\n")
    recipe = load_recipe(child)
    assert recipe.name == "mine"
    assert recipe.target.args == {"x": 1, "y": 3}
    assert (recipe.select.top_k, recipe.select.exclude) == (5, ("b",))


def test_another_target_starts_without_the_arguments_of_the_old_one(write: Write) -> None:
    recipe = load_recipe(write("extends: top-kernels\ntarget: {command: [./app]}\n"))
    assert (recipe.target.file, recipe.target.command, recipe.target.args) == (None, ("./app",), {})
    assert load_recipe("top-kernels", ["target.file=b.py", "target.args.n=1"]).target.args == {
        "n": 1
    }


def test_an_error_names_the_file_that_holds_the_key(write: Write) -> None:
    base = write(APP + "select: {topk: 5}\n", "base.yaml")
    assert refusal(write("extends: base.yaml\n")).message.startswith(f"{base}:2: ")


def test_recipes_that_extend_each_other_in_a_circle_are_refused(write: Write) -> None:
    write("extends: mine.yaml\n", "other.yaml")
    message = refusal(write("extends: other.yaml\n")).message
    assert "in a circle: mine.yaml -> other.yaml -> mine.yaml" in message


def test_overrides_set_any_key_as_yaml() -> None:
    recipe = load_recipe(
        "top-kernels",
        [
            "target.args.batch=16",
            "target.args.prompt-len=8",
            "capture={nvtx: decode}",
            "select.exclude=[nccl, memset]",
            "select.top_k=null",
            "target.env.CUDA_VISIBLE_DEVICES=1",
        ],
    )
    assert recipe.target.args["batch"] == 16
    assert recipe.target.args["prompt_len"] == 8
    assert "prompt-len" not in recipe.target.args
    assert recipe.capture == NvtxCapture(nvtx="decode")
    assert recipe.select.exclude == ("nccl", "memset")
    assert recipe.select.top_k is None
    assert recipe.target.env == {"CUDA_VISIBLE_DEVICES": "1"}


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("selct.top_k=4", "--set selct.top_k=4: unknown key selct"),
        ("select.top_k=many", "--set select.top_k=many: select.top_k: 'many' does not fit"),
        ("select.top_k", "is not of the form key=value"),
        ("=4", "is not of the form key=value"),
        ("a..b=4", "is not of the form key=value"),
        ("stages=[a", "the value is not YAML"),
        ("target=5", "--set target=5: target: 5 does not fit"),
    ],
)
def test_a_wrong_override_is_refused_by_name(override: str, words: str) -> None:
    assert words in refusal("top-kernels", override).message


def test_a_sweep_gives_every_combination_a_readable_name(write: Write) -> None:
    text = (
        APP + "sweep: {target.args.batch: [1, 2], counters.sets: [[roofline], [memory, stalls]]}\n"
    )
    variants = expand(load_recipe(write(text)))
    assert [name for name, _ in variants] == [
        "batch=1,sets=roofline",
        "batch=1,sets=memory-stalls",
        "batch=2,sets=roofline",
        "batch=2,sets=memory-stalls",
    ]
    assert variants[3][1].target.args == {"batch": 2}
    assert variants[3][1].counters.sets == ("memory", "stalls")
    assert all(variant.sweep == {} for _, variant in variants)


def test_swept_keys_that_end_alike_keep_their_whole_name() -> None:
    sweep = "sweep={trace.timeout: [10], counters.timeout: [20]}"
    ((name, _),) = expand(load_recipe("top-kernels", [sweep]))
    assert name == "trace.timeout=10,counters.timeout=20"


def test_a_sweep_can_be_set_on_the_command_line() -> None:
    variants = expand(load_recipe("top-kernels", ["sweep.target.args.batch=[1, 8]"]))
    assert [name for name, _ in variants] == ["batch=1", "batch=8"]


def test_a_variant_with_much_to_say_has_a_name_that_a_folder_can_have() -> None:
    words = [["x" * 300, "1"], ["x" * 300, "2"]]
    recipe = load_recipe("top-kernels", [f"sweep={json.dumps({'target.args.words': words})}"])
    names = [name for name, _ in expand(recipe)]
    assert len(set(names)) == 2
    assert max(map(len, names)) == 120


def test_without_a_sweep_there_is_one_run_without_a_name() -> None:
    recipe = load_recipe("top-kernels")
    assert expand(recipe) == [("", recipe)]


def test_a_resolved_recipe_survives_the_manifest_and_keeps_no_secret(write: Write) -> None:
    recipe = load_recipe(write(APP + "capture: {nvtx: a}\n"), ["target.env.TOKEN=s3cret"])
    text = json.dumps(recipe.to_dict())
    assert "s3cret" not in text
    again = recipe_from_dict(json.loads(text), "manifest.json")
    assert again.capture == recipe.capture
    assert list(again.target.env) == ["TOKEN"]


def test_the_schema_has_the_sets_and_dtypes_of_the_catalogue() -> None:
    known = catalogue()
    assert get_args(MetricSet) == tuple(known.sets)
    told = {dtype for dtypes in known.tensor.values() for dtype in dtypes}
    assert set(get_args(TensorDtype)) == told == set(TENSOR_DTYPES)


def test_every_key_is_described() -> None:
    schema = recipe_schema()
    models = [schema, *schema["$defs"].values()]
    for model in models:
        for key, facts in model["properties"].items():
            assert facts.get("description"), key
    assert ("select", "top_k") in list(all_keys(Recipe))
    assert ("capture", "nvtx") in list(all_keys(Recipe))


@pytest.mark.parametrize("path", bundled(), ids=lambda path: path.stem)
def test_every_bundled_recipe_loads_and_fits_the_json_schema(path: Path) -> None:
    recipe = load_recipe(path)
    assert recipe.name == path.stem
    assert recipe.question.endswith("?")
    of_recipes().validate(yaml.safe_load(path.read_text(encoding="utf-8")))


def test_the_json_schema_refuses_what_prof_refuses() -> None:
    with pytest.raises(jsonschema.ValidationError):
        of_recipes().validate({"target": {}, "selct": {}})


def test_recipes_beside_are_extended_by_name(write: Write) -> None:
    write(APP, "base.yaml")
    write("select: {top_k: 3}\ntrace: {timeout: 7}\n", "few.yaml")
    recipe = load_recipe(write("extends: [base, few]\ntrace: {timeout: 8}\n"))
    assert (recipe.select.top_k, recipe.trace.timeout) == (3, 8)


def test_a_missing_recipe_to_extend_is_told_with_the_line(write: Write) -> None:
    path = write("extends: base\n")
    assert refusal(path).message == f"{path}:1: extends: there is no recipe base"
