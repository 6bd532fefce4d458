"""100 mutated inputs: right values, or exit 2 or 4 with a sentence (scripts/fuzz.py).

`.ci/run` goes on with the next 400 of this seed, and with 2,000 of another.
"""

import pytest

from scripts.fuzzing.campaign import KINDS, run_case
from scripts.fuzzing.case import Inputs

SEED, CASES, PARTS = 11, 100, 2


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Inputs:
    """The inputs that cases mutate copies of."""
    return Inputs.prepare(tmp_path_factory.mktemp("inputs"))


@pytest.mark.filterwarnings("default")  # as for users: a warning ends nothing
@pytest.mark.parametrize("part", range(PARTS))
def test_mutated_inputs_give_right_values_or_a_clear_refusal(inputs: Inputs, part: int) -> None:
    kinds = list(KINDS)
    wrong = {
        number: found
        for number in range(part, CASES, PARTS)
        if (found := run_case(inputs, SEED, number, kinds, None))
    }
    assert wrong == {}
