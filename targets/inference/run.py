"""Runs a Hugging Face transformers model directly: text, vision-language, encoder or both.

    python inference/run.py --model qwen2.5-vl-7b --images 1 --prompt-tokens 128 --output-tokens 32
    python inference/run.py --model vit-base --batch 64
    python inference/run.py --model deepseek-ocr-2 --dataset-root datasets/pages --samples 4
    python inference/run.py --model ./my-model --override num_hidden_layers=2 --device cpu

The model comes from a folder, the hub or a bundled configuration; weights are made up where the
folder has none, and so are images, sound and text of the sizes that are asked for. It warms up,
times the batch some times, and once more between cudaProfilerStart and cudaProfilerStop.

NVTX ranges are the stages of a request, one after another: `preprocess`, `vision_encoder`,
`projector`, `prefill`, `decode` (each call of the model a `step`), `postprocess`; `encoder` of a
model that has an encoder and a decoder; `head`, what a model that does not generate does behind its
encoder. Modules of the model that are stages are found by name (--stage-modules), by hooks.

Records go to the file PROF_RESULTS (or --out), predictions and pages with boxes to
folders beside it. stdout gets one
JSON line, stderr a line a repeat. Runs by itself in any Python that has torch, transformers 5.
"""

from __future__ import annotations

import json
import os
import re
import runpy
import statistics
import sys
import time
from argparse import ArgumentTypeError, Namespace
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

if not __package__:  # run as a file
    runpy.run_path(str(Path(__file__).resolve().parents[1] / "standalone.py"))
from nsight_prof.targets.standalone import need

need("torch", "transformers", "PIL", "yaml")
import torch
from PIL import Image

from nsight_prof.targets import static_compute
from nsight_prof.targets.harness.options import Parser, image_size, positive, seconds, whole
from nsight_prof.targets.inference import visualizations
from nsight_prof.targets.inference.dataset import add_dataset_arguments, read_samples
from nsight_prof.targets.inference.inputs import IMAGES, Inputs, Request
from nsight_prof.targets.inference.model import CONFIGS, Loaded, load
from nsight_prof.targets.inference.stages import HOST, MODULES, TEXT, Stages
from nsight_prof.targets.inference.visualizations import boxes_in
from nsight_prof.targets.serving.conditions import conditions, visible_gpus
from nsight_prof.targets.serving.failures import EngineFailure, complain
from nsight_prof.targets.serving.models import WEIGHTS, bundled
from nsight_prof.targets.serving.records import Records
from nsight_prof.targets.static_compute import Count, stored

TARGET = "inference"
BEST = 5
"""Classes that the prediction of a classifier names."""


