"""Requests of files in the formats of GuideLLM, AIPerf, Mooncake, Azure, BurstGPT and ShareGPT.

Lines are those of their documents: aiperf docs/benchmark-modes/trace-replay.md and
docs/tutorials/custom-dataset.md, guidellm docs/guides/datasets.md, the head of
AzureLLMInferenceTrace_conv.csv and of BurstGPT_1.csv.
"""

import gzip
import json
from argparse import ArgumentParser
from pathlib import Path

import pytest

from nsight_prof.targets.serving.failures import EngineFailure
from nsight_prof.targets.serving.load import listed_bodies
from nsight_prof.targets.serving.load_points import (
    Point,
    add_load_arguments,
    closed_points,
    open_points,
)
from nsight_prof.targets.serving.request_list import (
    Listed,
    RequestList,
    add_request_list_arguments,
    made_up,
    read_request_list,
)

MOONCAKE = """{"timestamp": 0, "input_length": 1200, "output_length": 52, "hash_ids": [0, 1, 2]}
{"timestamp": 105, "input_length": 1800, "output_length": 26, "hash_ids": [0, 3, 4, 5]}
{"timestamp": 274, "input_length": 1300, "output_length": 52, "hash_ids": [1, 4, 6]}
"""
GUIDELLM_TRACE = """{"timestamp": 1234500.0, "input_length": 256, "output_length": 128}
{"timestamp": 1234500.5, "input_length": 512, "output_length": 64}
"""
GUIDELLM_CSV = """prompt,output_tokens_count,additional_column,additional_column2
"Hello, how are you?",5,foo,bar
What is your name?,3,baz,qux
"""
GUIDELLM_JSON = """{"version": "1.0", "data": [
  {"prompt": "Hello, how are you?", "output_tokens_count": 5, "additional_column": "foo"},
  {"prompt": "What is your name?", "output_tokens_count": 3, "additional_column": "baz"}]}
"""
AIPERF = """{"text": "Write a haiku about mountains.", "output_length": 50}
{"text": "Summarize machine learning."}
{"session_id": "chat_1", "turns": [{"text": "What is machine learning?"}, {"text": "Why?"}]}
{"session_id": "s", "messages": [{"role": "user", "content": "Hello"}], "output_length": 50}
"""
AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:46.6805900,374,44
2023-11-16 18:15:50.9951690,396,109
"""
BURST = """Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type
5,ChatGPT,472,18,490,Conversation log
45,ChatGPT,1087,230,1317,Conversation log
118,GPT-4,417,0,417,Conversation log
"""


def parsed(*words: str) -> RequestList:
    parser = ArgumentParser()
    add_load_arguments(parser)
    add_request_list_arguments(parser)
    found = read_request_list(parser.parse_args(words))
    assert found is not None
    return found


def lengths(found: RequestList) -> list[tuple[int | None, int | None]]:
    return [(one.prompt_tokens, one.output_tokens) for one in found.requests]


@pytest.mark.parametrize("packed", [False, True])
def test_a_trace_of_mooncake_arrives_in_ms(tmp_path: Path, packed: bool) -> None:
    path = tmp_path / ("trace.jsonl.gz" if packed else "trace.jsonl")
    path.write_bytes(gzip.compress(MOONCAKE.encode()) if packed else MOONCAKE.encode())
    found = parsed("--filelist", str(path))
    assert found.is_trace
    assert lengths(found) == [(1200, 52), (1800, 26), (1300, 52)]
    assert found.due() == pytest.approx([0.0, 0.105, 0.274])
    assert found.requests[1].blocks == (0, 3, 4, 5)
    twice = parsed("--filelist", str(path), "--epochs", "2", "--time-scale", "0.5")
    assert twice.due() == pytest.approx([0, 0.0525, 0.137, 0.2055, 0.258, 0.3425])
    assert not parsed("--filelist", str(path), "--arrivals", "random").is_trace


@pytest.mark.parametrize(
    ("name", "text", "words", "due", "sizes"),
    [
        ("g.jsonl", GUIDELLM_TRACE, ["--timestamp-unit", "s"], [0, 0.5], [(256, 128), (512, 64)]),
        ("azure.csv", AZURE, [], [0, 4.314579], [(374, 44), (396, 109)]),
        ("burst.csv", BURST, [], [0, 40], [(472, 18), (1087, 230)]),
    ],
)
def test_other_traces(
    tmp_path: Path,
    name: str,
    text: str,
    words: list[str],
    due: list[float],
    sizes: list[tuple[int, int]],
) -> None:
    (tmp_path / name).write_text(text)
    found = parsed("--filelist", str(tmp_path / name), *words)
    assert found.due() == pytest.approx(due)
    assert lengths(found) == sizes


@pytest.mark.parametrize(("name", "text"), [("g.csv", GUIDELLM_CSV), ("g.json", GUIDELLM_JSON)])
def test_prompts_of_guidellm(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    found = parsed("--filelist", str(tmp_path / name))
    assert [one.content for one in found.requests] == ["Hello, how are you?", "What is your name?"]
    assert lengths(found) == [(None, 5), (None, 3)]
    assert not found.is_trace


def test_prompts_of_aiperf_text_and_sharegpt(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(AIPERF)
    (tmp_path / "p.txt").write_text("Hello, how are you?\n\nWhat is your name?\n")
    turns = [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Hello"}]
    (tmp_path / "s.json").write_text(json.dumps([{"id": "1", "conversations": turns}]))
    found = parsed("--filelist", str(tmp_path / "a.jsonl"))
    *texts, chat = [one.content for one in found.requests]
    assert texts[0] == "Write a haiku about mountains."
    assert texts[2] == "What is machine learning?"
    assert chat == [{"role": "user", "content": "Hello"}]
    assert [one.output_tokens for one in found.requests] == [50, None, None, 50]
    lines = parsed("--filelist", str(tmp_path / "p.txt"), "--samples", "1")
    assert [one.content for one in lines.requests] == ["Hello, how are you?"]
    assert parsed("--filelist", str(tmp_path / "s.json")).requests == (Listed("Hi"),)


def test_equal_hashes_give_equal_blocks() -> None:
    first = made_up(Listed(blocks=(0, 1)), 1200, 1000, seed=1)
    second = made_up(Listed(blocks=(0, 2)), 700, 1000, seed=2)
    assert (len(first), len(second)) == (1200, 700)
    assert first[:512] == second[:512]
    assert first[512:700] != second[512:700]
    assert made_up(Listed(), 64, 1000, seed=1) != made_up(Listed(), 64, 1000, seed=2)


def test_bodies_are_those_of_the_file_in_turn(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(AIPERF)
    found = parsed("--filelist", str(tmp_path / "a.jsonl"))
    point = Point(2, None, 512, 9, requests=4, listed=found.name)
    sent = listed_bodies(point, found, "m", 1000, 0, first=2)
    assert [body.path for body in sent] == ["/v1/completions", "/v1/chat/completions"] + [
        "/v1/completions"
    ] * 2
    asked = [json.loads(body.data) for body in sent]
    assert [one.get("prompt") for one in asked][2:] == [
        "Write a haiku about mountains.",
        "Summarize machine learning.",
    ]
    assert [one["max_tokens"] for one in asked] == [9, 50, 50, 9]


def test_a_trace_is_one_open_loop(tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text(MOONCAKE)
    parser = ArgumentParser()
    add_load_arguments(parser)
    add_request_list_arguments(parser)
    args = parser.parse_args(["--filelist", str(tmp_path / "t.jsonl")])
    found = read_request_list(args)
    assert list(closed_points(args, found)) == []
    (point,) = open_points(args, 50.0, found)
    assert point.name == "open/trace/t.jsonl"
    assert (point.requests, point.prompt_tokens, point.output_tokens) == (3, 1433, 43)
    assert point.request_rate == pytest.approx(3 / 0.274, rel=1e-3)  # four digits


def test_requests_longer_than_the_server_takes_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text(
        '{"input_length": 4000, "output_length": 97}\n{"input_length": 4000, "output_length": 96}\n'
        '{"prompt": "its tokens are not known", "output_tokens_count": 4097}\n'
        '{"prompt": "they are here", "prompt_tokens_count": 4090, "output_tokens_count": 9}\n'
        '{"prompt": "they are not, and fit perhaps"}\n'
    )
    found = parsed("--filelist", str(tmp_path / "t.jsonl"))
    kept = found.within(4096, prompt=512, output=128)
    assert [one.prompt_tokens for one in kept.requests] == [4000, None]
    assert kept.too_long == 3
    with pytest.raises(EngineFailure, match=r"each request of t\.jsonl is longer than the 99"):
        found.within(99, prompt=512, output=128)


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("a.jsonl", '{"answer": 1}', "request 1 has no prompt and no length"),
        ("a.jsonl", "{", "cannot be read"),
        ("a.jsonl", '{"input_length": "many"}', "request 1 cannot be read"),
        ("a.csv", "TIMESTAMP,ContextTokens,GeneratedTokens\nnoon,1,1", "request 1 cannot be read"),
        ("a.jsonl", "", "holds no request"),
        ("a.jsonl.gz", "no gzip", "cannot be read"),
        ("a.jsonl", "[1]", "is no JSON object"),
    ],
)
def test_what_is_no_request_is_told(tmp_path: Path, name: str, text: str, reason: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(EngineFailure, match=reason):
        parsed("--filelist", str(tmp_path / name))


def test_images_are_refused(tmp_path: Path) -> None:
    with pytest.raises(EngineFailure, match="folder of images"):
        parsed("--dataset-root", str(tmp_path))
