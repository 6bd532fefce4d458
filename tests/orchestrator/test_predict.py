"""`prof predict` on recorded runs: costs that never saw the model against what vLLM took."""

import json
import lzma
import math
import shlex
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

from nsight_prof import load_run
from nsight_prof.orchestrator.cli import main
from nsight_prof.orchestrator.predict import predicting
from nsight_prof.orchestrator.predict.changes import break_even, changes_frame, without_drafts
from nsight_prof.orchestrator.predict.plan import Plan, Settings
from nsight_prof.orchestrator.predict.predicting import held_out, plan
from nsight_prof.orchestrator.predict.run_folder import opened
from nsight_prof.orchestrator.predict.sources import Source, read_model
from nsight_prof.orchestrator.report import reporting
from nsight_prof.parsers.cells import Row, number, records
from nsight_prof.parsers.errors import UsageError
from nsight_prof.parsers.predict.corrections import traced_host
from nsight_prof.parsers.predict.costs import note
from nsight_prof.parsers.predict.measured import LATER_RANK
from nsight_prof.parsers.predict.needs import measurements
from nsight_prof.parsers.predict.operators import Kind, Operator, Step
from nsight_prof.parsers.predict.points import point_row
from nsight_prof.parsers.predict.serving import (
    SERVER_TIMES,
    Exposed,
    Host,
    SingleStep,
    Workload,
    fitted_host,
    host_of,
    narrow_host,
    point,
)
from nsight_prof.parsers.predict.validation import HELD_OUT, KERNEL, STEP, summary
from nsight_prof.parsers.run.directory import RunDir, read_manifest
from nsight_prof.parsers.serving.model_shape import model_shape
from nsight_prof.parsers.tables import empty
from tests.schemas import of_metrics

SHORT_BATCHES = (*((1, p) for p in (16, 64, 128, 200, 512, 520, 576, 700)), (2, 128), (4, 128))
"""Requests and tokens of their prompts of the batches of slices that wait for the host."""

Copied = Callable[[str], Path]


@pytest.fixture(scope="module")
def copied(
    recorded_folder: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Copied]:
    """A copy of a recorded run with its tables, which all predictions read once: none changes it.

    What a test changes it copies again.
    """
    folder = tmp_path_factory.mktemp("captures")

    def copy(name: str) -> Path:
        if not (folder / name).exists():
            shutil.copytree(recorded_folder(name), folder / name)
        return folder / name

    read = cache(opened)

    def once(path: Path) -> Source:
        return read(path) if path.is_relative_to(folder) else opened(path)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(predicting, "opened", once)
        yield copy


def first_point(run: Path) -> Row:
    return records(load_run(run).predicted_points)[0]


@pytest.fixture
def drawn(tmp_path: Path) -> Callable[..., Path]:
    """Predicts into a new folder, with pictures; the arguments are those of the command."""

    def run(*words: str) -> Path:
        out = tmp_path / f"run{len(list(tmp_path.iterdir()))}"
        assert main(["predict", *words, "--out", str(out)]) == 0
        return out

    return run


@pytest.fixture
def predicted(drawn: Callable[..., Path], no_pictures: None) -> Callable[..., Path]:
    """The same without pictures."""
    return drawn


