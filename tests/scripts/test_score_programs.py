"""The whole programs with planted causes: their list, and how what prof said of them is scored."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nsight_prof.parsers.errors import ArtifactUnreadable
from nsight_prof.reports.findings.gain_intervals import OTHERS, UNPRICED
from scripts.gain_intervals import FILE
from scripts.pages.gain_intervals import ENDS, as_yaml, intervals, repairs
from scripts.pages.programs import (
    Answer,
    Look,
    Promises,
    Said,
    collect,
    line_at_fault,
    lines_at_fault,
    planted,
    promises,
    read_look,
    rows,
    section,
    with_measured_twins,
    write_look,
)
from scripts.run_programs import (
    NINETEENTH,
    PROGRAMS,
    SETS,
    changed,
    listed_actions,
    main,
    programs,
    source,
)


def said(title: str, sentence: str = "", gain: float | None = 0.5, *kernels: str) -> Said:
    return Said(title, sentence, "", "rule", gain, kernels)


def an_answer(
    slow_ms: float, repaired_ms: float, slow: tuple[Said, ...], repaired: tuple[Said, ...] | None
) -> Answer:
    return Answer(slow_ms, repaired_ms, slow_ms, repaired_ms, slow, repaired)


def a_look(**answers: Answer) -> Look:
    return Look("c0ffee", "NVIDIA H200", "2026-11-24", answers)


def test_each_program_listed_is_a_file_whose_line_at_fault_exists() -> None:
    programs_of_all = [program for listed_in in SETS for program in planted(listed_in)]
    listed = [source(program) for program in programs_of_all]
    files = {*PROGRAMS.glob("*.py"), *PROGRAMS.glob("*.cu")} - {PROGRAMS / "common.py"}
    assert set(listed) == files
    assert len(listed) == len(files)
    for program in programs_of_all:
        assert program["level"] in {"host", "kernel"}
        assert [re.compile(pattern) for pattern in program["accepts"]]
        assert ("at" in program) == (line_at_fault(program) is not None)


def test_a_file_a_function_or_a_kernel_names_no_cause() -> None:
    line = line_at_fault(programs(["tokenise"])[0])
    first = said("The GPU waits", f"Its host is in tokenise.py:{line} in tokenise (90 % of it).")
    fp64 = said("Elementwise kernels in a row: PyTorch mul, fp64", "", 0.2, "PyTorch mul, fp64")
    tokens, filters = a_look(
        tokenise=an_answer(200.0, 100.0, (first,), ()),
        double_filterbank=an_answer(100.0, 80.0, (fp64,), None),
    ).judged
    assert tokens.rank is None
    assert tokens.line_named
    assert (filters.rank, filters.strict) == (1, None)
    assert filters.false_findings is None


def test_any_of_the_lines_at_fault_is_right_to_name() -> None:
    listed = programs(["canal_locks"], NINETEENTH)[0]
    assert isinstance(listed["at"], list)
    text = source(listed).read_text(encoding="utf-8").splitlines()
    lines = lines_at_fault(listed)
    assert all(at in text[line - 1] for at, line in zip(listed["at"], lines, strict=True))
    assert line_at_fault(listed) == lines[0]
    for line, right in ((lines[0], True), (lines[1], True), (1, False)):
        first = said(
            "The host waits", f"Its host is in canal_locks.py:{line} in note (90 % of it)."
        )
        look = a_look(canal_locks=an_answer(200.0, 100.0, (first,), ()))
        assert replace(look, programs=NINETEENTH).judged[0].line_named == right


def test_the_gain_is_that_of_the_finding_that_names_the_cause() -> None:
    found = (said("Something else", gain=0.9), said("Pageable memory is copied", gain=0.3))
    twin = (said("Still", gain=0.11),)
    (one,) = a_look(pageable=an_answer(200.0, 100.0, found, twin)).judged
    assert (one.rank, one.estimate) == (2, 0.3)
    assert one.ratio == pytest.approx(0.6)
    assert not one.within(1.5)
    assert one.false_findings == [said("Still", gain=0.11)]
    nothing = an_answer(200.0, 100.0, (said("Pinned memory", gain=None),), ())
    (unpriced,) = a_look(pageable=nothing).judged
    assert unpriced.ratio is None
    assert not unpriced.within(1.5)


def test_a_program_whose_repair_saves_nothing_is_in_no_score_of_causes() -> None:
    look = a_look(
        pageable=an_answer(100.0, 97.0, (said("Pageable"),), ()),
        loader=an_answer(100.0, 50.0, (said("Its workers"),), ()),
    )
    assert rows(look.judged)[0][1:3] == (1, 1)
    assert "`pageable` (3.0 %)" in "".join(section("Whole programs", look))


def test_a_rule_is_held_to_what_was_there_of_what_it_promised() -> None:
    cause, aside = said("A tokenizer on the host", "", 0.5), said("Copies", "", 0.3)
    twin = (said("Copies", "", 0.3), said("Fills", "", 0.1))  # the second promises little
    fair = a_look(tokenise=an_answer(100.0, 50.0, (cause, aside), twin))
    assert promises(fair.judged) == {"rule": Promises(1, 1, of_cause=1, aside=1, in_twins=1)}
    # Of 100 ms the repaired program takes 20: beside the cause no 30 ms can be saved.
    beyond = a_look(tokenise=an_answer(100.0, 20.0, (cause, aside), None))
    found = promises(beyond.judged)["rule"]
    assert (found.beyond, found.large, found.borne_out) == (1, 2, 0.5)
    nothing = a_look(tokenise=an_answer(100.0, 99.0, (cause, aside), twin))
    assert promises(nothing.judged) == {"rule": Promises(in_twins=1)}


def test_a_large_gain_in_a_twin_is_held_to_what_its_action_gained() -> None:
    twin = (replace(said("Copies", "", 0.3), cause="copies"), said("Waits", "", 0.4))
    look = a_look(tokenise=an_answer(100.0, 50.0, (said("A tokenizer on the host"),), twin))
    assert [s.title for s in look.judged[0].false_findings or ()] == ["Copies", "Waits"]
    done = {
        "copies": 0.2,
        "rule": 0.26,
    }  # the first to the point within a factor of 1.5, the other beyond it
    measured = a_look(tokenise=replace(look.answers["tokenise"], actions=done))
    assert [s.title for s in measured.judged[0].false_findings or ()] == ["Waits"]
    page = "".join(section("Whole programs", measured))
    assert "`copies` 30.0 % (measured 20.0 %), `rule` 40.0 % (measured 26.0 %) ✗" in page
    found = promises(measured.judged)
    assert (found["rule"].in_twins, found["copies"].gained, found["copies"].borne_out) == (1, 1, 1)


def test_what_findings_of_a_twin_say_can_be_done_to_it(tmp_path: Path) -> None:
    for name in {program["name"] for listed_in in SETS for program in planted(listed_in)}:
        for action in listed_actions(name):
            assert action["causes"]
            if "cannot" not in action:
                text = changed(source({"name": name}), action, tmp_path).read_text("utf-8")
                assert all(edit["to"] in text for edit in action["edits"])
    edit = {"causes": ["copies"], "edits": [{"from": "import", "to": ""}]}
    with pytest.raises(SystemExit, match="what is to be replaced: 'import'"):
        changed(PROGRAMS / "loader.py", edit, tmp_path)


def test_times_of_a_twin_are_added_to_a_recorded_look(tmp_path: Path) -> None:
    look = a_look(tokenise=an_answer(100.0, 50.0, (said("A"),), (said("B"),)))
    assert with_measured_twins(look, tmp_path) == look
    (tmp_path / "tokenise").mkdir()
    row = {"causes": ["copies", "casts"], "without": {"ms": 50.0}, "done": {"ms": 40.0}}
    (tmp_path / "tokenise" / "actions.jsonl").write_text(json.dumps(row) + "\n")
    found = with_measured_twins(look, tmp_path).answers["tokenise"]
    assert found.actions == {"copies": 0.2, "casts": 0.2}
    assert replace(found, actions={}) == look.answers["tokenise"]


def test_a_word_of_many_other_causes_is_generous() -> None:
    launch = an_answer(100.0, 50.0, (said("The GPU waits for launches"),), ())
    look = a_look(decode_launches=launch, loader=launch, tokenise=launch, pageable=launch)
    assert "launch" in look.generous
    assert [one.strict for one in look.judged] == [None] * 4
    assert [one.rank for one in look.judged].count(1) == 1


@pytest.mark.parametrize(
    "name",
    [
        *("first_look.json", "third_set_look.json", "fourth_set_look.json"),
        *("fifth_set_look.json", "sixth_set_look.json", "seventh_set_look.json"),
        *("eighth_set_look.json", "ninth_set_look.json", "tenth_set_look.json"),
        *("eleventh_set_look.json", "twelfth_set_look.json"),
        "thirteenth_set_look.json",
        "fourteenth_set_look.json",
        "fifteenth_set_look.json",
        "sixteenth_set_look.json",
        "seventeenth_set_look.json",
        "eighteenth_set_look.json",
        "nineteenth_set_look.json",
        "twentieth_set_look.json",
    ],
)
def test_a_recorded_first_look_is_of_all_programs_and_names_no_folder(name: str) -> None:
    file = PROGRAMS / name
    look = read_look(file)
    assert set(look.answers) == {
        program["name"] for program in planted(look.programs) if "not_run" not in program
    }
    assert re.fullmatch("[0-9a-f]{40}", look.commit)
    assert not re.search(r"/(opt|root|home|work|tmp)/", file.read_text(encoding="utf-8"))


def test_what_was_run_is_collected_and_read_again(tmp_path: Path) -> None:
    folder = tmp_path / "loader"
    (folder / "slow" / "report").mkdir(parents=True)
    finding: dict[str, Any] = {
        "rank": 1, "title": "GEMM: waits", "sentence": "At loader.py:53 in run.", "action": "Do.",
        "cause": "host_bound", "gain_ns": 2.5e6,
    }  # fmt: skip
    metrics = {
        "created": "2026-11-24T02:27:45Z",
        "run_time": {"whole_ns": 5e6, "gpu": "NVIDIA H200"},
        "kernels": [{"short_name": "GEMM"}, {"short_name": "copy"}],
        "findings": [{**finding, "rank": None}, finding],
    }
    (folder / "slow" / "report" / "metrics.json").write_text(json.dumps(metrics))
    with pytest.raises(ArtifactUnreadable, match="no program ran"):
        collect(tmp_path, "c0ffee")
    times = [{"repaired": False, "ms": 5.0}, {"repaired": True, "ms": 2.0}]
    (folder / "times.jsonl").write_text("\n".join(map(json.dumps, times)))
    look = collect(tmp_path, "c0ffee")
    expected = Said("GEMM: waits", "At loader.py:53 in run.", "Do.", "host_bound", 0.5, ("GEMM",))
    assert look.answers == {"loader": Answer(5.0, 2.0, 5.0, None, (expected,), None)}
    write_look(tmp_path / "look.json", look)
    assert read_look(tmp_path / "look.json") == look
    (tmp_path / "look.json").write_text("{}")
    with pytest.raises(ArtifactUnreadable, match="no look"):
        read_look(tmp_path / "look.json")


def test_what_was_run_already_is_not_run_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "loader" / "slow" / "report").mkdir(parents=True)
    (tmp_path / "loader" / "slow" / "report" / "metrics.json").write_text("{}")
    assert main([str(tmp_path), "loader", "--steps", "slow"]) == 0
    assert "loader slow: there already" in capsys.readouterr().out
    assert main([str(tmp_path), "loader", "--steps", "times", "--within", "0"]) == 1
    assert "loader times: no time left" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="no program is called nothing"):
        main([str(tmp_path), "nothing"])


def test_reports_give_the_intervals_of_the_first_looks() -> None:
    assert FILE.read_text(encoding="utf-8") == as_yaml()


def test_intervals_from_other_looks_hold_what_repairs_of_one_saved() -> None:
    priced = [one for one in repairs() if one.rule != UNPRICED]
    known_without = {
        look: intervals([other for other in priced if other.look != look])
        for look in {one.look for one in priced}
    }
    covered = []
    for one in priced:
        known = known_without[one.look]
        _, low, high = known.get(one.rule, known[OTHERS])
        covered.append(low <= one.factor <= high)
    assert len(covered) > 200
    assert sum(covered) / len(covered) == pytest.approx(ENDS[1] - ENDS[0], abs=0.05)
