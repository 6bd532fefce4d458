import os
import stat
from pathlib import Path
from typing import Any

import pytest

from nsight_prof.orchestrator.system import discover
from nsight_prof.orchestrator.system.process import ask
from nsight_prof.orchestrator.tools import shim
from nsight_prof.parsers.errors import ToolMissing

# As the real one: it finds its folder through /proc/self/exe, and asks the importer there. A
# script has no such path of its own, so it uses its real one, links followed.
NSYS = """#!/bin/sh
here=$(dirname "$(readlink -f "$0")")
if [ "$1" = --version ]; then echo "NVIDIA Nsight Systems version 2025.3.1.0-1v0"; exit 0; fi
if [ "$2" = --help ]; then echo "  --output="; exit 0; fi
exec "$here/../host-linux-x64/QdstrmImporter"
"""
IMPORTER = """#!/bin/sh
here=$(dirname "$(readlink -f "$0")")
[ -f "$here/libdw.so.1" ] && [ -f "$here/libelf.so.1" ] && [ -e "$here/Plugins/x.so" ] || exit 1
echo imported
"""


@pytest.fixture
def bundle(tmp_path: Path) -> Any:
    """An Nsight Systems as Nsight Compute 2025.3.1 carries it."""
    root = tmp_path / "nsight-compute/2025.3.1/host"
    target, host = root / "target-linux-x64", root / "linux-desktop-glibc_2_11_3-x64"
    (host / "Plugins").mkdir(parents=True)
    target.mkdir()
    (host / "Plugins/x.so").write_text("")
    for path, text in [(target / "nsys", NSYS), (host / "QdstrmImporter", IMPORTER)]:
        path.write_text(text)
        path.chmod(0o755)
    (target / "nsys-launcher").write_text("")
    for path in root.rglob("*"):
        path.chmod(path.stat().st_mode & ~stat.S_IWUSR)
    return shim.Bundle(target / "nsys")


@pytest.fixture
def variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """An environment with the two libraries in PROF_NSYS_LIBS and nowhere else."""
    monkeypatch.setattr(shim, "LIBRARY_FOLDERS", ())
    libraries = tmp_path / "lib"
    libraries.mkdir()
    for name in shim.LIBRARIES:
        (libraries / name).write_text("")
    return {
        "PATH": "/usr/bin:/bin",
        "PROF_NSYS_LIBS": str(libraries),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }


def test_the_bundle_cannot_import_as_it_is(bundle: Any) -> None:
    assert ask([str(bundle.nsys), "import"]).exit_code != 0


def test_the_shim_imports_and_leaves_the_installation_alone(bundle: Any, variables: Any) -> None:
    before = sorted((p, p.stat().st_mtime_ns) for p in bundle.root.rglob("*"))
    nsys = shim.build_shim(bundle, variables)
    assert ask([str(nsys), "import"]).stdout == "imported\n"
    assert sorted((p, p.stat().st_mtime_ns) for p in bundle.root.rglob("*")) == before
    assert str(nsys).startswith(variables["XDG_CACHE_HOME"])


def test_executables_are_real_files_and_the_rest_are_links(bundle: Any, variables: Any) -> None:
    root = shim.build_shim(bundle, variables).parent.parent
    assert not (root / "target-linux-x64/nsys").is_symlink()
    assert not (root / "host-linux-x64/QdstrmImporter").is_symlink()
    assert (root / "host-linux-x64/Plugins/x.so").is_symlink()


def test_the_shim_is_made_once(bundle: Any, variables: Any) -> None:
    first = shim.build_shim(bundle, variables).stat().st_ino
    assert shim.build_shim(bundle, variables).stat().st_ino == first


def test_what_is_missing_is_named(bundle: Any, variables: Any) -> None:
    variables["PROF_NSYS_LIBS"] = "/nowhere"
    lacks = shim.missing(bundle, variables)
    assert lacks[0].endswith("host-linux-x64 -> linux-desktop-glibc_2_11_3-x64")
    assert lacks[1:] == ["the library libdw.so.1", "the library libelf.so.1"]
    with pytest.raises(ToolMissing, match=r"libdw\.so\.1, libelf\.so\.1 is missing") as caught:
        shim.build_shim(bundle, variables)
    assert "libdw1" in caught.value.hint


def test_a_whole_installation_lacks_nothing(bundle: Any, variables: Any) -> None:
    bundle.root.joinpath("host-linux-x64").symlink_to("linux-desktop-glibc_2_11_3-x64")
    assert shim.missing(bundle, variables) == []


def test_nsys_is_found_inside_nsight_compute(
    bundle: Any, variables: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(discover, "NSYS_PLACES", ())
    monkeypatch.setattr(shim, "BUNDLES", (str(bundle.nsys),))
    tool = discover.find_nsys(variables)
    assert tool.version == "2025.3.1.0"
    assert "used through links in" in tool.note


def test_a_bundled_nsys_on_path_goes_through_the_shim_too(
    bundle: Any, variables: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(discover, "NSYS_PLACES", ())
    monkeypatch.setattr(shim, "BUNDLES", ())
    variables["PATH"] = f"{bundle.nsys.parent}:/usr/bin:/bin"
    assert ask([discover.find_nsys(variables).program, "import"]).exit_code == 0


def test_the_newest_bundle_comes_first(tmp_path: Path) -> None:
    for version in ("2024.3.2", "2025.10.0", "2025.3.1"):
        folder = tmp_path / version / "target-linux-x64"
        folder.mkdir(parents=True)
        (folder / "nsys").write_text("")
    found = shim.find_bundles([f"{tmp_path}/*/target-linux-x64/nsys"])
    assert [bundle.root.name for bundle in found] == ["2025.10.0", "2025.3.1", "2024.3.2"]


def test_the_cache_folder_is_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    assert os.fspath(shim.cache_folder({})) == "/home/someone/.cache/prof"