@pytest.fixture
def no_choices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other choices have tests of their own: whoever asks for this looks at what was asked for."""
    monkeypatch.setattr(predicting, "changes_frame", lambda *_: empty("predicted_changes"))


@pytest.fixture
def tabled(
    drawn: Callable[..., Path], no_choices: None, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Path]:
    """Predicts tables alone, without choices and without a report of them."""
    for module in (predicting, reporting):
        monkeypatch.setattr(module, "make_report", lambda *_, **__: ((), ()))
    return drawn


def test_a_datasheet_predicts_a_floor(predicted: Callable[..., Path]) -> None:
    out = predicted("qwen2.5-7b", "--gpu", "h200-sxm", "--batch", "1,8", "--prompt", "512,1000")
    run = load_run(out)
    points = run.predicted_points
    assert list(points["case"]) == [f"batch/b{b}/p{p}/o128" for p in (512, 1000) for b in (1, 8)]
    assert set(points["tier"]) == {"T0"}
    assert points["tpot_p50_s_high"].isna().all()
    # 15.2 GB of weights at 4.8 TB/s, without the table of embeddings, of which one row is read.
    assert 2.9e-3 < points["tpot_p50_s"].iloc[0] < 3.2e-3
    assert set(run.predicted_operators["bound_by"]) == {"dram", "tensor"}
    report = (out / "report" / "report.md").read_text()
    assert "128 output tokens · how sure: low (tier T0: the roofline of a datasheet" in report
    assert "in brackets 90 % intervals" not in report
    assert "512 to 1,000 prompt" in report
    assert "then one every at least 3.0 ms" in report  # a datasheet bounds one end only
    assert "Most to gain in decode: half-width weights" in report
    # What follows a table without an empty line is one more row of it.
    assert "|\n<a id=" not in report
    assert (out / "report" / "report.html").is_file()
    before = report
    assert main(["report", str(out)]) == 0
    assert (out / "report" / "report.md").read_text() == before


@pytest.mark.usefixtures("no_pictures")
def test_scripts_get_all_numbers_of_a_prediction(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["predict", "qwen2.5-7b", "--gpu", "h200-sxm", "--batch", "1,8"]
    assert main([*words, "--json", "--out", str(tmp_path / "a")]) == 0
    made = json.loads(capsys.readouterr().out)
    assert made["findings"][0].startswith("On h200-sxm, qwen2.5-7b generates at most")
    assert any("batch 8" in finding for finding in made["findings"][1:])
    assert any("gaps between kernels" in note for note in made["notes"])
    found = json.loads(Path(made["metrics"]).read_text())
    of_metrics().validate(found)
    points = records(load_run(Path(made["run"])).predicted_points)
    assert [p["tpot_p50_s"] for p in found["points"]] == [p["tpot_p50_s"] for p in points]
    assert all("tpot_p50_s_high" not in point for point in found["points"])  # nothing bounds it
    assert found["answer"] == made["findings"]
    assert found["errors"] == []
    assert main([*words, "--quiet", "--out", str(tmp_path / "b")]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'b'}\n"


@pytest.mark.usefixtures("no_choices")
def test_pictures_show_loads_their_ends_and_what_steps_are_made_of(
    drawn: Callable[..., Path],
) -> None:
    words = ("qwen2.5-7b", "--gpu", "a100-sxm-40gb", "--prompt", "512,8000", "--max-num-seqs", "64")
    batches = ",".join(map(str, range(4, 41, 4)))
    out = drawn(*words, "--batch", batches, "--rate", "2,4")
    report = (out / "report" / "report.md").read_text()
    pictures = sorted(path.stem for path in (out / "report").glob("*.svg"))
    assert pictures == [
        f"predicted-{name}"
        for name in ("decode", "kv-cache", "latency-batch", "latency-open", "pareto", "prefill")
    ]
    assert all(f"({name}.svg)" in report for name in pictures)
    point = first_point(out)
    latency = (out / "report" / "predicted-latency-batch.svg").read_text()
    assert "KV cache full (8,128 tokens)" in latency
    assert "KV cache full (640 tokens)" not in latency, "it lies beyond all loads"
    assert point["kv_tokens"] // 640 > 80
    assert "max_num_seqs 64" in latency
    # 24 points have 48 steps; the report has tables of some of them, the tables of the run all.
    assert report.count(": decode, ") == 12
    assert len(load_run(out).predicted_steps) == 48


def choices(run: Path, case: str) -> dict[tuple[str, str], Row]:
    """Return the choices of a point by what is chosen and its value."""
    rows = records(load_run(run).predicted_changes)
    return {(row["change"], row["value"]): row for row in rows if row["case"] == case}


def test_other_choices_are_predicted_or_say_why_not(
    predicted: Callable[..., Path], copied: Copied
) -> None:
    names = ("h200-llm-kernels", "h200-vllm-kernels", "h200-vllm-baseline")
    engine = [word for name in names for word in ("--on", str(copied(name)))]
    words = (*engine, "--batch", "8,128", "--price-per-hour", "3", "--host-speed", "as-measured")
    out = predicted("qwen2.5-7b", *words)
    found = choices(out, "batch/b128/p512/o128")
    asked = found["as asked", ""]
    assert asked["tpot_p50_s"] == load_run(out).predicted_points["tpot_p50_s"].iloc[1]
    b200 = found["gpu", "b200-sxm"]
    assert (b200["tier"], b200["status"]) == ("T0", "ok")
    assert math.isnan(b200["tpot_p50_s_high"])
    assert math.isnan(b200["price_per_million_output_tokens"]), "3 is the price of an H200"
    # Truth: eager decode steps of the recorded engine took up to 14.8 ms at 8 requests.
    eager = choices(out, "batch/b8/p512/o128")["graphs", "off"]
    assert eager["tpot_p50_s_high"] == pytest.approx(0.01476, rel=0.01)
    larger = found["max_batched_tokens", str(2 * 16384)]
    assert larger["tpot_p50_s"] < asked["tpot_p50_s"], "fewer steps have prompts in them"
    refused = {key for key, row in found.items() if row["status"] == "unsupported"}
    assert refused == {("tensor_parallel", "2"), ("kv_cache_dtype", "fp8")}
    fp8 = found["dtype", "fp8"]
    assert fp8["tier"] == "T1", "the recorded engine was in 16 bits"
    assert number(fp8["tpot_p50_s"]) < 0.8 * number(asked["tpot_p50_s"])
    assert all(found[key]["reason"] for key in refused)
    report = (out / "report" / "report.md").read_text()
    assert report.index("### Choices") < report.index("### Headroom")


def test_choices_are_there_for_a_model_that_does_not_fit(predicted: Callable[..., Path]) -> None:
    out = predicted("llama-3.1-70b", "--gpu", "h200-sxm", "--batch", "1")
    found = choices(out, "batch/b1/p512/o128")
    assert found["as asked", ""]["status"] == "unsupported"
    assert found["gpu", "h100-sxm"]["status"] == "unsupported"
    assert found["gpu", "b200-sxm"]["status"] == "ok"
    assert found["dtype", "fp8"]["status"] == "ok"
    assert "| GPU: b200-sxm |" in (out / "report" / "report.md").read_text()


def test_what_tensor_parallelism_would_change_is_predicted_where_collectives_are_known(
    predicted: Callable[..., Path], copied: Copied
) -> None:
    names = ("h200-llm-kernels", "h200-vllm-tensor-parallel")
    engine = [word for name in names for word in ("--on", str(copied(name)))]
    out = predicted("qwen2.5-7b", *engine, "--batch", "8")
    found = choices(out, "batch/b8/p512/o128")
    split, alone = found["tensor_parallel", "2"], found["as asked", ""]
    assert split["tensor_parallel"] == 2
    assert 0.4 < number(split["tpot_p50_s"]) / number(alone["tpot_p50_s"]) < 1


def test_runs_without_tables_predict_the_same_and_get_none(
    tabled: Callable[..., Path], copied: Copied, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    names = "h200-llm-kernels", "h200-vllm-kernels"
    for name in names:
        shutil.copytree(copied(name), tmp_path / name, ignore=shutil.ignore_patterns("tables"))
    with_tables, without = (
        load_run(tabled("qwen2.5-7b", *(w for n in names for w in ("--on", str(path(n))))))
        for path in (copied, tmp_path.joinpath)
    )
    for table in ("predicted_points", "predicted_steps", "predicted_operators"):
        assert getattr(with_tables, table).equals(getattr(without, table))
    assert not any((tmp_path / name / "tables").exists() for name in names)


def test_a_plan_says_what_the_options_say(
    tabled: Callable[..., Path], copied: Copied, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    shutil.copytree(copied("h200-llm-kernels"), tmp_path / "runs" / "llm-kernels")
    plan = tmp_path / "plan.yaml"
    plan.write_text(
        "model: qwen3-32b\non: [runs/llm-kernels]\nprompt: [64, 512]\noutput: 16\nbatch: 4\n"
        "goodput: {ttft: 500, tpot: 50}\nprice-per-hour: 3.6\n"
    )
    ours = load_run(tabled(str(plan), "--batch", "8")).predicted_points
    words = ("--on", str(tmp_path / "runs" / "llm-kernels"), "--prompt", "64,512", "--output", "16")
    more = ("--goodput", "ttft:500,tpot:50", "--price-per-hour", "3.6", "--batch", "8")
    theirs = load_run(tabled("qwen3-32b", *words, *more)).predicted_points
    assert ours.equals(theirs)
    plan.write_text("model: qwen3-32b\nbatches: 4\n")
    capsys.readouterr()
    assert main(["predict", str(plan)]) == 2
    told = capsys.readouterr().err
    assert "no options: batches" in told
    assert "concurrency" in told


@pytest.mark.usefixtures("no_pictures")
def test_what_would_narrow_the_interval_most_is_told_with_its_minutes(
    copied: Copied, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def needs(*words: str) -> dict[tuple[str, str], Row]:
        out = tmp_path / f"needs{len(list(tmp_path.iterdir()))}"
        given = [*words, "--batch", "8", "--needs", "--json", "--out", str(out)]
        assert main(["predict", "qwen2.5-7b", *given]) == 0
        made = json.loads(capsys.readouterr().out)
        rows = records(load_run(out).predicted_needs)
        assert len(made["findings"]) == max(1, len(rows))
        return {(row["measurement"], row["quantity"]): row for row in rows}

    bench = ("--on", str(copied("h200-llm-kernels")))
    now = needs(*bench)
    engine = now["vllm-kernels", "tpot"]
    assert engine["share"] == 1
    assert engine["width_after"] < engine["width"]
    assert "tensor_parallel" not in engine["command"]
    assert ("llm-kernels", "tpot") not in now, "it is there already"
    # What was told is what comes out: the interval of the step that a recorded engine gives.
    trace = ("--on", str(copied("h200-vllm-kernels")))
    after = needs(*bench, *trace)
    assert ("vllm-kernels", "tpot") not in after
    step = next(
        row
        for row in records(load_run(max(tmp_path.iterdir())).predicted_steps)
        if row["kind"] == "decode"
    )
    ends = number(step["seconds_low"]), number(step["seconds_high"])
    width = (ends[1] - ends[0]) / number(step["seconds"])
    assert engine["width_after"] == pytest.approx(width, rel=0.15)
    floor = needs("--gpu", "h200-sxm")["llm-kernels", "tpot"]
    assert math.isnan(floor["width"])
    assert math.isnan(floor["width_after"])
    assert floor["share"] == 1


def test_measurements_of_a_model_in_fp8_have_it_in_fp8(tabled: Callable[..., Path]) -> None:
    """Oracle: `prof run` reads the command, and gives the engine these arguments."""
    words = ("--dtype", "fp8", "--kv-cache-dtype", "fp8", "--gpu", "h200-sxm", "--concurrency", "2")
    rows = records(load_run(tabled("qwen2.5-7b", *words)).predicted_needs)
    commands = {row["measurement"]: shlex.split(row["command"]) for row in rows}
    asked = {"quantization": "fp8", "kv_cache_dtype": "fp8"}
    for name in ("layer-slice", "vllm-kernels"):
        value = commands[name][-1].removeprefix("target.args.engine_args=")
        assert json.loads(yaml.safe_load(value)) == asked
    server = commands["vllm-serve"][-1]
    assert server == "target.args.server_args=--quantization fp8 --kv-cache-dtype fp8"
    assert "quantization" not in " ".join(commands["predict-ops"])
    products = [found.measures(Operator("qkv_proj", Kind.PRODUCT, 1, 8, dtype=dtype))
                for found in measurements() if found.recipe == "predict-ops"
                for dtype in ("bf16", "fp8")]  # fmt: skip
    assert products == [True, False]


def test_minutes_of_measurements_are_those_of_recorded_runs(root: Path) -> None:
    for found in measurements():
        assert (root / "recipes" / f"{found.recipe}.yaml").is_file()
        steps = read_manifest(RunDir(root / "captures" / found.recorded)).steps
        took = [
            datetime.fromisoformat(step.finished) - datetime.fromisoformat(step.started)
            for step in steps
            if step.name != "report"
        ]
        assert found.seconds == sum(one.total_seconds() for one in took)


@pytest.mark.usefixtures("no_choices")
def test_a_model_that_fits_no_gpu_is_said_not_to(
    predicted: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = {"model_type": "llama", "hidden_size": 8192, "intermediate_size": 28672,
              "num_attention_heads": 64, "num_key_value_heads": 8, "num_hidden_layers": 80,
              "vocab_size": 128256, "torch_dtype": "bfloat16"}  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    predicted(str(tmp_path / "config.json"), "--gpu", "h100-sxm", "--batch", "1")
    out = capsys.readouterr().out
    # 70.6 billion parameters of two bytes; 80 GiB, of which vLLM takes 90 %.
    assert "its weights take 141 GB of each GPU, and the engine may take 77 GB (90 % of" in out
    assert "Most to gain" not in out


def test_what_was_not_asked_for_is_said_to_be_assumed(
    tabled: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tabled("qwen2.5-7b", "--gpu", "h200-sxm")
    notes = capsys.readouterr().err
    assert "weights in bfloat16, a KV cache in bfloat16, 90 % of the GPU's memory" in notes
    assert "assumed: batch 1, 8, 32, 128" in notes
    assert "assumed: prompts of 512 and answers of 128 tokens" in notes
    asked = tmp_path / "asked.yaml"
    asked.write_text("model: qwen2.5-7b\ngpu: h200-sxm\nbatch: 1\nprompt: 512\noutput: 128\n")
    tabled(str(asked))
    notes = capsys.readouterr().err
    assert "assumed: batch" not in notes
    assert "assumed: prompts" not in notes


def test_requests_beyond_the_limit_of_the_engine_wait(
    tabled: Callable[..., Path], copied: Copied, capsys: pytest.CaptureFixture[str]
) -> None:
    engine = ("--on", str(copied("h200-llm-kernels")), "--on", str(copied("h200-vllm-kernels")))
    words = ("qwen2.5-7b", *engine, "--batch", "128", "--output", "8")
    as_recorded = first_point(tabled(*words))
    assert "runs at most 64 at a time" in capsys.readouterr().err
    wider = first_point(tabled(*words, "--max-num-seqs", "128"))
    assert "at a time" not in capsys.readouterr().err
    assert wider["output_tokens_per_s"] > as_recorded["output_tokens_per_s"]
    tabled("qwen3-8b", *engine, "--batch", "128", "--output", "8")
    assert "at a time" not in capsys.readouterr().err, "another model's engine had that limit"


def test_kernels_of_other_models_predict_a_recorded_step(
    tabled: Callable[..., Path], copied: Copied
) -> None:
    """Truth: decode steps of vLLM at batch 8 (captures/h200-vllm-kernels)."""
    bench, engine = copied("h200-llm-kernels"), copied("h200-vllm-kernels")
    words = ("qwen2.5-7b", "--batch", "8", "--prompt", "1024", "--output", "32", "--on", str(bench))
    alone = first_point(tabled(*words))
    both = first_point(tabled(*words, "--on", str(engine)))
    measured = next(
        row
        for row in records(load_run(engine).serving_points)
        if (row["source"], row["traced"], row["batch"]) == ("untraced", False, 8)
    )
    tpot = measured["tpot_p50_s"]
    assert alone["tpot_p50_s"] == pytest.approx(tpot, rel=0.2)
    assert alone["tpot_p50_s_low"] < tpot < alone["tpot_p50_s_high"]
    assert both["tier"] == "T3"
    assert both["tpot_p50_s"] == pytest.approx(tpot, rel=0.03)
    assert both["ttft_p50_s"] == pytest.approx(measured["ttft_p50_s"], rel=0.05)


def test_measured_products_predict_a_model_in_fp8(
    tabled: Callable[..., Path], copied: Copied, capsys: pytest.CaptureFixture[str]
) -> None:
    """Oracle: products of this very model were measured in both types."""
    words = ("llama-3.1-8b", "--on", str(copied("h200-llm-kernels")), "--batch", "16")
    wide, narrow = (load_run(tabled(*words, *more)) for more in ((), ("--dtype", "fp8")))
    assert "lower bound takes the quantization" in capsys.readouterr().err
    before, after = (
        run.predicted_operators.query("kind == 'decode'").set_index("operator")
        for run in (wide, narrow)
    )
    assert after.loc["qkv_proj", "tier"] == "T2"
    assert after.loc["qkv_proj", "seconds"] == pytest.approx(32 * 8.77e-6, rel=0.01)
    assert after.loc["quantize_down_proj", "seconds_low"] == 0
    assert after["seconds"]["lm_head"] == before["seconds"]["lm_head"]
    points = [records(run.predicted_points)[0] for run in (wide, narrow)]
    assert points[1]["tpot_p50_s"] < points[0]["tpot_p50_s"]
    assert points[1]["kv_tokens"] > points[0]["kv_tokens"]


@pytest.mark.usefixtures("no_choices")
def test_two_predictions_are_compared(
    predicted: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    ours = predicted("qwen2.5-7b", "--gpu", "h200-sxm", "--batch", "8")
    theirs = predicted("llama-3.1-8b", "--gpu", "a100-sxm-80gb", "--batch", "8")
    capsys.readouterr()
    assert main(["compare", str(ours), str(theirs), "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [point["case"] for point in found["view"]["points"]] == ["batch/b8/p512/o128"]


def test_a_point_that_needs_more_memory_than_there_is_has_no_numbers(
    tabled: Callable[..., Path],
) -> None:
    words = ("qwen2.5-7b", "--gpu", "a100-sxm-40gb", "--prompt")
    point = first_point(tabled(*words, "1000000", "--batch", "1"))
    assert point["status"] == "unsupported"
    assert "KV cache" in point["reason"]
    assert math.isnan(point["tpot_p50_s"])
    waits = first_point(tabled(*words, "100000", "--batch", "8"))
    assert waits["status"] == "ok"
    assert "requests wait" in waits["reason"]
    alone = first_point(tabled(*words, "100000", "--batch", "1"))
    assert waits["ttft_p99_s"] > 8 * 0.9 * alone["ttft_p50_s"]


def test_loads_of_a_rate_or_a_file_have_goodput_and_a_price(
    tabled: Callable[..., Path], tmp_path: Path
) -> None:
    file = tmp_path / "day.jsonl"
    file.write_text('{"arrival_s": 0, "prompt_tokens": 900, "output_tokens": 20}\n' * 5)
    out = tabled("qwen2.5-7b", "--gpu", "h200-sxm", "--rate", "2,4", "--workload", str(file),
                    "--goodput", "ttft:500,tpot:50", "--price-per-hour", "3.6")  # fmt: skip
    points = load_run(out).predicted_points.set_index("case")
    assert list(points.index) == ["trace/day", "open/r2/p512/o128", "open/r4/p512/o128"]
    assert points["requests"].tolist() == [5, 200, 200]
    assert points["request_rate"].tolist()[1:] == [2.0, 4.0]
    assert points["goodput_requests_per_s"].equals(points["requests_per_s"])
    prices = points["price_per_million_output_tokens"] * points["output_tokens_per_s"] / 1e6
    assert prices.tolist() == pytest.approx([3.6 / 3600] * 3)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["qwen2.5-7b"], "neither a run nor a GPU"),
        (["qwen2.5-7b", "--gpu", "h900"], "h900"),
        (["qwen2.5-7b", "--gpu", "h200-sxm", "--tp", "2"], "collectives"),
        (["qwen2.5-7b", "--gpu", "h200-sxm", "--tp", "3"], "cannot be split"),
        (["no-such-model", "--gpu", "h200-sxm"], "no-such-model"),
        (["model_type: deepseek_v3", "--gpu", "h200-sxm"], "deepseek_v3"),
        (["a: [", "--gpu", "h200-sxm"], "no configuration"),
        (["qwen2.5-7b", "--gpu", "h200-sxm", "--batch", "0"], "below 1"),
        (["qwen2.5-7b", "--gpu", "h200-sxm", "--batch", "x"], "whole numbers"),
    ],
)
def test_what_is_not_known_is_refused(
    words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert main(["predict", *words, "--out", str(out)]) == 2
    assert said in capsys.readouterr().err
    assert not out.exists()


def test_kernels_of_other_models_say_nothing_of_latent_attention(
    copied: Copied, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["deepseek-v2-lite", "--on", str(copied("h200-llm-kernels"))]
    assert main(["predict", *words, "--out", str(tmp_path / "out")]) == 2
    assert "latent attention" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("no_pictures")
def test_collectives_of_two_gpus_say_nothing_of_four(
    copied: Copied, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [copied(name) for name in ("h200-llm-kernels", "h200-vllm-tensor-parallel")]
    words = [word for run in runs for word in ("--on", str(run))]
    words += ["--batch", "8", "--out", str(tmp_path / "out")]
    assert main(["predict", "qwen2.5-7b", "--tp", "4", *words]) == 2
    assert "on as many GPUs" in capsys.readouterr().err
    assert main(["predict", "qwen2.5-7b", "--tp", "2", *words]) == 0


def test_what_is_unusual_about_a_request_is_noted(
    tabled: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("qwen2.5-7b", "--gpu", "h200-sxm", "--output", "2", "--prompt")
    tabled(*words, "140000", "--batch", "1")
    assert "requests of 140,002 tokens are longer" in capsys.readouterr().err
    tabled(*words, "8", "--concurrency", "1100", "--rate", "3")
    notes = capsys.readouterr().err
    assert "each client of a closed loop sends 4 requests" in notes
    assert "of 1,100 requests some wait" in notes
    assert "requests of an open loop come at random for" in notes


@pytest.mark.parametrize(
    ("language", "told"), [("ko", "가정: 스텝당 최대 8,192"), ("zh", "假定：每步至多 8,192")]
)
@pytest.mark.usefixtures("no_choices")
def test_notes_are_in_the_language_of_the_page(
    predicted: Callable[..., Path], language: str, told: str
) -> None:
    run = predicted("qwen2.5-7b", "--gpu", "h200-sxm", "--batch", "1")
    assert main(["report", str(run), "--language", language]) == 0
    page = (run / "report" / f"report.{language}.md").read_text("utf-8")
    assert told in page
    assert "assumed:" not in page


def test_a_model_is_a_file_a_folder_lines_or_a_bundled_name(
    tabled: Callable[..., Path], root: Path
) -> None:
    folder = root / "targets/serving/configs/qwen2.5-0.5b"
    config = json.loads((folder / "config.json").read_text())
    lines = "\n".join(f"{key}: {json.dumps(value)}" for key, value in config.items())
    times = [
        first_point(tabled(given, "--gpu", "h200-sxm", "--batch", "2"))["tpot_p50_s"]
        for given in ("qwen2.5-0.5b", str(folder), str(folder / "config.json"), lines)
    ]
    assert len(set(times)) == 1


def test_a_hub_name_is_read_from_the_local_cache(
    tabled: Callable[..., Path], root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    words = ["predict", "Qwen/Qwen2.5-0.5B", "--gpu", "h200-sxm", "--out", str(tmp_path / "out")]
    assert main(words) == 2
    told = capsys.readouterr().err
    assert "not in the cache" in told
    assert "huggingface-cli download Qwen/Qwen2.5-0.5B config.json" in told
    assert "the bundled qwen2.5-0.5b" in told
    folder = tmp_path / "hf" / "hub" / "models--Qwen--Qwen2.5-0.5B"
    config = (root / "targets/serving/configs/qwen2.5-0.5b/config.json").read_text()
    for revision, text in (("aaa", "{}"), ("bbb", config)):
        (folder / "snapshots" / revision).mkdir(parents=True)
        (folder / "snapshots" / revision / "config.json").write_text(text)
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text("bbb")
    point = first_point(tabled("Qwen/Qwen2.5-0.5B", "--gpu", "h200-sxm", "--batch", "2"))
    assert point["model"] == "Qwen/Qwen2.5-0.5B"
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hf" / "hub"))
    assert main(words) == 0


def test_the_host_is_that_of_the_runs_but_for_prompts_of_machines_with_the_gpu(
    copied: Copied,
) -> None:
    sources = [copied(name) for name in ("h200-llm-kernels", "prediction/slice-llama-3.1-8b")]
    hosts = [
        plan("llama-3.1-8b", sources, Settings(gpu=gpu)).predictor().host
        for gpu in ("", "h100-sxm")
    ]
    assert hosts[0].overhead_s > 0
    for name in ("overhead_s", "decode_s", "each_s", "lead_s", "frontend_s", "token_s"):
        assert getattr(hosts[0], name) == pytest.approx(getattr(hosts[1], name), nan_ok=True), name
    assert hosts[1].others_graph_s < hosts[0].others_graph_s, "beside an H100 cores are faster"


@pytest.mark.every_run
def test_prompts_of_experts_are_issued_in_a_part_of_what_the_trace_says(copied: Copied) -> None:
    asked = plan("qwen3-30b-a3b", [copied("prediction/slice-qwen3-30b-a3b-h100")], Settings())
    host = asked.predictor().host
    assert note("traced-hosts") in asked.notes
    beyond, within = traced_host() or (math.nan, math.nan)
    assert host.of_batches().issue_s == pytest.approx(beyond * host.issue_s)
    assert host.of_batches().issue_graph_s == pytest.approx(within * host.issue_graph_s)


@pytest.mark.usefixtures("no_pictures")
@pytest.mark.every_run
def test_a_few_layers_predict_the_whole_model(
    copied: Copied, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Oracle: the whole model, served on another machine after its prediction was written down."""
    sources = ("h200-llm-kernels", "prediction/slice-llama-3.1-8b")
    words = [word for name in sources for word in ("--on", str(copied(name)))]
    truth, out = copied("prediction/baseline-llama-3.1-8b"), tmp_path / "out"
    rules = ("tpot_mape>3%", "tpot_p90>5%", "throughput_mape>3%")
    words += [word for rule in rules for word in ("--fail-on", rule)]
    assert main(["predict", "--validate", str(truth), *words, "--out", str(out)]) == 0
    errors = load_run(out).prediction_errors
    assert set(errors["tier"]) == {"T3"}
    assert len(errors) == 2 * 3 * 12


