"""What is read of /metrics, and of the log of a server."""

import math
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsight_prof.targets.serving import scrape, server_log
from nsight_prof.targets.serving.scrape import MEANS

SCRAPE = """# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="a}b"} 3.0
vllm:num_requests_running{engine="1",model_name="a}b"} 4.0
vllm:num_requests_waiting{engine="0",model_name="m"} 2.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.75
vllm:num_preemptions_total{engine="0",model_name="m"} 5.0
vllm:prompt_tokens_total{engine="0",model_name="m"} 1.024e+03
vllm:prompt_tokens_created{engine="0",model_name="m"} 1.7953063929804e+09
vllm:generation_tokens_total{engine="0",model_name="m"} 64.0
vllm:time_to_first_token_seconds_bucket{engine="0",le="+Inf",model_name="m"} 4.0
vllm:time_to_first_token_seconds_sum{engine="0",model_name="m"} 2.0
vllm:time_to_first_token_seconds_count{engine="0",model_name="m"} 4.0
vllm:cache_config_info{block_size="16",cache_dtype="fp8",enable_prefix_caching="False",\
engine="0",gpu_memory_utilization="0.9",num_gpu_blocks="361718",sliding_window="None"} 1.0
http_requests_total{handler="/v1/completions",method="POST",status="2xx"} 1.0
vllm:broken{engine="0"} many
"""


def test_reads_the_state_of_all_engines_of_a_server() -> None:
    assert scrape.stats(scrape.parse(SCRAPE)) == {
        "running": 7,
        "waiting": 2,
        "kv_usage": 0.75,
        "preemptions": 5,
        "prompt_tokens": 1024,
        "generation_tokens": 64,
    }


def test_metrics_that_a_server_has_not_are_unknown() -> None:
    assert set(scrape.stats({}).values()) == {None}
    assert set(scrape.totals({}, {}).values()) == {None}
    assert set(scrape.cache_facts("").values()) == {None}


def test_reads_the_kv_cache() -> None:
    assert scrape.cache_facts(SCRAPE) == {
        "kv_blocks": 361718,
        "block_size": 16,
        "kv_cache_dtype": "fp8",
        "gpu_memory_utilization": 0.9,
        "prefix_caching": False,
    }


def test_totals_are_growth_and_means_of_what_was_added() -> None:
    before = scrape.parse(SCRAPE)
    ttft = MEANS["ttft"]
    added = {"vllm:generation_tokens_total": 36.0, f"{ttft}_sum": 3.0, f"{ttft}_count": 2.0}
    after = {name: value + added.get(name, 0.0) for name, value in before.items()}
    totals = scrape.totals(before, after)
    assert totals["generation_tokens"] == 36
    assert totals["prompt_tokens"] == 0
    assert totals["ttft_mean_s"] == 1.5
    assert totals["itl_mean_s"] is None  # the histogram is missing
    assert totals["estimated_flops"] is None


def test_a_counter_that_began_anew_tells_nothing() -> None:
    name = "vllm:generation_tokens_total"
    assert scrape.totals({name: 10.0}, {name: 4.0})["generation_tokens"] is None


@given(st.text(alphabet=string.printable, max_size=300))
def test_no_text_breaks_the_reader(text: str) -> None:
    for words in (text, "vllm:" + text, "sglang:" + text, SCRAPE + text):
        found = scrape.parse(words)
        assert all(math.isfinite(value) for value in found.values())
        scrape.stats(found)
        scrape.cache_facts(words)


LOG = [
    "(APIServer pid=1) INFO 11-22 00:12:37 [scheduler.py:239] Chunked prefill is enabled with "
    "max_num_batched_tokens=8192.",
    "(APIServer pid=1) INFO 11-22 00:12:37 [vllm.py:840] Asynchronous scheduling is enabled.",
    "(EngineCore pid=2) INFO 11-22 00:12:44 [core.py:109] Initializing a V1 LLM engine (v0.20.2) "
    "with config: model='m', dtype=torch.bfloat16, max_seq_len=4096, load_format=dummy, "
    "tensor_parallel_size=2, kv_cache_dtype=auto, compilation_config={'cudagraph_capture_sizes': "
    "[1, 2, 4], 'x': 1}",
    "(EngineCore pid=2) INFO 11-22 00:12:47 [cuda.py:368] Using FLASH_ATTN attention backend out "
    "of potential backends: ['FLASH_ATTN'].",
    "(EngineCore pid=2) INFO 11-22 00:13:08 [gpu_worker.py:440] Available KV cache memory: 2.5 GiB",
]


def test_a_log_tells_how_the_engine_was_made() -> None:
    assert server_log.facts(LOG) == {
        "dtype": "bfloat16",
        "load_format": "dummy",
        "dummy_weights": True,
        "tensor_parallel": 2,
        "max_num_batched_tokens": 8192,
        "max_num_seqs": None,
        "attention_backend": "FLASH_ATTN",
        "kv_bytes": 2.5 * 2**30,
        "async_scheduling": True,
        "capture_sizes": [1, 2, 4],
    }
    assert set(server_log.facts([]).values()) == {None}


@pytest.mark.parametrize(
    ("line", "message", "status"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to", "out of GPU memory", "out-of-"),
        ("ValueError: No available memory for the cache blocks.", "KV cache", "out-of-memory"),
        ("OSError: [Errno 98] Address already in use", "port is taken", "failed"),
        ("api_server.py: error: unrecognized arguments: --x", "does not take", "failed"),
        ("ModuleNotFoundError: No module named 'uvloop'", "lacks a module", "failed"),
        ("ValueError: Invalid repository ID or local directory", "find the model", "failed"),
        ("RuntimeError: something new", "exit code 1", "failed"),
    ],
)
def test_the_end_of_a_log_tells_why(line: str, message: str, status: str) -> None:
    lines = [*LOG, f"(EngineCore pid=2) ERROR 11-22 00:13:08 [core.py:9] {line}", "INFO: bye"]
    failure = server_log.why(lines, "the server ended with exit code 1")
    assert message in failure.message
    assert failure.status.startswith(status)
    assert failure.hint


@pytest.mark.parametrize(
    ("line", "message", "status"),
    [
        (
            "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.",
            "no GPU memory for the KV cache",
            "out-of-memory",
        ),
        (
            "ValueError: Model architectures ['A'] are not supported for now. Supported",
            "version of SGLang cannot run the model",
            "unsupported",
        ),
        (
            "ValueError: SGLANG_GRPC_PORT (70623) must be between 1 and 65535",
            "SGLang's engine process died while starting: ValueError: SGLANG_GRPC_PORT",
            "failed",
        ),
    ],
)
def test_the_log_of_sglang_tells_why_by_its_name(line: str, message: str, status: str) -> None:
    failure = server_log.why(
        ["Traceback:", line], "the server ended with exit code 1", engine="SGLang"
    )
    assert message in failure.message
    assert failure.status == status
    assert "vLLM" not in failure.message


def test_an_end_without_a_word_is_told_by_itself() -> None:
    assert server_log.why([], "the server was killed by SIGKILL").message == (
        "the server was killed by SIGKILL"
    )
