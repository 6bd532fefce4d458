"""What a recipe needs besides its program."""

import json
import tarfile
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from nsight_prof.orchestrator.commands.recipes.assets import command


def assets(*words: str) -> Result:
    return CliRunner().invoke(command, words)


def test_bundled_models_and_pages_are_there() -> None:
    done = assets("ocr-pages", "--json")
    assert done.exit_code == 0, done.output
    model, pages = json.loads(done.output)
    assert (Path(model["path"]) / "config.json").is_file()
    assert (Path(pages["path"]) / "page-1.png").is_file()


def test_what_is_missing_is_told_with_the_places(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    done = assets("inference", "--set", "target.args.model=acme/none")
    assert done.exit_code == 3
    assert "model acme/none: missing" in done.output
    assert str(tmp_path / "hf") in done.output


@pytest.mark.parametrize("inside", ["page.png", "scans/page.png"])
def test_models_are_linked_and_archives_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inside: str
) -> None:
    model = tmp_path / "snapshots" / "acme" / "ocr"
    model.mkdir(parents=True)
    (model / "config.json").write_text("{}")
    page = tmp_path / "page.png"
    page.touch()
    with tarfile.open(tmp_path / "scans.tar.gz", "w:gz") as packed:
        packed.add(page, inside)
    monkeypatch.setenv("HF_SNAPSHOTS_ROOT", str(tmp_path / "snapshots"))
    monkeypatch.setenv("DATASETS_ROOT", str(tmp_path))
    words = ("--set", "target.args.model=acme/ocr", "--set", "dataset.root=scans")
    into = tmp_path / "into"
    done = assets("inference", *words, "--into", str(into))
    if not hasattr(tarfile, "data_filter"):  # Python 3.11.0 to 3.11.3
        assert "use Python 3.11.4 or later" in getattr(done.exception, "hint", "")
        return
    assert done.exit_code == 0, done.output
    assert (into / "models/ocr").resolve() == model
    assert (into / "datasets/scans/page.png").is_file()
    again = assets("inference", *words, "--into", str(into))
    assert again.exit_code != 0


def test_an_archive_cannot_write_outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "evil").touch()
    with tarfile.open(tmp_path / "scans.tar", "w") as packed:
        packed.add(tmp_path / "evil", "../../escaped")
    monkeypatch.setenv("DATASETS_ROOT", str(tmp_path))
    done = assets("inference", "--set", "dataset.root=scans", "--into", str(tmp_path / "a/b/c"))
    assert done.exit_code != 0
    assert not list(tmp_path.rglob("escaped"))