class Run:
    """Runs batches of requests and writes what it finds."""

    def __init__(self, loaded: Loaded, records: Records, args: Namespace) -> None:
        self._loaded, self._records, self._args = loaded, records, args
        self._model = loaded.module
        self._inputs = Inputs(loaded, args)
        samples = read_samples(args)
        requests = self._inputs.real(samples) * args.epochs if samples else []
        self._batches = _batches(requests or self._inputs.made_up(args.batch), args.batch)
        self._stages = Stages(args.device)
        encodes = getattr(loaded.config, "is_encoder_decoder", False)
        self.hooked = self._stages.watch(
            self._model, self._stage_modules(), "encoder" if encodes else None
        )
        # A model that is an encoder and nothing else has no module of that name inside.
        own = self._encoder_stage()
        self._first = "head" if own in self.hooked.values() else own
        if self._model.can_generate():
            self._first = "prefill"

    def measure(self) -> dict[str, Any]:
        """Warm up, time the batch, and run it once for a profiler; return what was found."""
        for _ in range(self._args.warmups):
            self._request(self._batches[0])
        timed = [self._timed() for _ in range(self._args.repeats)]
        if timed:
            self._record([seconds for seconds, _ in timed], {})
        counted = self._counted()
        self._profiler_api(torch.cuda.profiler.start)
        predictions = [said for batch in self._batches for said in self._request(batch)]
        self._profiler_api(torch.cuda.profiler.stop)
        return {
            "seconds": [seconds for seconds, _ in timed],
            "stages_s": {
                stage: statistics.median(stages.get(stage, 0.0) for _, stages in timed)
                for stage in (timed[0][1] if timed else ())
            },
            "predictions": predictions,
            "counted": counted | {"stages_s": [stages for _, stages in timed]},
        }

    def _profiler_api(self, call: Callable[[], object]) -> None:
        """Start or stop what profiles: on a CPU torch's profiler in its place, or nothing."""
        if self._args.device == "cuda":
            torch.cuda.synchronize()
            call()
            return
        with suppress(AssertionError, RuntimeError):  # there is no CUDA to tell
            call()

    def _counted(self) -> dict[str, Any]:
        """Run all batches once more, and count their FLOPs and the weights that they read."""
        checkpoint = stored(self._loaded.found.config or {}) if self._loaded.found.dummy else None
        with Count(self._model, checkpoint) as self._stages.counter:
            for batch in self._batches:
                self._request(batch)
        counter, self._stages.counter = self._stages.counter, None
        return counter.result({"model": self._loaded.found.name, "device": self._args.device})

    def failed(self, failure: EngineFailure) -> None:
        """Write the record of a batch that could not be run."""
        self._record([], {"status": failure.status, "reason": failure.message})

    def _timed(self) -> tuple[float, dict[str, float]]:
        """Run all batches once; return the seconds they took, and those of their stages."""
        stages: dict[str, float] = defaultdict(float)
        begin = time.perf_counter()
        for batch in self._batches:
            self._request(batch)
            for stage, took in self._stages.seconds().items():
                stages[stage] += took
        took = time.perf_counter() - begin
        print(f"{self._args.model}: {took:.4f} s", file=sys.stderr)
        return took, stages

    def _request(self, requests: Sequence[Request]) -> list[dict[str, Any]]:
        """Run a batch once; return its predictions."""
        with torch.inference_mode(), self._stages.request():
            self._stages.enter(HOST)
            inputs = self._inputs.batch(requests)
            self._stages.enter(self._first)
            if self._model.can_generate():
                made = self._model.generate(**inputs, **self._generation())
            else:
                made = self._model(**inputs)
            self._stages.enter("postprocess")
            return self._predictions(requests, made, inputs)

    def _generation(self) -> dict[str, Any]:
        count = self._args.output_tokens
        least = {"min_new_tokens": count} if self._loaded.found.dummy else {}
        return {"max_new_tokens": count, "do_sample": False, "pad_token_id": 0, **least}

    def _predictions(
        self, requests: Sequence[Request], made: Any, inputs: dict[str, Any]
    ) -> list[dict[str, Any]]:
        names = [{"request": request.name} for request in requests]
        if isinstance(made, torch.Tensor):
            prompt = 0 if self._loaded.config.is_encoder_decoder else inputs["input_ids"].shape[1]
            tokens = made[:, prompt:].tolist()
            return [
                n | self._text(t) | self._page(request, t)
                for n, t, request in zip(names, tokens, requests, strict=True)
            ]
        logits = getattr(made, "logits", None)
        if logits is None or logits.ndim != 2:
            return names
        best = logits.float().softmax(-1).topk(min(BEST, logits.shape[-1]))
        labels = self._loaded.config.id2label
        return [
            n | {"classes": {str(labels.get(i, i)): p for i, p in zip(at, of, strict=True)}}
            for n, at, of in zip(names, best.indices.tolist(), best.values.tolist(), strict=True)
        ]

    def _text(self, tokens: list[int]) -> dict[str, Any]:
        tokenizer = self._inputs.tokenizer
        text = None if tokenizer is None else tokenizer.decode(tokens, skip_special_tokens=True)
        return {"tokens": tokens, "text": text}

    def _page(self, request: Request, tokens: list[int]) -> dict[str, Any]:
        """Return where the page is, with the boxes that are given and that the answer names."""
        page = next((image for image in request.images if isinstance(image, Path)), None)
        if page is None:
            return {}
        tokenizer = self._inputs.tokenizer
        said = "" if tokenizer is None else tokenizer.decode(tokens)  # marks of boxes are special
        with Image.open(page) as opened:
            named = boxes_in(said, opened.size)
        return {"page": page, "given": request.boxes, "named": named}

    def _stage_modules(self) -> dict[str, str]:
        """Return stage -> regular expression of its modules; the encoder alone is its model's."""
        if self._args.stage_modules or self._model.can_generate():
            return dict(self._args.stage_modules) or dict(MODULES)
        stage, own = self._encoder_stage(), re.escape(self._model.base_model_prefix)
        known = {**MODULES, "encoder": TEXT}
        return {**known, stage: f"{known[stage]}|{own}"}

    def _encoder_stage(self) -> str:
        """Return what the encoder of a model that does not generate is called."""
        return "vision_encoder" if self._model.main_input_name in IMAGES else "encoder"

    def _record(self, samples: Sequence[float], more: dict[str, Any]) -> None:
        args = self._args
        params = {
            "experiment": "inference",
            "model": self._loaded.found.name,
            "batch": args.batch,
            "requests": sum(map(len, self._batches)),
            "images": args.images,
            "prompt_tokens": self._inputs.prompt_tokens,
            "output_tokens": args.output_tokens,
            "warmups": args.warmups,
            "repeats": len(samples),
        }
        dtype = str(self._model.dtype).removeprefix("torch.")
        case = f"inference/{self._loaded.found.name}/b{args.batch}"
        self._records.case(case, params, samples, operation="infer", dtype=dtype, **more)


def _batches(requests: Sequence[Request], size: int) -> list[Sequence[Request]]:
    return [requests[at : at + size] for at in range(0, len(requests), size)]


