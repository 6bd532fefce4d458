"""2,000 mutated inputs: right values, or exit 2 or 4 with a sentence (scripts/fuzz.py)."""

from pathlib import Path

import pytest

from scripts.fuzzing.campaign import KINDS, run_case
from scripts.fuzzing.case import Inputs

SEED, CASES, PARTS = 11, 2000, 4


@pytest.mark.filterwarnings("default")  # as for users: a warning ends nothing
@pytest.mark.parametrize("part", range(PARTS))
def test_mutated_inputs_give_right_values_or_a_clear_refusal(tmp_path: Path, part: int) -> None:
    inputs = Inputs.prepare(tmp_path)
    kinds = list(KINDS)
    wrong = {
        number: found
        for number in range(part, CASES, PARTS)
        if (found := run_case(inputs, SEED, number, kinds, None))
    }
    assert wrong == {}
