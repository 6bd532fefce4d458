"""An OpenAI-compatible server under load: latencies and throughput over concurrency and rate.

    python server.py --model qwen2.5-7b --concurrency 1 8 64 --rate 4 16
    python server.py --server-args='--max-num-seqs 64 --no-enable-prefix-caching'
    python server.py --engine sglang --model qwen2.5-7b
    python server.py --url http://127.0.0.1:8000 --concurrency 1 8
    python server.py --filelist mooncake_trace.jsonl --samples 200

The server is vLLM's, or with --engine sglang SGLang's: a child in a process group of its own,
started with this interpreter and ended with all of its processes. This process holds no GPU memory:
it sends the requests, samples NVML and reads the server's own metrics. With --url the server is one
that runs already, of any engine with an OpenAI-compatible API: it is neither started nor ended.
stdout (or --out) gets the records, stderr the server's log and one line a point.
"""

from __future__ import annotations

import os
import runpy
import sys
import tempfile
from argparse import ArgumentTypeError, Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TextIO

if not __package__:  # run as a file
    runpy.run_path(str(Path(__file__).resolve().parents[1] / "standalone.py"))
from nsight_prof.targets.harness.options import Parser, positive, regex, seconds
from nsight_prof.targets.harness.output import output
from nsight_prof.targets.serving import serve_command, sglang_server
from nsight_prof.targets.serving.conditions import conditions, visible_gpus
from nsight_prof.targets.serving.environment import prepare
from nsight_prof.targets.serving.exit_code import exit_code
from nsight_prof.targets.serving.healthy import (
    HOST,
    GpuMemory,
    Server,
    free_port,
    require_free,
)
from nsight_prof.targets.serving.load_points import add_load_arguments, closed_points, open_points
from nsight_prof.targets.serving.models import Model, find_model
from nsight_prof.targets.serving.options import add_engine_arguments, engine_options
from nsight_prof.targets.serving.records import BEGIN, Records
from nsight_prof.targets.serving.request_list import (
    RequestList,
    add_request_list_arguments,
    read_request_list,
)
from nsight_prof.targets.serving.running import Running, is_local, served_model, server_url
from nsight_prof.targets.serving.serve_command import joined, split
from nsight_prof.targets.serving.stopping import stoppable
from nsight_prof.targets.serving.telemetry import Telemetry
from nsight_prof.targets.standalone import need

TARGET = "vllm-serve"
ENGINES = {"vllm": serve_command, "sglang": sglang_server}
"""How the server of each engine is started, by the module that its interpreter must have."""
IN_PROCESS_ONLY = (
    "process", "nvtx_scopes", "layer_ranges", "extra",
    "speculative_tokens", "draft", "accept", "adapters", "adapter_rank", "adapter_modules",
)  # fmt: skip
"""Options of an engine in this process, which a server has not."""


