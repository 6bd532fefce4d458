"""Makes the Nsight Systems inside a Nsight Compute installation usable, without touching it.

The bundled CLI captures, and then fails to import: it looks for `../host-linux-x64/QdstrmImporter`
while the bundle calls that folder `linux-desktop-*`, and the importer needs `libdw.so.1`. A folder
of links that has both names and that library works (nsys 2025.3.1 in Nsight Compute 2025.3.1).
"""

from __future__ import annotations

import glob
import os
import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from nsight_prof.parsers.errors import ToolMissing

BUNDLES = (
    "/opt/nvidia/nsight-compute/*/host/target-linux-x64/nsys",
    "/usr/local/cuda*/nsight-compute*/host/target-linux-x64/nsys",
)
HOST, TARGET = "host-linux-x64", "target-linux-x64"
IMPORTER = "QdstrmImporter"
LIBRARIES = ("libdw.so.1", "libelf.so.1")
LIBRARY_FOLDERS = (
    "/usr/lib/x86_64-linux-gnu",
    "/lib/x86_64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/opt/conda/lib",
)
# The CLI finds its own folder through /proc/self/exe, so these must be real files, not links.
EXECUTABLES = (f"{TARGET}/nsys", f"{TARGET}/nsys-launcher", f"{HOST}/{IMPORTER}")


@dataclass(frozen=True)
class Bundle:
    """An Nsight Systems inside another installation; `root` holds its target and host folders."""

    nsys: Path

    @property
    def root(self) -> Path:
        """The folder that holds `target-linux-x64`."""
        return self.nsys.parent.parent

    @property
    def host(self) -> Path | None:
        """The folder that holds the importer, whatever it is called."""
        names = [HOST, *sorted(path.name for path in self.root.glob("linux-desktop-*"))]
        return next((self.root / n for n in names if (self.root / n / IMPORTER).exists()), None)


def find_bundles(patterns: Sequence[str] = BUNDLES) -> list[Bundle]:
    """Return the bundled Nsight Systems of this machine, the newest version first."""
    found = {Path(p) for pattern in patterns for p in glob.glob(pattern)}
    return [Bundle(path) for path in sorted(found, key=_version, reverse=True)]


def bundle_of(program: str) -> Bundle | None:
    """Return the installation that `program` (a path) lies in, or None for a wrapper script."""
    path = Path(program).resolve()
    return Bundle(path) if path.parent.name == TARGET else None


def missing(bundle: Bundle, environment: Mapping[str, str]) -> list[str]:
    """Return what the bundle lacks to import, in words; empty where it works as it is."""
    if bundle.host is None:
        return [f"{IMPORTER} (the installation holds no importer)"]
    if bundle.host.name == HOST:
        return []  # a whole installation of Nsight Systems
    lacks = [f"the link {bundle.root / HOST} -> {bundle.host.name}"]
    for name in LIBRARIES:
        if find_library(name, environment, bundle) is None:
            lacks.append(f"the library {name}")
    return lacks


def find_library(
    name: str, environment: Mapping[str, str], bundle: Bundle | None = None
) -> Path | None:
    """Return a shared library: from PROF_NSYS_LIBS, the bundle, or the usual folders."""
    folders = [*environment.get("PROF_NSYS_LIBS", "").split(":")]
    if bundle is not None and bundle.host is not None:
        folders.append(str(bundle.host))
    folders += [*environment.get("LD_LIBRARY_PATH", "").split(":"), *LIBRARY_FOLDERS]
    places = (Path(folder) / name for folder in folders if folder)
    return next((path for path in places if path.is_file()), None)


def build_shim(bundle: Bundle, environment: Mapping[str, str]) -> Path:
    """Make the folder of links in the user's cache, once for each installation; return its nsys.

    Raises:
        ToolMissing: the importer or one of its libraries is nowhere on this machine.
    """
    libraries = {name: find_library(name, environment, bundle) for name in LIBRARIES}
    absent = [name for name, path in libraries.items() if path is None]
    if bundle.host is None or absent:
        raise ToolMissing(
            f"{bundle.nsys} cannot import what it captures: "
            f"{', '.join(absent) or IMPORTER} is missing",
            "apt-get install libdw1 (or dnf install elfutils-libs), or put the libraries into a "
            "folder and name it in PROF_NSYS_LIBS",
        )
    shim = cache_folder(environment) / f"nsys-{_slug(bundle)}"
    if not (shim / TARGET / "nsys").is_file():
        shim.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=shim.parent, prefix=".nsys-") as partial:
            _link_all(bundle.root / TARGET, Path(partial) / TARGET)
            _link_all(bundle.host, Path(partial) / HOST)
            for path in filter(None, libraries.values()):
                _install(path, Path(partial) / HOST / path.name)
            for name in EXECUTABLES:
                _make_real(Path(partial) / name)
            shutil.rmtree(shim, ignore_errors=True)
            os.rename(partial, shim)
            Path(partial).mkdir()  # what the context manager removes
    return shim / TARGET / "nsys"


def cache_folder(environment: Mapping[str, str]) -> Path:
    """Return prof's cache folder: XDG_CACHE_HOME/prof or ~/.cache/prof."""
    base = environment.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(base) / "prof"


def _link_all(source: Path, target: Path) -> None:
    """Copy the tree of folders with a link in place of each file."""
    shutil.copytree(source.resolve(), target, copy_function=os.symlink)


def _install(source: Path, target: Path) -> None:
    target.unlink(missing_ok=True)
    shutil.copy2(source.resolve(), target)


def _make_real(link: Path) -> None:
    if link.is_symlink():
        _install(link.resolve(), link)


def _version(path: Path) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", str(path))]


def _slug(bundle: Bundle) -> str:
    stamp = int(bundle.nsys.stat().st_mtime)
    return f"{re.sub(r'[^A-Za-z0-9.]+', '-', str(bundle.root)).strip('-')}-{stamp}"
