"""Imports the traces of one job: each rank becomes a run directory of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from nsight_prof.orchestrator.imports.inputs import Given
from nsight_prof.orchestrator.imports.rank_numbers import number_ranks
from nsight_prof.parsers.errors import ProfError, UsageError
from nsight_prof.parsers.nsys.sqlite.identity import Identity
from nsight_prof.parsers.nsys.trace import open_trace
from nsight_prof.parsers.run.directory import Manifest, RankRecord, RunDir
from nsight_prof.parsers.run.sentences import stored

FAR_APART_S = 60.0
"""Pause between two traces from which on they are not of one job, or their clocks differ."""

Member = tuple[RunDir, Given, int]
"""Where a trace becomes a run, and its rank."""
Filled = tuple[Manifest, Identity]
"""What an import makes of a trace, and what tells it from those of other ranks."""
Fill = Callable[[Sequence[Member]], Iterator[Filled | ProfError]]
Skip = Callable[[Given, ProfError], None]


@dataclass
class Ranks:
    """The ranks of a job in the order of their numbers, with the manifests of their runs."""

    basis: str
    records: list[RankRecord] = field(default_factory=list)
    members: list[Manifest] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def import_ranks(job: RunDir, traces: Sequence[Given], fill: Fill, skip: Skip) -> Ranks:
    """Import all traces into `job.rank(…)`; `fill` yields what each becomes, or why nothing.

    Raises:
        UsageError: two files have one rank, are the same, hold the same process, or one host
            recorded them one after the other.
        ProfError: as `fill` yields; `skip` is asked first, and raises where a file was named.
    """
    numbers = number_ranks([trace.name for trace in traces])
    found = Ranks(numbers.basis)
    identities: list[Identity] = []
    refused: ProfError | None = None
    pairs = sorted(zip(numbers.numbers, traces, strict=True), key=lambda pair: pair[0])
    members = [(job.rank(rank), given, rank) for rank, given in pairs]
    for (_, given, rank), filled in zip(members, fill(members), strict=True):
        if isinstance(filled, ProfError):
            skip(given, filled)
            refused = filled
            continue
        member, identity = filled
        found.records.append(rank_record(rank, given.name, member, identity))
        found.members.append(member)
        identities.append(identity)
        _check_distinct(found.records)
    if refused is not None and not found.records:
        raise refused
    found.notes += _check_times(found.records, identities)
    return found


def identity_of(run: RunDir) -> Identity:
    """Return host, times, processes and devices of the trace of a run."""
    path = run.artifact("trace", "trace.sqlite")
    assert path is not None  # whoever imported it made it
    with open_trace(path) as trace:
        return trace.identity()


def rank_record(rank: int, file: str, member: Manifest, identity: Identity) -> RankRecord:
    """Return what the manifest of a job keeps of a rank with the run `member`."""
    uuids = {gpu.get("device"): str(gpu.get("uuid") or "") for gpu in member.gpus}
    return RankRecord(
        rank=rank,
        file=file,
        sha256=member.steps[0].inputs["sha256"],
        host=identity.host,
        started_ns=identity.begin_ns,
        pids=list(identity.pids),
        gpu_uuids=[uuid for device in identity.devices if (uuid := uuids.get(device, ""))],
    )


def _check_distinct(records: Sequence[RankRecord]) -> None:
    """Refuse the newest rank where an earlier one is the same file or the same process."""
    *earlier, new = records
    for old in earlier:
        if old.sha256 == new.sha256:
            raise UsageError(
                f"{old.file} and {new.file} are the same file",
                "give the trace of each rank once",
            )
        shared = set(old.pids) & set(new.pids)
        if old.host and old.host == new.host and shared and set(old.gpu_uuids) & set(new.gpu_uuids):
            raise UsageError(
                f"{old.file} and {new.file} hold the same process: {min(shared)} on {new.host}",
                "give one trace for each rank",
            )


def _check_times(records: Sequence[RankRecord], identities: Sequence[Identity]) -> Iterator[str]:
    """Refuse traces that one host recorded one after the other; name those of two hosts."""
    timed = [
        (identity.begin_ns, identity.end_ns, record)
        for record, identity in zip(records, identities, strict=True)
        if identity.begin_ns is not None and identity.end_ns is not None
    ]
    timed.sort(key=lambda item: item[0])
    for item in timed[1:]:
        latest = max(timed[: timed.index(item)], key=lambda pair: pair[1])
        pause = (item[0] - latest[1]) / 1e9
        old, new = latest[2], item[2]
        if pause > FAR_APART_S:
            if not old.host or not new.host or old.host == new.host:
                raise UsageError(
                    f"{old.file} and {new.file} were not recorded at the same time: "
                    f"{pause:,.0f} s lie between them",
                    "ranks of one job run together; import each run by itself, then: prof compare",
                )
            yield (
                stored(
                    "{pause:,.0f} s lie between {file} ({host}) and {later} ({on}): the "
                    "clocks of the hosts differ, or these are not one job.",
                    pause=pause,
                    file=old.file,
                    host=old.host,
                    later=new.file,
                    on=new.host,
                )
            )