def test_kernels_and_steps_of_all_layers_are_predicted_from_four(copied: Copied) -> None:
    """Oracle: all 32 layers of Llama-3.1-8B under nsys, on another board than its slice."""
    truth = opened(copied("prediction/whole-llama-3.1-8b"))
    sources = ("h200-llm-kernels", "h200-gemm-staircase", "prediction/slice-llama-3.1-8b")
    planned = held_out(truth, tuple(opened(copied(name)) for name in sources))
    errors = pd.DataFrame(list(predicting.errors(planned, truth, HELD_OUT)))
    found = summary(errors[errors["scope"].isin((KERNEL, STEP))], ["scope"]).set_index("scope")
    assert float(found["mape"][KERNEL]) < 0.03
    assert float(found["p90"][KERNEL]) < 0.08
    assert float(found["mape"][STEP]) < 0.03
    assert float(found["p90"][STEP]) < 0.05


def test_steps_after_prompts_beyond_the_power_limit_are_slower_than_their_last_ones(
    copied: Copied,
) -> None:
    for name in ("whole-llama-3.1-8b", "whole-qwen3-8b"):
        trace = opened(copied(f"prediction/{name}")).trace
        assert trace is not None
        limited = [step for step in trace.steps if step.limited]
        assert {step.kind for step in limited} == {"decode"}
        assert {(1, 8004), (1, 4004)} <= {(s.step.decode, round(s.step.context)) for s in limited}
        assert not [step for step in limited if step.step.decode * step.step.context < 4000]
        slower = [sum(step.seconds.values()) / sum(step.recovered.values()) for step in limited]
        assert 1.0 < np.median(slower) < 1.08


