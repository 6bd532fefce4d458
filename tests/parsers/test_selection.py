"""Selection files, written by us or by hand."""

from dataclasses import replace
from pathlib import Path

import pytest

from nsight_prof.parsers.errors import ArtifactUnreadable
from nsight_prof.parsers.run.selection import (
    SelectedKernel,
    Selection,
    read_selection,
    write_selection,
)

KERNEL = SelectedKernel(
    kernel_id="k0123456789",
    short_name="cuBLAS GEMM, bf16",
    name="nvjet_tst",
    mangled_name="nvjet_tst",
    grid="2x66x1",
    block="384x1x1",
    share=0.25,
    launch=1,
    dtype="bf16",
)


def test_a_selection_reads_back_as_written(tmp_path: Path) -> None:
    left_out = [{"short_name": "ä·b", "kernels": 2, "share": 0.1, "reason": "beyond the top 1"}]
    selection = Selection([KERNEL], 1, 2, 0.25, left_out, ["a note"])
    write_selection(tmp_path / "top.yaml", selection)
    assert read_selection(tmp_path / "top.yaml") == selection


def test_a_file_by_hand_needs_the_kernels_only(tmp_path: Path) -> None:
    optional = ("dtype", "deviation", "deciles_ns", "traced")
    lines = [f"  {key}: {value!r}" for key, value in vars(KERNEL).items() if key not in optional]
    lines[0] = "- " + lines[0].strip()
    (tmp_path / "hand.yaml").write_text("kernels:\n" + "\n".join(lines) + "\n")
    selection = read_selection(tmp_path / "hand.yaml")
    assert (selection.skip, selection.count, selection.share) == (0, 1, None)
    assert selection.kernels[0].dtype == ""
    assert selection.kernels[0].name == "nvjet_tst"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "just text",
        "[1, 2]",
        "skip: 1",
        "kernels: 3",
        "kernels: [{kernel_id: k1}]",
        "kernels: []\nno_such_key: 1",
        "kernels: [\n",
    ],
)
def test_another_file_is_refused_with_the_command_that_makes_one(tmp_path: Path, text: str) -> None:
    (tmp_path / "other.yaml").write_text(text)
    with pytest.raises(ArtifactUnreadable, match=r"other\.yaml is not a kernel selection") as error:
        read_selection(tmp_path / "other.yaml")
    assert "prof top-kernels" in error.value.hint


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArtifactUnreadable):
        read_selection(tmp_path / "missing.yaml")


def test_notes_about_kernels_of_an_older_version_become_their_fields(tmp_path: Path) -> None:
    path = tmp_path / "kernels.yaml"
    name = "cuBLAS GEMM, bf16 (k0123456789)"
    notes = [
        f"{name}: profiled at launch 1, 30% shorter than most of its time",
        f"{name}: its launches take 2 to 9 us (first to ninth decile), so the one that is profiled "
        "does not stand for all",
    ]
    write_selection(path, Selection([KERNEL], notes=["one", *notes]))
    text = path.read_text()
    for name in ("deviation", "deciles_ns", "traced"):
        text = "".join(line for line in text.splitlines(True) if f"  {name}:" not in line)
    path.write_text(text.replace("format_version: 2", "format_version: 1"))
    selection = read_selection(path)
    assert selection.kernels == [replace(KERNEL, deviation=-0.3, deciles_ns=(2e3, 9e3))]
    assert selection.notes == ["one"]
    assert selection.warnings() == ["one", *notes]


def test_a_launch_that_does_not_stand_for_its_kernel_is_warned_of() -> None:
    off = replace(KERNEL, deviation=-0.2, deciles_ns=(2e3, 9e3))
    name = "cuBLAS GEMM, bf16 (k0123456789)"
    assert Selection([KERNEL, off], notes=["one"]).warnings() == [
        "one",
        f"{name}: profiled at launch 1, 20% shorter than most of its time",
        f"{name}: its launches take 2 to 9 us (first to ninth decile), so the one that is profiled "
        "does not stand for all",
    ]
    assert replace(KERNEL, deviation=0.04).warnings() == []
