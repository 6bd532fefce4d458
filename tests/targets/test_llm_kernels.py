"""The target llm_kernels: its plan for a GPU, and every family on a CPU."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

torch = pytest.importorskip("torch")

from nsight_prof.targets.harness import Case, Setup, Unsupported  # noqa: E402
from nsight_prof.targets.llm_kernels import attention, data  # noqa: E402
from nsight_prof.targets.llm_kernels.models import MODELS  # noqa: E402
from nsight_prof.targets.llm_kernels.run import cases, main  # noqa: E402

FAMILIES = {"linear", "bmm", "attention", "norm", "elementwise", "sampling", "conv", "lstm"}
SCHEMA = Path(__file__).resolve().parents[2] / "parsers" / "bench.schema.json"


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Threads of tiny products wait for each other longer than they compute."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(autouse=True)
def _attention_switches() -> Iterator[None]:
    """Leave torch's choice of back ends as it was."""
    switches = ("flash_sdp", "cudnn_sdp", "mem_efficient_sdp", "math_sdp")
    cuda = torch.backends.cuda
    before = {name: getattr(cuda, f"{name}_enabled")() for name in switches}
    yield
    for name, enabled in before.items():
        getattr(cuda, f"enable_{name}")(enabled)


def options(**given: Any) -> Namespace:
    return Namespace(
        **{"device": "cpu", "models": None, "families": None, "variants": None, "tokens": None}
        | given
    )


def planned(monkeypatch: pytest.MonkeyPatch, **given: Any) -> list[Case]:
    """Return the cases for a GPU; no GPU is asked whether it takes grouped heads."""
    monkeypatch.setattr(attention, "takes_groups", lambda backend, *_: backend != "cudnn")
    return list(cases(options(device="cuda", **given)))


def setup(data_kind: str = "normal") -> Setup:
    return Setup(torch.device("cpu"), 2, data_kind, 0, 1 << 20)


def test_the_sweep_covers_models_tokens_and_variants(monkeypatch: pytest.MonkeyPatch) -> None:
    made = planned(monkeypatch)
    assert len({case.name for case in made}) == len(made)
    assert {case.params["family"] for case in made} == FAMILIES
    assert 250 <= len(made) <= 350
    linear = [case for case in made if case.params["family"] == "linear"]
    models = {name for case in linear for name in str(case.params["models"]).split(", ")}
    assert len(models) >= 5
    for projection in ("qkv", "out", "gate-up", "down", "head"):
        tokens = {c.params["tokens"] for c in linear if c.params["projection"] == projection}
        assert tokens == ({1, 16, 128} if projection == "head" else {1, 16, 128, 1024, 8192})
    variants = {case.params["variant"] for case in made}
    assert variants == {"eager", "graph", "compiled", "compiled-graph"}
    assert {case.launch for case in made if case.params["variant"] == "graph"} == {"graph"}


def test_a_shape_of_two_models_is_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    both = planned(monkeypatch, models=["llama-3.1-8b", "mistral-7b-v0.3"], families=["linear"])
    down = {c.params["models"] for c in both if c.params["projection"] == "down"}
    assert down == {"llama-3.1-8b, mistral-7b-v0.3"}
    # Their vocabularies differ, so their heads do.
    assert len({c.params["models"] for c in both if c.params["projection"] == "head"}) == 2


def test_counting_takes_each_kernel_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made = planned(monkeypatch)
    counted = [case for case in made if case.counted]
    assert len(counted) < len(made) / 2
    assert {case.params["family"] for case in counted} == FAMILIES
    shapes = [case.name.rpartition("/")[0] for case in counted if "compiled" not in case.name]
    assert len(set(shapes)) == len(shapes)


def test_grouped_heads_are_expanded_where_a_back_end_does_not_take_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = planned(monkeypatch, families=["attention"])
    groups = {(c.params["backend"], c.params["kv_groups"]) for c in made}
    assert groups == {
        ("flash", "native"), ("flash", "none"), ("math", "native"), ("cudnn", "expanded"),
    }  # fmt: skip


def test_options_choose(monkeypatch: pytest.MonkeyPatch) -> None:
    made = planned(
        monkeypatch, models=["qwen2.5-7b"], families=["linear"], variants=["graph"], tokens=[64]
    )
    assert {case.params["model"] for case in made} == {"qwen2.5-7b"}
    assert len(made) == 5


@pytest.mark.parametrize("data_kind", ["normal", "zeros"])
def test_calls_use_buffers_of_their_own(data_kind: str) -> None:
    make = data.Maker(setup(data_kind))
    a, b = make.normal(3, 5), make.normal(3, 5)
    assert a.shape == b.shape == (3, 5)
    assert a.data_ptr() + 15 * 2 <= b.data_ptr()
    assert b.data_ptr() % 64 == 0
    assert bool((a == 0).all()) == (data_kind == "zeros")


