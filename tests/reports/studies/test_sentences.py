"""The sentences of studies are data: which counts of several, and that none is idle."""

from pathlib import Path

import pytest
import yaml

from nsight_prof.reports.cases.sentences import Sentences
from nsight_prof.reports.page import Number, Text
from nsight_prof.reports.page.writer import Writer

STUDIES = Path(__file__).resolve().parents[3] / "reports" / "studies"
STRIDES = {"n": Number(8, "count"), "part": Number(0.25, "fraction")}


def test_the_first_sentence_whose_values_are_all_given_counts() -> None:
    memory = Sentences("memory_patterns")
    both = memory.finding("read_strides", second=Number(0.5, "fraction"), **STRIDES)
    widest = memory.finding("read_strides", second=None, **STRIDES)
    assert "every second sector leaves 50 %" in Writer().text(both.verdict)
    assert "reading one sector in 8 leaves 25 %" in Writer().text(widest.verdict)
    assert both.action == widest.action


def test_a_sentence_without_its_values_is_left_out() -> None:
    network = Sentences("gemm_staircase").finding("padding/none", kernel="cuBLAS bf16")
    assert network.rule == "padding"
    assert network.action is None
    assert network.technical


def test_evidence_of_the_data_stands_behind_what_is_given() -> None:
    given = Text("measured")
    found = Sentences("memory_patterns").finding(
        "random_gathers", [given], **dict.fromkeys(("small", "slow", "large", "fast"), given)
    )
    assert found.evidence[0] is given
    assert len(found.evidence) == 3


def test_a_value_that_no_sentence_takes_and_one_that_lacks_are_errors() -> None:
    memory = Sentences("memory_patterns")
    with pytest.raises(ValueError, match="read_strides"):
        memory.finding("read_strides", other=1, **STRIDES)
    with pytest.raises(ValueError, match="read_strides"):
        memory.finding("read_strides", n=STRIDES["n"])


@pytest.mark.parametrize(
    "path", sorted(STUDIES.glob("*/sentences.yaml")), ids=lambda p: p.parent.name
)
def test_each_entry_of_the_data_is_asked_for(path: Path) -> None:
    code = "".join(module.read_text("utf-8") for module in path.parent.glob("*.py"))
    for kind, entries in yaml.safe_load(path.read_text("utf-8")).items():
        for name in entries:
            # The models of turnarounds are looked up by their names.
            assert f'"{name}"' in code or f'"{name.rpartition("/")[2]}"' in code, (kind, name)
