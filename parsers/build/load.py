"""Opens a run directory, and builds its tables where it has none yet."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from nsight_prof.parsers.errors import ProfError
from nsight_prof.parsers.run.directory import RunDir, read_manifest
from nsight_prof.parsers.run.run import Run


def load_run(path: Path | str) -> Run:
    """Open the run directory `path`; a run that has no tables yet gets them first.

    A sweep has its tables in its variants: `load_run(path).variants`. A job has tables `ranks` and
    `rank_kernels`; `load_run(path / "ranks" / "0003")` is the run of one rank.

    Raises:
        UsageError: the folder is not a run directory.
        ArtifactUnreadable: the manifest is damaged.
        SchemaTooNew: a newer version of prof wrote it.
        StepFailed: the tables are missing and cannot be written.
    """
    directory = RunDir(Path(path))
    run = Run(directory.path, read_manifest(directory))
    for variant in run.manifest.variants:
        load_run(directory.variant(variant).path)
    if directory.tables.is_dir() or run.manifest.variants:
        return run
    # What makes tables takes a while to import, and nearly all runs have theirs.
    if run.manifest.ranks:
        from nsight_prof.parsers.build.rank_tables import build_rank_tables

        for record in run.manifest.ranks:
            with suppress(ProfError):  # the table of the job says why
                load_run(directory.rank(record.rank).path)
        build_rank_tables(directory)
    else:
        from nsight_prof.parsers.build.run_tables import build_tables

        build_tables(directory)
    return run


def load_variants(sweep: RunDir) -> dict[str, Run | ProfError]:
    """Open every variant of a sweep by name; one that cannot be opened is there with its error.

    Raises:
        UsageError: the folder is not a run directory.
    """
    found: dict[str, Run | ProfError] = {}
    for name in read_manifest(sweep).variants:
        try:
            found[name] = load_run(sweep.variant(name).path)
        except ProfError as error:
            found[name] = error
    return found