def test_data_are_normal_and_repeat_with_the_seed() -> None:
    first, again = (data.Maker(setup()).normal(100, 100, dtype=torch.float32) for _ in range(2))
    assert torch.equal(first, again)
    assert abs(float(first.mean())) < 0.05
    assert float(first.std()) == pytest.approx(1, abs=0.05)
    assert data.Maker(setup()).distinct(5, 5).sort().values.tolist() == [0, 1, 2, 3, 4]


def result_of(name: str) -> Any:
    case = next(c for c in cases(options(variants=["eager", "graph"])) if c.name == name)
    return case.prepare(setup())[0]()


def test_attention_back_ends_agree() -> None:
    for stage in ("prefill", "decode"):
        flash, math = (
            result_of(f"attention/{stage}/tiny/b1-s16/{backend}/eager").float()
            for backend in ("flash", "math")
        )
        assert flash.shape == (1, 4, 16 if stage == "prefill" else 1, 16)
        assert torch.allclose(flash, math, atol=0.03)


def test_a_missing_back_end_is_a_reason() -> None:
    with pytest.raises(Unsupported, match="cudnn back end"):
        result_of("attention/prefill/tiny/b1-s16/cudnn/eager")


def test_math_attention_that_does_not_fit_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = Namespace(total_memory=140e9)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: memory)
    shape = attention.Shape("prefill", MODELS["llama-3.1-8b"], 1, 32768, 32768, 8)
    on_gpu = Setup(torch.device("cuda"), 1, "normal", 0, 1)
    with pytest.raises(Unsupported, match="137.4 GB"):
        attention._check_memory(on_gpu, shape)


def test_sampling_draws_from_the_most_likely() -> None:
    case = next(c for c in cases(options()) if c.name == "sampling/top-k/tiny/t16/eager")
    drawn: Any = case.prepare(setup())[0]()
    assert drawn.shape == (16, 1)
    assert int(drawn.min()) >= 0
    assert int(drawn.max()) < MODELS["tiny"].vocab


def test_no_compiler_is_a_reason_found_once(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[int] = []

    def broken(*_: Any, **__: Any) -> Any:
        tried.append(1)
        raise RuntimeError("no C compiler\nmore")

    monkeypatch.setattr(torch, "compile", broken)
    monkeypatch.setattr(data, "_compiler_fault", [])
    for _ in range(2):
        with pytest.raises(Unsupported, match="torch.compile: RuntimeError: no C compiler$"):
            data.compiled(lambda x: x, (torch.ones(1),))
    assert len(tried) == 2  # the function itself, and whether anything compiles at all


def test_every_family_on_a_cpu(tmp_path: Path) -> None:
    """All records keep to the schema; torch.compile has a test of its own, for it takes long."""
    out = tmp_path / "records.jsonl"
    arguments = ["--device", "cpu", "--variants", "eager", "graph", "--case-time", "0.001"]
    assert main([*arguments, "--min-samples", "2", "--tokens", "4", "--out", str(out)]) == 0
    records = [json.loads(line) for line in out.read_text().splitlines()]
    schema = json.loads(SCHEMA.read_text())
    for record in records:
        jsonschema.validate(record, schema)
    made = [record for record in records if record["record"] == "case"]
    assert {record["params"]["family"] for record in made} == FAMILIES
    assert {record["status"] for record in made} <= {"ok", "unsupported"}
    failed = {r["case"] for r in made if r["status"] != "ok" and "/fp8/" not in r["case"]}
    assert all("/cudnn/" in name for name in failed)
    assert all(r["work"]["bytes"] > 0 for r in made)


def test_counting_runs_on_a_cpu(tmp_path: Path) -> None:
    out = tmp_path / "counted.jsonl"
    arguments = ["--device", "cpu", "--families", "norm", "--variants", "eager", "--count"]
    assert main([*arguments, "--out", str(out)]) == 0
    made = [json.loads(line) for line in out.read_text().splitlines()][1:]
    assert {record["status"] for record in made} == {"counted"}


def test_compiled_function_gives_what_the_eager_one_gives() -> None:
    made = {c.name: c for c in cases(options(families=["norm"]))}
    eager, compiled = (made[f"norm/layernorm-gelu/tiny/t16/{v}"] for v in ("eager", "compiled"))
    try:
        calls = compiled.prepare(setup())
    except Unsupported as reason:
        pytest.skip(str(reason))
    fused: Any = calls[0]()
    plain: Any = eager.prepare(setup())[0]()
    assert torch.allclose(fused.float(), plain.float(), atol=0.05)