def write_predictions(out: Path, predictions: Sequence[dict[str, Any]]) -> None:
    """Write a JSON file for each request, and its page with boxes where there are any."""
    folder = out / "predictions"
    folder.mkdir(parents=True, exist_ok=True)
    for prediction in predictions:
        name = prediction["request"]
        page, given, named = (prediction.pop(key, None) for key in ("page", "given", "named"))
        if given or named:
            visualizations.write(out / "visualizations" / f"{name}.png", page, given, named)
            prediction["boxes"] = [asdict(box) for box in named]
        path = folder / f"{name}.json"
        path.write_text(json.dumps(prediction, ensure_ascii=False, indent=1) + "\n", "utf-8")


def parse_arguments(argv: Sequence[str]) -> Namespace:
    """Return the command line's values; exit code 2 with a reason where it is wrong."""
    parser = Parser(description=(__doc__ or "").split("\n\n")[0], allow_abbrev=False)
    add = parser.add_argument
    names = ", ".join(bundled(CONFIGS))
    add(
        "--model", default="qwen2.5-vl-7b", help=f"bundled ({names}), a local folder, or a hub name"
    )
    add(
        "--weights",
        choices=WEIGHTS,
        default="auto",
        help="dummy makes them up; auto does where a folder has none",
    )
    add(
        "--override",
        nargs="+",
        default=[],
        metavar="KEY=VALUE",
        help="of config.json, dotted: text_config.num_hidden_layers=4",
    )
    add("--trust-remote-code", action="store_true", help="run code that the model brings along")
    add("--dtype", default="auto", help="bfloat16, float16, float32; auto: the configuration's")
    add(
        "--attention",
        default="auto",
        help="sdpa, eager, flash_attention_2, …; auto: transformers' choice",
    )
    add("--device", choices=("cuda", "cpu"), default="cuda")
    add("--batch", type=positive, default=1, metavar="N", help="requests (1)")
    add(
        "--images",
        type=whole,
        default=0,
        metavar="N",
        help="of each request, made up (0; a vision model: 1)",
    )
    add(
        "--image-size",
        type=image_size,
        default=(1024, 1024),
        metavar="HxW",
        help="of each in pixels, before preprocessing (1024x1024)",
    )
    add(
        "--audio-seconds", type=seconds, default=30.0, help="of each request to a speech model (30)"
    )
    add(
        "--prompt-tokens",
        type=positive,
        default=128,
        metavar="N",
        help="text of each, without images (128)",
    )
    add(
        "--output-tokens",
        type=positive,
        default=32,
        metavar="N",
        help="that each gives; real weights may end before (32)",
    )
    add("--warmups", type=whole, default=2, metavar="N", help="runs before (2)")
    add("--repeats", type=whole, default=3, metavar="N", help="timed before the profile (3)")
    add(
        "--stage-modules",
        nargs="+",
        type=_stage,
        default=[],
        metavar="STAGE=REGEX",
        help="whole names of modules that are stages, in place of prof's own",
    )
    add("--seed", type=int, default=0, help="of weights and inputs (0)")
    add("--out", metavar="FILE", help="records go there (the variable PROF_RESULTS)")
    add_dataset_arguments(parser)
    args = parser.parse_args(argv)
    args.argv = list(argv)
    return args


def _stage(text: str) -> tuple[str, str]:
    stage, equals, of = text.partition("=")
    try:
        re.compile(of)
    except re.error as error:
        raise ArgumentTypeError(f"{of!r} is not a regular expression: {error}") from error
    if not equals or not stage:
        raise ArgumentTypeError(f"{text!r} is not STAGE=REGEX: vision_encoder=.*sam_encoder")
    return stage, of


def run(args: Namespace, records: Records) -> dict[str, Any]:
    """Make the model and run it; return what is printed."""
    records.conditions(conditions(args.argv, args.seed, visible_gpus()))
    loaded = load(args)
    parameters = sum(p.numel() for p in loaded.module.parameters())
    print(f"{args.model}: {parameters:,} parameters, {loaded.module.dtype}", file=sys.stderr)
    measured = Run(loaded, records, args)
    print(f"stages: {measured.hooked}", file=sys.stderr)
    try:
        found = measured.measure()
    except torch.OutOfMemoryError as error:
        failure = EngineFailure(f"out of GPU memory: {error}", "a smaller --batch", "out-of-memory")
        measured.failed(failure)
        raise failure from error
    return {
        "target": TARGET,
        "model": loaded.found.name,
        "parameters": parameters,
        "modules": measured.hooked,
        **found,
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Run; exit code 1 with a reason where the model cannot be run."""
    args = parse_arguments(sys.argv[1:] if argv is None else argv)
    path = args.out or os.environ.get("PROF_RESULTS") or os.devnull
    if args.device == "cuda" and not torch.cuda.is_available():
        complain(EngineFailure("torch sees no CUDA device", "--device cpu"))
        return 1
    try:
        with open(path, "a", encoding="utf-8") as stream:
            found = run(args, Records(stream, TARGET))
        predictions, counted = found.pop("predictions"), found.pop("counted")
        if path != os.devnull:
            write_predictions(Path(path).parent, predictions)
            static_compute.write(Path(path).parent / static_compute.FILE, counted)
    except EngineFailure as failure:
        complain(failure)
        return 1
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