@pytest.mark.usefixtures("no_pictures")
@pytest.mark.every_run
def test_the_event_loop_of_a_server_is_known_from_one_that_served_another_model(
    copied: Copied, tmp_path: Path
) -> None:
    """Oracle: loads of a server that were recorded after these predictions were written down."""
    engine = ("h200-vllm-kernels", "h200-vllm-baseline", "h200-vllm-serve")
    sources = ("h200-llm-kernels", "prediction/slice-llama-3.1-8b", *engine)
    words = [word for name in sources for word in ("--on", str(copied(name)))]
    truth, out = copied("prediction/serve-llama-3.1-8b"), tmp_path / "out"
    assert main(["predict", "--validate", str(truth), *words, "--out", str(out)]) == 0
    errors = load_run(out).prediction_errors
    closed = errors[errors["case"].str.startswith("closed") & errors["sample"].eq("held out")]
    off = closed.assign(off=closed["error"].abs()).groupby("name")["off"].mean()
    assert off["ttft"] < 0.1
    assert max(off["tpot"], off["throughput"]) < 0.05
    assert (
        "event loop of the server is that of h200-vllm-serve"
        in (out / "report" / "report.md").read_text()
    )


@pytest.mark.every_run
def test_a_server_that_no_run_tells_has_the_event_loop_of_others(copied: Copied) -> None:
    """Oracle: the closed loops of a server, which is no source and left out of the median."""
    names = "slice-mistral-7b-v0.3", "serve-mistral-7b-v0.3"
    slice_, truth = (opened(copied(f"prediction/{name}")) for name in names)
    planned = held_out(truth, (slice_,))
    now = planned.predictor()
    nothing = now.host.scaled(dict.fromkeys(SERVER_TIMES, math.nan))
    loads = [(load, row) for load, row in truth.points() if 0 < load.concurrency <= 32]
    off = [
        np.mean([abs(point(of, load)["ttft_p50_s"] / row["ttft_p50_s"] - 1) for load, row in loads])
        for of in (now, replace(now, host=nothing))
    ]
    assert off[0] < 0.09 < 0.12 < off[1]
    assert planned.server is None


