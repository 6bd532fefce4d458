"""Keeps the manifest of a run true at every moment: each change of a step's state is written."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from nsight_prof.orchestrator.plan.plan import Step
from nsight_prof.orchestrator.run.work import Result
from nsight_prof.orchestrator.system.process import end_leftovers
from nsight_prof.orchestrator.system.secrets import Environment, mask_logs
from nsight_prof.parsers.errors import Interrupted, ProfError, StepFailed
from nsight_prof.parsers.run.artifacts import describe, differences
from nsight_prof.parsers.run.directory import (
    Manifest,
    RunDir,
    StepRecord,
    StepState,
    write_manifest,
)
from nsight_prof.parsers.run.sentences import stored

PARTIAL = ".partial"
DISK_FULL = (28, 122)  # ENOSPC, EDQUOT


class Journal:
    """The manifest of the run in `run`, kept on disk without the secrets of `environment`."""

    def __init__(self, run: RunDir, manifest: Manifest, environment: Environment) -> None:
        self.run = run
        self.manifest = manifest
        self._environment = environment

    def save(self) -> None:
        """Write the manifest."""
        redact = self._environment.redact_all
        self.manifest.recipe = redact(self.manifest.recipe)
        self.manifest.assumptions = redact(self.manifest.assumptions)
        for record in self.manifest.steps:
            record.argv, record.warnings = redact(record.argv), redact(record.warnings)
            record.error, record.hint = redact(record.error), redact(record.hint)
        write_manifest(self.run, self.manifest)

    def plan(self, steps: tuple[Step, ...]) -> None:
        """Give the manifest one record a step; records whose id still holds are kept.

        A step that must be done again gets the reason: the inputs that changed.
        """
        old = {record.name: record for record in self.manifest.steps}
        planned: dict[str, StepRecord] = {}
        for step in steps:
            planned[step.name] = self._planned(step, old.get(step.name), planned)
        self.manifest.steps = list(planned.values())
        self.save()

    @contextmanager
    def doing(self, step: Step, record: StepRecord) -> Iterator[tuple[Path, Result]]:
        """Give the step a folder to work in; afterwards the record says how it went.

        The folder is absolute, because tools run in the target's folder. It is `….partial` while
        the step works, and `….failed-N` if it fails.

        Raises:
            Interrupted: Ctrl-C.
            StepFailed: the disk is full.
        """
        result = Result()
        folder = self._open(step, result)
        started, began = datetime.now(UTC), time.monotonic()
        record.state, record.started = StepState.RUNNING, _stamp(started)
        record.finished, record.error, record.hint = "", "", ""
        self.save()
        try:
            with plain_errors(self.run.path):
                yield folder, result
                self._close(step, record, folder)
        except BaseException as error:
            self._failed(record, folder, error)
            raise
        finally:
            # The clock of the machine may be set meanwhile, also back.
            record.seconds = round(time.monotonic() - began, 3)
            record.finished = _stamp(started + timedelta(seconds=record.seconds))
            record.argv, record.exit_code = result.argv, result.exit_code
            record.warnings = result.warnings
            if result.error is not None and record.state == StepState.DONE:
                record.error, record.hint = result.error.message, result.error.hint
            # A disk that is full keeps the last manifest: `running`, which a resume does again.
            with contextlib.suppress(OSError):
                self.save()

    def _planned(
        self, step: Step, old: StepRecord | None, planned: Mapping[str, StepRecord]
    ) -> StepRecord:
        inputs = {name: self._environment.redact(text) for name, text in step.inputs.items()}
        if old is None:
            return StepRecord(step.name, id=step.id, inputs=inputs)
        lost = self._lost(step, old)
        again = any(planned[name].state != StepState.DONE for name in step.needs)
        if old.state == StepState.DONE and old.id == step.id and not (lost or again or old.error):
            return old
        reason = lost or _reason(step, inputs, old)
        return StepRecord(step.name, id=step.id, inputs=inputs, rerun_reason=reason)

    def _lost(self, step: Step, old: StepRecord) -> str:
        """Say what of a finished step is not there any more as it was."""
        folder = self.run.path / step.directory
        if old.state != StepState.DONE or not step.directory:
            return ""
        if not folder.is_dir():
            return f"its folder {step.directory} is gone"
        changed = "; ".join(differences(folder, old.files))
        return changed and f"{step.directory} is not what it left: {changed}"

    def _open(self, step: Step, result: Result) -> Path:
        if not step.directory:
            return self.run.path.absolute()
        final = self.run.path.absolute() / step.directory
        partial = final.with_name(final.name + PARTIAL)
        ended = end_leftovers(partial)
        if ended:
            result.warnings.append(
                stored(
                    "{ended} processes that an earlier, killed run had started still ran; "
                    "they were ended",
                    ended=ended,
                )
            )
        # What a killed run left is evidence, and so are captures of other inputs.
        mask_logs(partial, self._environment.secrets)
        keep(partial, "failed")
        keep(final, "replaced")
        partial.mkdir(parents=True)
        return partial

    def _close(self, step: Step, record: StepRecord, folder: Path) -> None:
        if step.directory:
            record.files = describe(folder)
            os.rename(folder, self.run.path / step.directory)
        record.directory = step.directory
        record.state = StepState.DONE

    def _failed(self, record: StepRecord, folder: Path, error: BaseException) -> None:
        copy = None
        if folder.name.endswith(PARTIAL):
            with contextlib.suppress(OSError):
                copy = keep(folder, "failed")
        if isinstance(error, ProfError):
            where = str(folder), str(copy or folder)
            error.message = self._environment.redact(error.message.replace(*where))
            error.hint = self._environment.redact(error.hint)
            error.args = (error.message,)
        record.state, record.directory = StepState.FAILED, ""
        record.error = error.message if isinstance(error, ProfError) else repr(error)
        record.hint = error.hint if isinstance(error, ProfError) else ""


def keep(folder: Path, reason: str) -> Path | None:
    """Rename a step's folder to `<n>-<name>.<why>-<k>`; None where there is none."""
    if not folder.exists():
        return None
    stem = folder.name.removesuffix(PARTIAL)
    number = 1
    while (target := folder.with_name(f"{stem}.{reason}-{number}")).exists():
        number += 1
    os.rename(folder, target)
    return target


