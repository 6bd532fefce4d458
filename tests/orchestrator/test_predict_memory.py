"""What an engine holds beside weights and KV cache, by hand from vLLM's own sizes."""

from pathlib import Path

import pytest

from nsight_prof.orchestrator.predict.memory import peak_bytes
from nsight_prof.parsers.predict.serving import Engine
from nsight_prof.parsers.serving.model_shape import ModelShape, read_model_shape

STEP = 16384


@pytest.fixture
def shape(root: Path, request: pytest.FixtureRequest) -> ModelShape:
    return read_model_shape(root / "targets/serving/configs" / request.param)


def held(shape: ModelShape, requests: int) -> float:
    return peak_bytes(shape, Engine(STEP, (), requests))


@pytest.mark.parametrize("shape", ["gemma-3-12b"], indirect=True)
def test_many_requests_hold_more_while_they_are_sampled_than_a_step_computes(
    shape: ModelShape,
) -> None:
    assert held(shape, 128) == STEP * 2 * (3 * 15360 + 3 * 3840)
    assert held(shape, 1024) == STEP * 2 * 3840 + 1024 * 262208 * 14


@pytest.mark.parametrize("shape", ["qwen3-30b-a3b"], indirect=True)
def test_experts_keep_workspaces_for_all_that_a_token_uses(shape: ModelShape) -> None:
    workspaces = STEP * 8 * (2048 + 2048) * 2
    attention = STEP * 2 * (2 * 2048 + 2 * (4096 + 2 * 512) + 4096)
    assert held(shape, 128) == workspaces + attention
    assert held(shape, 1024) == workspaces + STEP * 2 * 2048 + 1024 * 151936 * 14


@pytest.mark.parametrize("shape", ["llama-3.1-8b"], indirect=True)
def test_each_rank_samples_from_the_whole_vocabulary(shape: ModelShape) -> None:
    split = held(shape.shard(2), 4096)
    assert split == STEP * 2 * 4096 + 4096 * 128256 * 14