def main(argv: Sequence[str] | None = None) -> int:
    """Measure what the command line asks for.

    Returns:
        The exit code: 0, also where single points could not run; 1 where the server did not start
        or died, or no point has a time; 3 without vllm or aiohttp; 130 and 143 after SIGINT and
        SIGTERM.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    given = parse(words)
    return exit_code(lambda: _run(given, words))


def _run(given: Namespace, words: Sequence[str]) -> int:
    listed = read_request_list(given)
    if given.list:
        return _list(given, listed)
    if given.url is not None:
        need("aiohttp")
        with stoppable(), output(given.out) as stream:
            _measure_running(given, words, stream, listed)
        return 0
    model = find_model(given.model, given.weights)
    need(given.engine, "aiohttp")
    if given.port is not None:
        require_free(given.port)
    with stoppable(), output(given.out) as stream:
        _measure(given, words, model, stream, listed)
    return 0


def _list(given: Namespace, listed: RequestList | None) -> int:
    """Print the names of the points that are known before the server runs."""
    known = [*closed_points(given, listed), *open_points(given, None, listed)]
    print("\n".join(point.name for point in known if given.only.search(point.name)))
    if given.rate is None and not (listed and listed.is_trace):
        print("note: open loops have shares of the rate that closed loops reach", file=sys.stderr)
    return 0


def _measure(
    given: Namespace,
    words: Sequence[str],
    model: Model,
    stream: TextIO,
    listed: RequestList | None,
) -> None:
    """Start the server, measure the points, end the server.

    Raises:
        EngineFailure: it did not start or died, or no point has a time.
    """
    from nsight_prof.targets.serving.load_test import (
        LoadTest,  # aiohttp
    )

    options = engine_options(given, process="spawn", profiler=given.profile)
    records = Records(stream, TARGET, given.process_number, given.repeat, begin=BEGIN)
    gpus = visible_gpus()
    records.conditions(conditions(words, given.seed, gpus))
    uuids = [gpu["uuid"] for gpu in gpus[: given.tensor_parallel] if gpu["uuid"]]
    prepare(model)
    port = given.port or free_port()
    tokens = given.prompt_tokens + given.output_tokens
    if listed is not None:
        tokens = max(tokens, listed.longest(given.prompt_tokens, given.output_tokens))
    memory = GpuMemory(uuids)
    with (
        tempfile.TemporaryDirectory(prefix="prof-serve-") as folder,
        Telemetry(records, uuids, given.telemetry_interval) as telemetry,
    ):
        if telemetry.problem:
            print(f"note: no telemetry: {telemetry.problem}", file=sys.stderr)
        engine, more = ENGINES[given.engine], split(given.server_args)
        argv = engine.command(model, options, port, tokens, Path(folder), more)
        server = Server(argv, _environment(engine.environment()), engine.NAME)
        test = LoadTest(given, model, options, server, records, f"http://{HOST}:{port}", {}, listed)
        try:
            test.run()
        finally:
            begin = records.now()
            server.end()
            records.phase(None, "end engine", begin, records.now())
            memory.released()
    test.conclude()


def _measure_running(
    given: Namespace, words: Sequence[str], stream: TextIO, listed: RequestList | None
) -> None:
    """Measure the points on a server that runs already; GPUs are watched where it is local.

    Raises:
        EngineFailure: it cannot be reached, or no point has a time.
    """
    from nsight_prof.targets.serving.load_test import LoadTest  # aiohttp

    model, served = served_model(given.url, given.model)
    records = Records(stream, TARGET, given.process_number, given.repeat, begin=BEGIN)
    gpus = visible_gpus() if is_local(given.url) else []
    records.conditions(conditions(words, given.seed, gpus))
    uuids = [gpu["uuid"] for gpu in gpus if gpu["uuid"]]
    with Telemetry(records, uuids, given.telemetry_interval):
        options = engine_options(given, process="spawn")
        test = LoadTest(given, model, options, Running(), records, given.url, served, listed)
        test.run()
    test.conclude()


def _environment(own: Mapping[str, str]) -> dict[str, str]:
    """Return the server's environment: ours, and no module of the current folder before others."""
    return {**own, **os.environ, "PYTHONSAFEPATH": "1", "PYTHONUNBUFFERED": "1"}


def parse(words: Sequence[str]) -> Namespace:
    """Return the parsed command line.

    Raises:
        SystemExit: with code 2 for a wrong one, 0 for --help.
    """
    parser = Parser(description=(__doc__ or "").split("\n", 1)[0], allow_abbrev=False)
    add_load_arguments(parser)
    add_request_list_arguments(parser)
    add_engine_arguments(parser, without=IN_PROCESS_ONLY)
    group = parser.add_argument_group("server")
    add = group.add_argument
    add("--engine", choices=tuple(ENGINES), default="vllm", help="whose server is started (vllm)")
    add("--server-args", default="", metavar="WORDS", help="more arguments of the server")
    add("--url", type=server_url, help="of a server that runs already: none is started or ended")
    add("--port", type=_port, metavar="N", help="of the server (a free one)")
    add("--start-timeout", type=seconds, default=600.0, help="most s until it is healthy (600)")
    group = parser.add_argument_group("measurement")
    add = group.add_argument
    add(
        "--out",
        metavar="FILE",
        default=os.environ.get("PROF_RESULTS"),
        help="records go there, not to stdout (the variable PROF_RESULTS)",
    )
    add("--only", type=regex, default="", metavar="REGEX", help="points that it is found in")
    add("--list", action="store_true", help="print the names of the points and end")
    add("--profile", action="store_true", help="points alone, by the profiler hooks of SGLang")
    add("--telemetry-interval", type=seconds, default=0.1, help="s between NVML samples (0.1)")
    add("--scrape-interval", type=seconds, default=1.0, help="s between looks at /metrics (1)")
    add("--process", dest="process_number", type=positive, default=1, help="of this process (1)")
    add("--repeat", type=positive, default=1, help="number of this repeat of all (1)")
    return parser.parse_args(joined(words))


def _port(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 65535:
        raise ArgumentTypeError(f"{text!r} is no port: a whole number from 1 to 65535")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
