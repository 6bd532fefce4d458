"""What a case of the fuzzer is: real inputs, a command, and what the command must bear out."""

from __future__ import annotations

import lzma
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from nsight_prof.orchestrator.cli import main as prof
from nsight_prof.orchestrator.cli import report_error
from nsight_prof.parsers.errors import ProfError

ROOT = Path(__file__).resolve().parents[2]
CAPTURE = ROOT / "captures/h200-known-gemm"


class Wrong(Exception):
    """prof accepted a file and says something else than the file."""


@dataclass
class Inputs:
    """Real inputs, unpacked once."""

    folder: Path
    sqlite: bytes = b""
    run: Path = field(default_factory=Path)
    texts: dict[str, bytes] = field(default_factory=dict)

    @classmethod
    def prepare(cls, folder: Path) -> Inputs:
        """Unpack the inputs into `folder` and make the tables of the recorded run."""
        run = folder / "run"
        shutil.copytree(CAPTURE, run)
        for packed in run.rglob("*.xz"):
            packed.with_suffix("").write_bytes(lzma.decompress(packed.read_bytes()))
            packed.unlink()
        fixtures = ROOT / "tests/fixtures"
        sums = sorted((fixtures / "nsys_stats").glob("[b-m]*gpu_kern*sum.csv.xz"))
        pages = sorted((fixtures / "ncu_csv").glob("*.csv.xz"))
        chosen = [*sums, pages[0], *sorted((fixtures / "ncu_rules").glob("*.xz"))]
        code = prof(["export", str(run), "--format", "csv", "-o", str(folder / "tables")])
        if code:
            raise RuntimeError("the recorded run cannot be exported")
        sqlite = (run / "steps/1-trace/trace.sqlite").read_bytes()
        return cls(folder, sqlite, run, {p.stem: lzma.decompress(p.read_bytes()) for p in chosen})


@dataclass
class Case:
    """One mutated input: the command, and what is checked where the command ends with 0."""

    argv: list[str]
    check: Callable[[], None]
    call: Callable[[list[str]], int] = prof


def as_command(read: Callable[[], object]) -> int:
    """Read something as the command line would that has no command of its own."""
    try:
        read()
    except ProfError as error:
        return report_error(error.message, error.hint, error.exit_code)
    return 0


def same(what: str, ours: object, theirs: object) -> None:
    """Raise Wrong where two values differ."""
    if ours != theirs:
        raise Wrong(f"{what}: {ours!r:.200} where the file says {theirs!r:.200}")
