"""The digest of a target covers what the target is made of, and nothing else."""

import hashlib
from pathlib import Path

import pytest

from nsight_prof.orchestrator.plan.target_digest import digest_of


@pytest.fixture
def target(tmp_path: Path) -> Path:
    """A target in a package, with a harness beside it and a target that has nothing to do with it.

    It imports at the top, relatively, and inside a function.
    """
    files = {
        "pack/__init__.py": "",
        "pack/other.py": "print(1)",
        "pack/harness/__init__.py": "from pack.harness.clock import now\n",
        "pack/harness/clock.py": "import time\nnow = time.time\n",
        "pack/roofs/__init__.py": "",
        "pack/roofs/run.py": "from pack import harness\nfrom . import memory\n"
        "def late():\n    from pack.roofs.compute import go\n",
        "pack/roofs/memory.py": "",
        "pack/roofs/memory.cu": "__global__ void f() {}",
        "pack/roofs/compute.py": "go = 1",
        "pack/roofs/unused.py": "",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "pack/roofs/run.py"


@pytest.mark.parametrize(
    ("name", "matters"),
    [
        ("roofs/run.py", True),
        ("roofs/memory.py", True),
        ("roofs/memory.cu", True),
        ("roofs/compute.py", True),
        ("harness/__init__.py", True),
        ("harness/clock.py", True),
        ("__init__.py", True),
        ("other.py", False),
        ("roofs/unused.py", False),
    ],
)
def test_a_change_of_what_the_target_uses_changes_it(
    target: Path, name: str, matters: bool
) -> None:
    before = digest_of(target)
    path = target.parent.parent / name
    path.write_text(path.read_text() + "\n# changed\n")
    assert (digest_of(target) != before) is matters


def test_sources_of_a_target_in_the_outermost_package_are_told_by_their_names(
    target: Path,
) -> None:
    single = target.parent.parent / "other.py"
    before = digest_of(single)
    (single.parent / "another.cu").write_text("")
    assert digest_of(single) == before
    (single.parent / "other_copy.cu").write_text("")
    assert digest_of(single) != before


def test_a_lone_script_is_its_bytes(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import model\n")
    (tmp_path / "model.py").write_text("")
    assert digest_of(script) == hashlib.sha256(script.read_bytes()).hexdigest()


def test_a_target_that_is_no_python_has_a_digest_too(target: Path) -> None:
    target.write_text("def broken(:\n")
    assert len(digest_of(target)) == 64


def test_the_bundled_roofline_covers_the_harness(root: Path) -> None:
    from nsight_prof.orchestrator.plan.target_digest import _root, _used

    run = root / "targets/roofline/run.py"
    folder = _root(run)
    assert folder == root
    names = {path.relative_to(root).as_posix() for path in _used(run, root)}
    assert {"targets/harness/run.py", "targets/roofline/tensor.py"} <= names
    assert "targets/llm_block.py" not in names