@pytest.mark.every_run
def test_steps_of_many_requests_take_the_host_longer(copied: Copied) -> None:
    """Oracle: steps of 12 layers that another process served, predicted from those of 4."""
    source = opened(copied("prediction/slice-qwen3-8b-w4a16-h100"))
    assert source.shape is not None
    planned = Plan(source.model, source.shape, (source,), Settings())
    points = {layers: (engine, of) for (layers, engine, _), of in
              planned.single_steps(planned.engine).items()}  # fmt: skip
    few, many = (planned.as_measured(n, points[n][0], sliced=True) for n in (4, 12))
    known = fitted_host(few, points[4][1])
    assert 15e-6 < known.each_s < 50e-6
    off = defaultdict(list)
    for each_s in (known.each_s, 0.0):
        host = host_of(many.host, {4: replace(known, each_s=each_s)}, 12)
        for load, _, measured in points[12][1]:
            if load.batch > 8:
                step = replace(many, host=host).seconds(load.steps()[1]).value
                off[each_s].append(abs(step / measured - 1))
    assert np.mean(off[known.each_s]) < 0.05 < 0.3 < np.mean(off[0.0])


@pytest.mark.usefixtures("no_pictures")
def test_a_recorded_engine_is_held_against_predictions_that_never_saw_it(
    copied: Copied, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bench, engine = copied("h200-llm-kernels"), copied("h200-vllm-kernels")
    out = tmp_path / "out"
    words = ["predict", "--validate", str(engine), "--on", str(bench), "--on", str(engine)]
    assert main([*words, "--out", str(out), "--fail-on", "step_mape>50%"]) == 0
    errors = load_run(out).prediction_errors
    # The run itself is a source in sample alone, and its own steps are then all but exact.
    steps = {
        (row["sample"], row["name"]): abs(row["error"])
        for row in records(errors[errors["scope"].eq("step")])
    }
    assert steps["in sample", "decode step"] < 0.01 < steps["held out", "decode step"] < 0.25
    tiers = {row["sample"]: row["tier"] for row in records(errors)}
    assert tiers == {"held out": "T1", "in sample": "T3"}
    products = errors[errors["group"].eq("product") & errors["sample"].eq("held out")]
    assert set(products["tier"]) == {"T1"}, "products of the model are in no fit"
    report = (out / "report" / "report.md").read_text()
    assert "Held out" in report
    capsys.readouterr()
    assert main([*words, "--out", str(tmp_path / "b"), "--fail-on", "step_mape>1%"]) == 1
    assert "broken: step_mape>1%" in capsys.readouterr().err
    metrics = json.loads((out / "report" / "metrics.json").read_text())
    of_metrics().validate(metrics)
    assert len(metrics["errors"]) == len(errors)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--validate", "CAPTURE", "--fail-on", "speed>3"], "no rule"),
        (["qwen2.5-7b", "--validate", "CAPTURE"], "leave out qwen2.5-7b"),
        ([], "no model was given"),
        (["qwen2.5-7b", "--fail-on", "tpot_mape>1%"], "judges a validation"),
        (["--validate", "BENCH"], "no engine"),
        (["--validate", "CAPTURE"], "nothing but"),
        (["--validate", "CAPTURE", "--on", "CAPTURE"], "nothing but"),
        (["--validate", "CAPTURE", "--on", "BENCH", "--gpu", "h200-sxm"], "leave out --gpu"),
    ],
)
def test_a_validation_that_makes_no_sense_is_refused(
    words: list[str],
    said: str,
    copied: Copied,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    paths = {"CAPTURE": "h200-vllm-kernels", "BENCH": "h200-llm-kernels"}
    given = [str(copied(paths[word])) if word in paths else word for word in words]
    assert main(["predict", *given, "--out", str(tmp_path / "out")]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.every_run
def test_a_slice_is_judged_by_its_own_graphs(copied: Copied) -> None:
    names = ("prediction/baseline-qwen3-4b", "prediction/slice-qwen3-4b")
    served, sliced = (opened(copied(name)) for name in names)
    planned = held_out(served, (sliced,))
    engines = {engine.captured[-1] for _, engine, _ in planned.single_steps(planned.engine)}
    assert (planned.engine.captured[-1], engines) == (256, {512})


def test_an_unknown_model_names_what_measures_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", "{model_type: falcon}", "--gpu", "h200-sxm"]) == 2
    assert "prof run vllm-baseline" in capsys.readouterr().err


def test_a_slice_alone_predicts_a_loop_of_clients(
    tabled: Callable[..., Path], copied: Copied
) -> None:
    """It was recorded with one batch twice; without a benchmark its own sizes bound it."""
    sliced = copied("prediction/slice-qwen3-4b")
    point = first_point(tabled("qwen3-4b", "--on", str(sliced), "--concurrency", "4"))
    assert point["ttft_p50_s_low"] < point["ttft_p50_s"] < point["ttft_p50_s_high"]
    trace = Source(sliced).trace
    assert trace is not None
    assert max(item.step.context for item in trace.steps) > 4000


@pytest.mark.usefixtures("no_choices")
def test_a_slice_of_one_rank_and_what_ranks_exchange_predict_two_gpus(
    predicted: Callable[..., Path], copied: Copied, tmp_path: Path
) -> None:
    sliced, exchanged = (
        copied(f"prediction/{name}") for name in ("slice-qwen3-14b-tp2", "h100-collectives-x2")
    )
    words = ("qwen3-14b", "--tp", "2", "--batch", "8", "--on", str(sliced))
    out = predicted(*words, "--on", str(exchanged))
    assert "\n**On 2 x h100-sxm, qwen3-14b generates" in (out / "report" / "report.md").read_text()
    found = load_run(out).predicted_operators
    decode = found[found["kind"].eq("decode")].set_index("operator")
    with lzma.open(exchanged / "steps/1-bench/result-1-1.jsonl.xz") as lines:
        cases = {case["case"]: case for case in map(json.loads, lines) if "case" in case}
    for operator, calls, waits in (("all_reduce", 2 * 40 + 1, LATER_RANK), ("all_gather", 1, 1.0)):
        row = decode.loc[operator]
        assert (row["calls"], row["tier"], row["bound_by"]) == (calls, "T2", "link")
        assert np.isnan(row["roofline_s"])  # no datasheet here says how fast GPUs exchange
        measured = cases[f"collective/{operator}/t8"]["time"]["median_s"]
        assert row["seconds"] == pytest.approx(calls * measured * waits)
    assert decode.loc["qkv_proj", "tier"] == "T3"
    assert main(["predict", *words, "--out", str(tmp_path / "refused")]) == 2


def test_operators_that_were_measured_again_count_as_measured_last(
    tabled: Callable[..., Path], copied: Copied
) -> None:
    """Oracle: the records of the second run, read here."""
    first, again = (
        copied(f"prediction/ops-llama-3.1-8b-{name}") for name in ("h100", "small-h100")
    )
    with lzma.open(again / "steps/1-bench/result-1-1.jsonl.xz") as lines:
        cases = {case["case"]: case for case in map(json.loads, lines) if "case" in case}
    words = ("--on", str(first), "--on", str(again), "--batch", "16")
    found = load_run(tabled("llama-3.1-8b", *words)).predicted_operators
    decode = found[found["kind"].eq("decode")].set_index("operator")
    measured = cases["small/rotary/t16"]["time"]["median_s"]
    assert decode.loc["rotary", "seconds"] == pytest.approx(32 * measured)
    assert decode.loc["qkv_proj", "tier"] == "T2"


def test_what_the_profiler_takes_the_host_is_known_from_batches_before_it(copied: Copied) -> None:
    """Oracle: the records of the run, read here: times to first token of both, by batch."""
    run = copied("prediction/slice-qwen3-8b-fp8")
    times: dict[tuple[str, bool], list[float]] = defaultdict(list)
    with lzma.open(run / "steps/1-trace/result.jsonl.xz") as lines:
        for row in map(json.loads, lines):
            if row["record"] == "request":
                seconds = row["first_token_s"] - row["arrival_s"]
                times[row["case"], row["traced"]].append(seconds)
    ratios = [
        np.median(times[case, True]) / np.median(times[case, False])
        for case, traced in times
        if traced and case in {f"prefill-decode/b{b}/p{p}/o8" for b, p in SHORT_BATCHES}
    ]
    trace = Source(run).trace
    assert trace is not None
    assert len(ratios) == len(SHORT_BATCHES)
    assert trace.profiled == pytest.approx(np.median(ratios))
    assert trace.profiled > 1.9


def test_a_slice_in_fp8_predicts_its_model_in_fp8(
    predicted: Callable[..., Path], copied: Copied
) -> None:
    words = ("--on", str(copied("prediction/slice-qwen3-8b-fp8")), "--batch", "8")
    out = predicted("qwen3-8b", "--dtype", "fp8", *words)
    report = (out / "report" / "report.md").read_text()
    assert report.startswith("# Prediction: qwen3-8b (fp8) on h100-sxm\n")
    assert "**On h100-sxm, qwen3-8b (fp8) generates " in report
    assert "of a step of batch 8." in report
    summary = (out / "report" / "stakeholder_summary.md").read_text()
    assert "| Batch 8: wait for the first word, median |" in summary
    assert "; in brackets 90 % intervals\n" in summary
    assert "Predicted for h100-sxm, not measured." in summary
    assert "quantize_" not in report.partition("What a step spends its time on")[2]
    run = load_run(out)
    found = run.predicted_operators
    quantizes = found["operator"].str.startswith("quantize_")
    assert found[quantizes]["seconds"].eq(0).all()
    assert found[~quantizes]["tier"].eq("T3").all()
    changes = run.predicted_changes.set_index("change")
    assert changes.loc["kv_cache_dtype", "status"] == "unsupported", "only a datasheet tells of it"
    assert run.predicted_points["tpot_p50_s_high"].notna().all()


def test_adapters_and_speculative_decoding_are_refused_with_a_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    adapter = tmp_path / "adapter.json"
    adapter.write_text('{"peft_type": "LORA", "r": 16}')
    assert main(["predict", str(adapter), "--gpu", "h200-sxm"]) == 2
    assert "is an adapter (LORA)" in capsys.readouterr().err
    row = {"args": '{"speculative_config": {"method": "suffix"}}', "source": "bench"}
    source = Source(tmp_path)
    source.__dict__["_every_engine"] = [row]
    with pytest.raises(UsageError, match="decoding by suffix, which predictions do not know"):
        source.check_engines()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--speculative-tokens", "3"), "go together"),
        (("--accept", "2"), "go together"),
        (("--draft", "ngram"), "go together"),
        (("--speculative-tokens", "3", "--accept", "4.5"), "gives at most 4, not 4.5"),
        (("--adapters", "2", "--adapter-modules", "lm_head"), "'lm_head' is none of"),
    ],
)
def test_what_is_drafted_and_accepted_is_never_assumed(
    words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["predict", "llama-3.1-8b", "--gpu", "h200-sxm", *words]) == 2
    assert said in capsys.readouterr().err


