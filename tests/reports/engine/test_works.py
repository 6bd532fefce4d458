"""The work of engine steps from their counts, against a scheduler that is written down again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsight_prof.reports.engine.stages.kinds import Counts, works
from nsight_prof.reports.serving.engine import Requests
from nsight_prof.reports.serving.formulas import Work


def scheduled(batches: list[Requests], budget: int) -> list[tuple[Counts, Work]]:
    """Run batch after batch, first come, first served, with `budget` tokens a step."""
    steps = []
    for batch in batches:
        done = [0] * batch.batch  # tokens in the KV cache
        given_out = [0] * batch.batch
        while any(given < batch.output_tokens for given in given_out):
            left = budget
            prefill, decode = [], []
            for i in range(batch.batch):
                if 0 < given_out[i] < batch.output_tokens and left:
                    decode.append((i, done[i]))
                    left -= 1
            for i in range(batch.batch):
                new = min(batch.prompt_tokens - done[i], left)
                if given_out[i] == 0 and new > 0:
                    prefill.append((i, new, done[i]))
                    left -= new
            for i, _ in decode:
                done[i] += 1
                given_out[i] += 1
            for i, new, _ in prefill:
                done[i] += new
                given_out[i] += done[i] == batch.prompt_tokens
            counts = Counts(
                len(prefill), sum(new for _, new, _ in prefill), len(decode), len(decode)
            )
            work = Work(tuple((new, was) for _, new, was in prefill), tuple(c for _, c in decode))
            steps.append((counts, work))
    return steps


@given(
    batches=st.lists(
        st.builds(Requests, st.integers(1, 5), st.integers(1, 30), st.integers(1, 6)), max_size=3
    ),
    budget=st.integers(6, 60),
)
def test_steps_of_a_scheduler_give_their_work_back(batches: list[Requests], budget: int) -> None:
    steps = scheduled(batches, budget)
    assert works([counts for counts, _ in steps], batches) == [work for _, work in steps]


def test_one_batch_is_a_prefill_and_decodes_with_growing_contexts() -> None:
    steps = [Counts(2, 20, 0, 0), Counts(0, 0, 2, 2), Counts(0, 0, 2, 2)]
    prefill, first, second = works(steps, [Requests(2, 10, 3)])
    assert prefill == Work(((10, 0), (10, 0)))
    assert first == Work((), (10, 10))
    assert second == Work((), (11, 11))


@pytest.mark.parametrize(
    "step",
    [
        Counts(0, 0, 2, 2),  # decode before any prefill: the trace began in the middle
        Counts(3, 30, 0, 0),  # more requests than there were
        Counts(2, 25, 0, 0),  # more tokens than their prompts have
        Counts(2, 5, 0, 0),  # two prompts cut at once
    ],
)
def test_steps_that_the_requests_do_not_explain_have_no_work(step: Counts) -> None:
    assert works([step, Counts(2, 20, 0, 0)], [Requests(2, 10, 3)]) == [None, None]


def test_without_recorded_requests_nothing_is_known() -> None:
    assert works([Counts(2, 20, 0, 0)], []) == [None]