def _reason(step: Step, inputs: dict[str, str], old: StepRecord) -> str:
    """Say why a step of a resumed run is done again."""
    if old.state != StepState.DONE:
        return f"it did not finish ({old.state})"
    if old.error:
        return f"it was done in part: {old.error}"
    names = sorted(inputs.keys() | old.inputs.keys())
    changed = [name for name in names if inputs.get(name) != old.inputs.get(name)]
    if changed:
        return f"changed: {', '.join(changed)}"
    return f"a step that it builds on is done again: {', '.join(step.needs)}"


@contextmanager
def plain_errors(folder: Path) -> Iterator[None]:
    """Turn Ctrl-C and a full disk into errors that say how to go on with the run in `folder`."""
    try:
        yield
    except KeyboardInterrupt as error:
        if not RunDir(folder).manifest_path.is_file():
            raise Interrupted("interrupted before the first step", "start it again") from error
        raise Interrupted(
            "interrupted; what was finished is kept", f"continue with: {resume(folder)}"
        ) from error
    except OSError as error:
        if error.errno in DISK_FULL:
            begun = RunDir(folder).manifest_path.is_file()
            raise StepFailed(
                f"the disk is full: {error.strerror}: {error.filename or folder}",
                f"free space, then continue with: {resume(folder)}"
                if begun
                else "free space, or choose another folder with --out",
            ) from error
        raise


@contextmanager
def told_where(folder: Path) -> Iterator[None]:
    """Add to the hint of an error where the run is and how to go on with it."""
    try:
        yield
    except ProfError as error:
        if RunDir(folder).manifest_path.is_file() and "--resume" not in error.hint:
            error.hint += (
                f"\n      what was captured is kept; continue with: {resume(folder)}"
                f"\n      a report of it, on any machine: prof report {folder}"
            )
        raise


def resume(folder: Path) -> str:
    """Return the command that goes on with the run in `folder`."""
    return f"prof run … --resume {folder}"


def _stamp(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
