"""Says of a file whose content no reader foresaw that it cannot be read, and why.

Only what reads a file stands inside of `reading`, never a caller's own work: what goes wrong there
is a defect and must look like one.
"""

from __future__ import annotations

import csv
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from nsight_prof.parsers.errors import ArtifactUnreadable

Method = TypeVar("Method", bound=Callable[..., Any])
UNFIT = (ValueError, TypeError, LookupError, ArithmeticError, AttributeError, RecursionError)
"""What readers raise over values that nobody writes; `--debug` shows where."""


@contextmanager
def reading(path: Path, what: str, hint: str) -> Iterator[None]:
    """Read `path` as `what` inside: whatever its content makes go wrong is said of the file.

    Raises:
        ArtifactUnreadable: the file is damaged, holds values that its tool does not write, or needs
            more memory than there is.
    """
    try:
        yield
    except MemoryError as error:
        raise ArtifactUnreadable(
            f"{path} needs more memory to be read as {what} than there is", hint
        ) from error
    except _unfit() as error:
        raise ArtifactUnreadable(
            f"{path} cannot be read as {what}: {reason(error)}", hint
        ) from error
    except OSError as error:
        if error.errno is not None:  # of the disk, not of what is on it
            raise
        raise ArtifactUnreadable(
            f"{path} cannot be read as {what}: {reason(error)}", hint
        ) from error


def _unfit() -> tuple[type[Exception], ...]:
    # Only where something went wrong: a rank of a job would wait for it before its program begins.
    import pyarrow as pa

    return (*UNFIT, EOFError, csv.Error, sqlite3.Error, pa.ArrowException)


def reads(what: str, hint: str) -> Callable[[Method], Method]:
    """Let a method read the file that its object names as `path`; see `reading`."""

    def decorate(method: Method) -> Method:
        @wraps(method)
        def read(self: Any, *args: Any, **options: Any) -> Any:
            with reading(self.path, what, hint):
                return method(self, *args, **options)

        return read  # type: ignore[return-value]

    return decorate


def reason(error: BaseException) -> str:
    """Return the first line of what an error says, with its kind where that is all there is."""
    if isinstance(error, ValidationError):
        first, *more = error.errors(include_url=False, include_context=False)
        path = ".".join(str(key) for key in first["loc"])
        others = f" (and {len(more)} more)" if more else ""
        return f"{path + ': ' if path else ''}{first['msg'][:300]}{others}"
    line = str(error).strip().partition("\n")[0][:300]
    return line if len(line.split()) > 1 else f"{type(error).__name__} {line}".strip()
