"""2,000 mutated inputs: right values, or exit 2 or 4 with a sentence (scripts/fuzz.py)."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

SEED, CASES, PARTS = 11, 2000, 4


@pytest.fixture(scope="module")
def fuzz(root: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("fuzz", root / "scripts/fuzz.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    before = list(sys.path)
    sys.modules["fuzz"] = module  # its dataclasses look there
    spec.loader.exec_module(module)
    sys.path[:] = before
    return module


@pytest.mark.filterwarnings("default")  # as for users: a warning ends nothing
@pytest.mark.parametrize("part", range(PARTS))
def test_mutated_inputs_give_right_values_or_a_clear_refusal(
    fuzz: ModuleType, tmp_path: Path, part: int
) -> None:
    inputs = fuzz.Inputs.prepare(tmp_path)
    kinds = list(fuzz.KINDS)
    wrong = {
        number: found
        for number in range(part, CASES, PARTS)
        if (found := fuzz.run_case(inputs, SEED, number, kinds, None))
    }
    assert wrong == {}