def test_a_head_that_no_run_has_is_refused(
    copied: Copied, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--on", str(copied("prediction/slice-qwen3-8b-fp8")), "--dtype", "fp8")
    drafts = ("--speculative-tokens", "3", "--accept", "2")
    assert main(["predict", "qwen3-8b", *words, *drafts]) == 2
    error = capsys.readouterr().err
    assert "an EAGLE head that drafts 3 tokens" in error
    assert "--set 'target.args.speculative_tokens=3' --set 'target.args.accept=2'" in error


def test_a_slice_with_a_head_says_what_drafting_takes_and_when_it_pays(
    predicted: Callable[..., Path], copied: Copied
) -> None:
    """Recorded: its whole engine took 6.3 ms per step at one request where its host was fast."""
    names = ("prediction/slice-llama-3.1-8b-eagle", "prediction/slice-llama-3.1-8b")
    slices = [word for name in names for word in ("--on", str(copied(name)))]
    drafts = ("--speculative-tokens", "3", "--accept", "2.4")
    out = predicted("llama-3.1-8b", *slices, *drafts, "--batch", "1,128")
    run = load_run(out)
    points = run.predicted_points
    assert list(points["tier"]) == ["T3", "T3"]
    assert points["decode_step_s"].iloc[0] == pytest.approx(6.3e-3, rel=0.03)
    one, many = points["break_even_accept"]
    assert 1 < one < many < 2.4, "the more requests, the more is computed to check their drafts"
    found = run.predicted_operators
    assert {"draft_decode", "draft_prefill"} <= set(found["operator"])
    alone = choices(out, "batch/b1/p512/o128")["speculative_tokens", "0"]
    assert alone["tier"] == "T3"
    assert alone["tpot_p50_s"] > points["tpot_p50_s"].iloc[0]
    report = (out / "report" / "report.md").read_text()
    assert "At batch 1 speculative decoding is faster where a step gives each request" in report


def test_drafts_of_whatever_kind_are_checked_as_those_of_a_recorded_head(copied: Copied) -> None:
    """Oracle: steps that checked three tokens of a head, from a slice that never drafted."""
    head = opened(copied("prediction/slice-llama-3.1-8b-eagle")).trace
    assert head is not None
    settings = Settings(drafted=3, accept=2.4, draft="ngram")
    predictor = plan(
        "llama-3.1-8b", [copied("prediction/slice-llama-3.1-8b")], settings
    ).predictor()
    predictor = replace(predictor, shape=predictor.shape.with_layers(head.shape.layers))
    predictor.exposed = Exposed()
    checked = [step for step in head.steps if step.kind == "decode"]
    assert {step.step.decode for step in checked} == {1, 2, 4, 8, 16, 32, 64, 128}
    for recorded in checked:
        parts = {part.operator.name: part.seconds.value
                 for part in predictor.step(recorded.step).breakdown}  # fmt: skip
        assert not any(name.startswith("draft") for name in parts)
        assert parts["attention_decode"] == pytest.approx(recorded.seconds["attention"], rel=0.06)
        # Rejecting drafts takes more than sampling, once in a step: 0.05 ms.
        measured = recorded.kernel_s - recorded.seconds["draft"] - recorded.seconds["sampling"]
        assert sum(parts.values()) - parts["sampling"] == pytest.approx(measured, rel=0.05)


def test_n_grams_cost_the_host_and_the_tokens_that_are_checked(copied: Copied) -> None:
    work = Workload(512, 128, batch=8)
    settings = Settings(workloads=(work,), drafted=3, accept=2.4, draft="ngram")
    planned = plan("qwen3-4b", [copied("prediction/slice-qwen3-4b")], settings)
    now = planned.prediction()
    before = without_drafts(planned, now)
    step = work.steps()[1]
    drafting, alone = (of.predictor.step(step) for of in (now, before))
    assert (drafting.rows, alone.rows) == (32, 8)
    assert drafting.gap_s - alone.gap_s == pytest.approx(alone.host_s)
    low, high = (drafting.seconds[end] - drafting.seconds.value for end in (1, 2))
    assert high > 0.5 * alone.host_s > 0 > low + 0.9 * alone.host_s, "its host has two speeds"
    assert 1 < break_even(now, lambda: before, work) < 2.4
    assert now.kv_tokens == pytest.approx(before.kv_tokens, rel=1e-3), "no head has a layer there"
    row = point_row(now, work)
    assert (row["tier"], row["accept"]) == ("T3", 2.4)
    assert row["tpot_p50_s"] == pytest.approx(drafting.seconds.value / 2.4, rel=0.05)
    assert "ngram" in {note.key for note in planned.notes}


def test_a_slice_that_looks_n_grams_up_tells_how_long_steps_wait(copied: Copied) -> None:
    """Oracle: the whole engine, recorded minutes later on the same machine."""
    names = "slice-llama-3.1-8b", "slice-llama-3.1-8b-ngram", "baseline-llama-3.1-8b-ngram"
    without, slice_, truth = (opened(copied(f"prediction/{name}")) for name in names)
    off = []
    for sources in ((without, slice_), (without,)):
        planned = held_out(truth, sources)
        now = planned.prediction()
        pairs = [(point_row(now, work), row) for work, row in truth.points()]
        off.append(np.mean([abs(a["tpot_p50_s"] / b["tpot_p50_s"] - 1) for a, b in pairs]))
        assert ("ngram" in {note.key for note in planned.notes}) == (len(sources) == 1)
    assert off[0] < 0.09 < 0.11 < off[1]
    assert truth.drafts == ("ngram", 3, 2.4)
    assert truth.shape == planned.shard, "n-grams have no weights"


def test_a_slice_with_other_drafts_than_asked_for_is_refused(copied: Copied) -> None:
    names = "slice-llama-3.1-8b", "slice-llama-3.1-8b-ngram"
    settings = Settings(drafted=5, accept=2.4, draft="ngram")
    planned = plan("llama-3.1-8b", [copied(f"prediction/{name}") for name in names], settings)
    with pytest.raises(UsageError, match="n-grams that draft 5 tokens, not 3") as refused:
        planned.prediction()
    assert "--set target.args.speculative_tokens=5" in str(refused.value.hint)


def test_an_engine_that_looked_n_grams_up_is_a_truth(copied: Copied) -> None:
    sources = "slice-llama-3.1-8b", "slice-llama-3.1-8b-ngram", "baseline-llama-3.1-8b-ngram"
    *others, truth = (opened(copied(f"prediction/{name}")) for name in sources)
    planned = held_out(truth, tuple(others))
    asked = planned.settings
    assert (asked.drafted, asked.accept, asked.draft) == (3, 2.4, "ngram")
    assert planned.predictor().engine.drafted == 3


def test_a_draft_model_is_its_own_slice_beside_the_steps_that_check_it(copied: Copied) -> None:
    """Oracle: the same model by itself, and its drafts checked as n-grams are."""
    runs, step = [copied("prediction/slice-qwen3-4b")], Workload(512, 128, batch=8).steps()[1]
    drafts = Settings(drafted=3, accept=2.4)
    planned, checking, alone = (
        plan("qwen3-4b", runs, settings)
        for settings in (
            replace(drafts, draft="qwen3-4b"), replace(drafts, draft="ngram"), Settings(),
        )
    )  # fmt: skip
    both, by_itself = planned.prediction().predictor, alone.prediction().predictor
    found = {part.operator.name: part for part in both.step(step).breakdown}
    passes = found.pop("draft_decode")
    checked = checking.prediction().predictor.step(step).breakdown
    assert list(found.values()) == list(checked)
    once = replace(by_itself, correction=None).on_gpu(step).value
    assert 3 * once < passes.seconds.value < 3.1 * once, "the first of them reads four tokens each"
    assert passes.tier == "T3"
    assert planned.weights == 2 * alone.weights
    assert planned.kv_bytes_per_token == 2 * alone.kv_bytes_per_token
    host = by_itself.host
    assert both.host.decode_s == pytest.approx(host.decode_s + 3 * host.in_graphs_s)
    work = Workload(512, 8, batch=8)
    with_load = replace(planned, settings=replace(planned.settings, workloads=(work,)))
    changes = changes_frame(with_load, with_load.prediction(), with_load.prediction)
    split = changes[changes["change"].eq("tensor_parallel")]["reason"].iloc[0]
    assert split == "of qwen3-4b, which drafts, nothing is known there"


@pytest.mark.parametrize(
    ("draft", "said"),
    [
        ("mtp", '{"speculative_config": {"method": "mtp", "num_speculative_tokens": 3}}'),
        ("qwen3-14b", "prof run layer-slice --set target.args.model=qwen3-14b"),
        ("llama-3.1-8b", "it cannot draft for it"),
    ],
)
def test_drafts_that_no_run_tells_of_are_refused_with_the_run_that_would(
    draft: str, said: str, copied: Copied, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("qwen3-4b", "--on", str(copied("prediction/slice-qwen3-4b")), "--draft", draft)
    assert main(["predict", *words, "--speculative-tokens", "3", "--accept", "2"]) == 2
    assert said in capsys.readouterr().err


def test_what_a_server_adds_is_what_its_own_counters_leave(copied: Copied) -> None:
    """Oracle: the records themselves."""
    run = copied("h200-vllm-serve")
    records_file = next(run.glob("steps/1-bench/result*.xz"))
    times: dict[str, list[float]] = defaultdict(list)
    inside = {}
    with lzma.open(records_file, "rt", encoding="utf-8") as lines:
        for record in map(json.loads, lines):
            if record["record"] == "request":
                times[record["case"]].append(record["first_token_s"] - record["arrival_s"])
            if record["record"] == "vllm_totals":
                inside[record["case"]] = record["queue_mean_s"] + record["prefill_mean_s"]
    outside = {
        int(case.split("/")[1][1:]): np.mean(times[case]) - inside[case]
        for case in inside
        if case.startswith("closed/")
    }
    alone, each = Source(run).around_engine()
    assert alone == pytest.approx(outside[1], rel=1e-3)
    slopes = [
        (seconds - alone) / (clients - 1) for clients, seconds in outside.items() if clients > 1
    ]
    assert each == pytest.approx(min(slopes), rel=1e-3)
    assert all(map(math.isnan, Source(copied("prediction/slice-qwen3-4b")).around_engine()))


def test_a_slice_with_adapters_tells_what_they_add(copied: Copied) -> None:
    alone, adapted = (
        Source(copied(f"prediction/slice-llama-3.1-8b{name}")).trace for name in ("", "-lora")
    )
    assert alone is not None
    assert adapted is not None
    steps = [
        next(step for step in trace.steps if (step.kind, step.step.decode) == ("decode", 8))
        for trace in (alone, adapted)
    ]
    added = steps[1].seconds["adapters"]
    assert steps[1].kernel_s - steps[0].kernel_s == pytest.approx(added, rel=0.25)
    assert steps[1].seconds["gate_up_proj"] == pytest.approx(
        steps[0].seconds["gate_up_proj"], rel=0.05
    )


def test_a_narrow_engine_with_a_busy_gpu_tells_how_long_prompts_are_issued(
    copied: Copied,
) -> None:
    names = "slice-llama-3.1-8b", "narrow-llama-3.1-8b-busy"
    runs = [copied(f"prediction/{name}") for name in names]
    narrow = opened(runs[1])
    shape = plan("llama-3.1-8b", runs, Settings()).shard
    issues = list(narrow.issues(shape, busy=True))
    within = [seconds for in_graphs, seconds in issues if in_graphs]
    beyond = [seconds for in_graphs, seconds in issues if not in_graphs]
    assert len(within) == 100  # 5 prompts of at most 512 tokens, 20 times
    assert len(beyond) == 80
    assert not any(row["experiment"] == "busy-gpu" for *_, row in narrow.host_steps(shape))
    host = plan("llama-3.1-8b", runs, Settings()).predictor().host
    assert host.graph_s == pytest.approx(np.median(within))
    assert host.eager_s == pytest.approx(np.median(beyond))
    low, high, fast, slow = host.issue_speeds
    assert low < fast < 1 < slow < high
    predictor = plan("llama-3.1-8b", runs, Settings()).predictor()
    step = Step(prefill=((16, 0),))
    assert [*predictor.issued(step)] == pytest.approx([host.graph_s] * 3)
    assert predictor.issued_at(step, 0.0).value == pytest.approx(fast * host.graph_s)
    found = point(predictor, Workload(16, 8, 1))
    at_fastest = point(replace(predictor, host_range=(low, low)), Workload(16, 8, 1))
    assert found["ttft_p50_s_low"] <= at_fastest["ttft_p50_s_low"] < found["ttft_p50_s"]


def test_a_narrow_engine_tells_what_the_host_needs_and_nothing_else(copied: Copied) -> None:
    source = opened(copied("prediction/narrow-qwen3-8b-eagle"))
    assert source.full_shape is None
    assert not list(source.points())
    shape = replace(model_shape(read_model("qwen3-8b")[1]), drafted=3)
    assert not list(source.host_steps(replace(shape, drafted=0)))  # another engine
    points = [
        (engine, SingleStep(work, number(row["ttft_p50_s"]), number(row["decode_step_s"])))
        for engine, work, row in source.host_steps(shape)
    ]
    host = narrow_host(Host(overhead_s=1e-3, issue_s=1.0), points)
    requests = source.table("requests")
    firsts = [
        requests[requests["case"].eq(f"prefill-decode/b1/p{prompt}/o24")]["ttft_s"].median()
        for prompt in (520, 1024, 2048, 8000)  # its CUDA graphs end at 512 tokens
    ]
    assert 1e-3 + host.eager_s + host.decode_s == pytest.approx(np.mean(firsts))
    assert math.isnan(host.issue_s)
    assert host.graph_s < host.eager_s
    shared = Source(source.path)
    shared.__dict__["_narrow"] = [row | {"tensor_parallel": 2} for row in source._narrow]  # noqa: SLF001
    assert not list(shared.host_steps(shape)), "one GPU does not have half of it"
    assert len(list(shared.host_steps(shape.shard(2)))) == len(points)
