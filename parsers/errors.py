"""The one error family: every failure says what failed, on what, and what to do.

A class exists where a caller or the exit code differs. The command line catches `ProfError` in one
place and prints ``error: …``, a blank line and ``hint: …``.
"""

from __future__ import annotations


class ProfError(Exception):
    """A failure with a remedy.

    Args:
        message: what failed, and on what (file, key, command).
        hint: what the reader should do next.
    """

    exit_code = 1

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __reduce__(self) -> tuple[type[ProfError], tuple[str, str]]:
        """Let it be raised in another process than the one that raised it."""
        return type(self), (self.message, self.hint)


class StepFailed(ProfError):
    """A step of a run failed; what was captured before is kept (exit code 1)."""

    exit_code = 1


class UsageError(ProfError):
    """Asked wrongly: an option, a recipe or a combination that cannot work (exit code 2)."""

    exit_code = 2


class RecipeError(UsageError):
    """A recipe that cannot be read or does not fit the schema (exit code 2)."""


class ToolMissing(ProfError):
    """A tool, a GPU or a permission is missing (exit code 3)."""

    exit_code = 3


class PermissionRefused(ToolMissing):
    """The driver refuses access to the GPU performance counters (exit code 3)."""


class ArtifactUnreadable(ProfError):
    """A file that cannot be read as what it should be (exit code 4)."""

    exit_code = 4


class NoKernels(ArtifactUnreadable):
    """A readable trace or report that holds no GPU kernel (exit code 4)."""


class SchemaTooNew(ArtifactUnreadable):
    """A file written by a newer version than this one understands (exit code 4)."""


class Interrupted(ProfError):
    """The user stopped the run; what is finished is kept and resumable (exit code 130)."""

    exit_code = 130
