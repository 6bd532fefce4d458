"""Joins what several files of ncu hold into one capture, and says what each of them adds.

Scripts leave a report for each kernel, or several printed pages of one report. Two results are the
same launch where process, number in the report, kernel, grid and block are the same and their
durations do not differ: its values are joined, and of two values of one metric that of the more
precise file counts (`NcuCapture.page`), then that of the earlier file. All other results are
launches of their own, whose values are never mixed: `join` chooses one of them.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from nsight_prof.parsers import tables
from nsight_prof.parsers.errors import UsageError
from nsight_prof.parsers.join.join import plain_name
from nsight_prof.parsers.ncu.capture import DURATION, LAUNCH_DTYPES, PAGES, NcuCapture
from nsight_prof.parsers.run.sentences import stored

SAME_DURATION = 0.01
"""Relative difference up to which two durations are one that was printed with three digits."""
GPU_NAME = "device__attribute_display_name"
CAPABILITY = tuple(f"device__attribute_compute_capability_{level}" for level in ("major", "minor"))
MOST_NAMES, MOST_FILES = 3, 8

Launch = dict[Hashable, Any]


@dataclass(frozen=True)
class NcuFile:
    """One file of ncu: `name` is what the user calls it."""

    name: str
    capture: NcuCapture


@dataclass(frozen=True)
class JoinedFiles:
    """The capture of all files, and table `counter_files`, a row for each of them.

    `profiles` are the results that each file holds, by their numbers in the capture.
    """

    capture: NcuCapture
    files: pd.DataFrame
    profiles: tuple[frozenset[int], ...]


def join_files(files: Sequence[NcuFile]) -> JoinedFiles:
    """Join the captures of `files`, in their order.

    Raises:
        UsageError: they were taken on GPUs of different kinds.
    """
    _check_gpus(files)
    launches, places = _launches(files)
    metrics, new_values = _metrics(files, places)
    rules = _together(files, places, [file.capture.rules for file in files])
    rules = rules.drop_duplicates(["profile", "rule", "message"])
    capture = NcuCapture(
        launches=pd.DataFrame(launches).astype(LAUNCH_DTYPES),
        metrics=metrics,
        version=next((file.capture.version for file in files if file.capture.version), ""),
        warnings=[*_warnings(files), *_versions(files)],
        rules=rules.drop(columns="at").reset_index(drop=True),
        page=min((file.capture.page for file in files), key=PAGES.index),
    )
    profiles = tuple(frozenset(renumbered.values()) for renumbered in places)
    return JoinedFiles(capture, _table(files, launches, profiles, new_values), profiles)


def _check_gpus(files: Sequence[NcuFile]) -> None:
    """Refuse files of different GPUs: peaks and formulas would be those of another chip."""
    for facts in (_names_of_gpus, _compute_capabilities):
        known = [(file.name, found) for file in files if (found := facts(file.capture))]
        different = next((k for k in known if k[1] != known[0][1]), None)
        if different is not None:
            pair = (known[0], different)
            listed_gpus = ", ".join(f"{name} ({' and '.join(sorted(gpus))})" for name, gpus in pair)
            raise UsageError(
                f"the counters are of different GPUs: {listed_gpus}",
                "import the files of each GPU into a run of its own, then: prof compare RUN RUN",
            )


def _names_of_gpus(capture: NcuCapture) -> frozenset[str]:
    named_gpus = capture.metrics[capture.metrics["metric"] == GPU_NAME]
    return frozenset(named_gpus["text"].dropna())


def _compute_capabilities(capture: NcuCapture) -> frozenset[str]:
    printed = frozenset(capture.launches["compute_capability"].dropna())
    values = capture.metrics.pivot(index="profile", columns="metric", values="value")
    if printed or not set(CAPABILITY) <= set(values.columns):
        return printed
    pairs = values[list(CAPABILITY)].dropna().drop_duplicates().itertuples(index=False)
    return frozenset(f"{major:.0f}.{minor:.0f}" for major, minor in pairs)


def _launches(files: Sequence[NcuFile]) -> tuple[list[Launch], list[dict[int, int]]]:
    """Return all launches, and for each file the place there of each of its results."""
    found: list[Launch] = []
    durations: list[float | None] = []
    known: dict[tuple[Any, ...], list[int]] = {}
    places: list[dict[int, int]] = []
    for number, file in enumerate(files):
        times = _durations(file.capture)
        here: dict[int, int] = {}
        taken: set[int] = set()
        for row in file.capture.launches.to_dict("records"):
            time, key = times.get(row["profile"]), (row["pid"], row["result"], *_shape(row))
            fits = (
                at
                for at in (known.get(key, ()) if pd.notna(row["pid"]) else ())
                if at not in taken
                and _same_kernel(found[at], row)
                and _same_time(durations[at], time)
            )
            at = next(fits, len(found))
            if at == len(found):
                known.setdefault(key, []).append(at)
                found.append({**row, "profile": at, "file": number})
                durations.append(time)
            else:
                _complete(found[at], row)
                durations[at] = time if durations[at] is None else durations[at]
            here[int(row["profile"])] = at
            taken.add(at)
        places.append(here)
    _complete_names(found)
    return found, places


def _complete(launch: Launch, source: Launch) -> None:
    """Fill what is not known of a launch from the same one in another file."""
    if launch["name"] == _text(launch["mangled_name"]):
        launch["name"] = source["name"]
    launch.update({name: v for name, v in source.items() if pd.isna(launch[name])})


def _durations(capture: NcuCapture) -> dict[int, float]:
    durations = capture.metrics[capture.metrics["metric"] == DURATION].dropna(subset="value")
    return dict(zip(durations["profile"].astype(int), durations["value"], strict=True))


def _same_kernel(a: Launch, b: Launch) -> bool:
    """Compare mangled names, or demangled ones; where each has another kind, both may be right."""
    mangled = {_text(row["mangled_name"]) for row in (a, b)} - {""}
    names = {
        plain_name(str(row["name"])) for row in (a, b) if row["name"] != _text(row["mangled_name"])
    }
    both = all(_text(row["mangled_name"]) for row in (a, b))
    return len(mangled) == 1 if both else len(names) <= 1


def _same_time(a: float | None, b: float | None) -> bool:
    if a is None or b is None:
        return True
    return abs(a - b) <= SAME_DURATION * max(a, b)


def _complete_names(launches: list[Launch]) -> None:
    """Give the mangled name of one file to the same name in another, where only one fits."""
    mangled: dict[str, set[str]] = {}
    for row in launches:
        if pd.notna(row["mangled_name"]):
            mangled.setdefault(str(row["name"]), set()).add(str(row["mangled_name"]))
    for row in launches:
        fits = mangled.get(str(row["name"]), set())
        if pd.isna(row["mangled_name"]) and len(fits) == 1:
            row["mangled_name"] = next(iter(fits))


def _together(
    files: Sequence[NcuFile], places: Sequence[dict[int, int]], frames: Iterable[pd.DataFrame]
) -> pd.DataFrame:
    """Put frames of all files below each other; `at` is the number of the file."""
    moved = [
        frame.assign(profile=frame["profile"].map(renumbered).astype("Int64"), at=number)
        for number, (renumbered, frame) in enumerate(zip(places, frames, strict=True))
    ]
    return pd.concat(moved, ignore_index=True)


def _metrics(
    files: Sequence[NcuFile], places: Sequence[dict[int, int]]
) -> tuple[pd.DataFrame, list[int]]:
    """Return one value for each metric of a launch, and how many each file is the first to have."""
    values = _together(files, places, [file.capture.metrics for file in files])
    unknown = values["value"].isna() & values["text"].isna()
    key = ["profile", "metric"]
    first = values[~unknown].drop_duplicates(key)["at"].value_counts()
    ranks = {number: PAGES.index(file.capture.page) for number, file in enumerate(files)}
    best = values.assign(unknown=unknown, rank=values["at"].map(ranks))
    best = best.sort_values(["unknown", "rank"], kind="stable").drop_duplicates(key).sort_index()
    best = best.sort_values("profile", kind="stable").drop(columns=["unknown", "rank", "at"])
    return best.reset_index(drop=True), [int(first.get(n, 0)) for n in range(len(files))]


def _warnings(files: Sequence[NcuFile]) -> list[str]:
    """Return each warning once, with the files that have it."""
    by_sentence: dict[str, list[str]] = {}
    for file in files:
        for sentence in file.capture.warnings:
            by_sentence.setdefault(sentence, []).append(file.name)
    return [f"{listed(names)}: {sentence}" for sentence, names in by_sentence.items()]


def _versions(files: Sequence[NcuFile]) -> list[str]:
    versions: dict[str, list[str]] = {}
    for file in files:
        if file.capture.version:
            versions.setdefault(file.capture.version, []).append(file.name)
    if len(versions) < 2:
        return []
    listed_versions = ", ".join(
        f"{version} ({listed(names)})" for version, names in versions.items()
    )
    return [
        stored(
            "the counters are of several versions of ncu: {listed_versions}",
            listed_versions=listed_versions,
        )
    ]


def listed(names: Sequence[str], limit: int = 3) -> str:
    """Return names for a sentence: the first ones, and how many more there are."""
    more = len(names) - limit
    return ", ".join(names[:limit]) + (f" and {more} more" if more > 0 else "")


def _table(
    files: Sequence[NcuFile],
    launches: Sequence[Launch],
    profiles: Sequence[frozenset[int]],
    new_values: Sequence[int],
) -> pd.DataFrame:
    """Return table `counter_files`; `shown_kernels` is for the reader who joins the kernels."""
    kernels = [_kernel(row) for row in launches]
    known_launches: set[int] = set()
    known_kernels: set[tuple[str, ...]] = set()
    rows = []
    for file, profiles_of_file, new in zip(files, profiles, new_values, strict=True):
        values = file.capture.metrics
        kernel_ids = {kernels[profile] for profile in profiles_of_file}
        rows.append(
            {
                "file": file.name,
                "page": file.capture.page,
                "launches": len(profiles_of_file),
                "kernels": len(kernel_ids),
                "values": int((values["value"].notna() | values["text"].notna()).sum()),
                "new_launches": len(profiles_of_file - known_launches),
                "new_kernels": len(kernel_ids - known_kernels),
                "new_values": new,
                "shown_kernels": pd.NA,
            }
        )
        known_launches |= profiles_of_file
        known_kernels |= kernel_ids
    return tables.check(pd.DataFrame(rows), "counter_files")


def _kernel(row: Launch) -> tuple[str, ...]:
    return (_text(row["mangled_name"]) or plain_name(str(row["name"])), *_shape(row))


def _shape(row: Launch) -> tuple[str, ...]:
    return tuple(_text(row[side]) for side in ("grid", "block"))


def _text(value: Any) -> str:
    return "" if pd.isna(value) else str(value)


def added(files: pd.DataFrame, limit: int = MOST_FILES) -> list[str]:
    """Say what each file of table `counter_files` adds, of many only what all add and which none.

    Of kernels in several files the launch with the most values is shown, then that of the first.
    """
    rows = files.to_dict("records")
    idle = [str(row["file"]) for row in rows if not row["new_values"]]
    sentences = [f"{row['file']} adds {_what(row)}" for row in rows if row["new_values"]]
    if len(sentences) > limit:
        total = files[["new_launches", "new_kernels", "new_values"]].sum()
        sentences = [
            stored(
                "{rows} files of ncu add {to_dict}", rows=len(rows), to_dict=_what(total.to_dict())
            )
        ]
    if idle:
        names = listed(idle, MOST_NAMES)
        if len(idle) == 1:
            sentences.append(
                stored("{names} adds nothing that other files do not hold", names=names)
            )
        else:
            sentences.append(
                stored("{names} add nothing that other files do not hold", names=names)
            )
    return sentences


def _what(row: dict[Hashable, Any]) -> str:
    values = _counted(row["new_values"], "value")
    if not row["new_launches"]:
        return stored("{values} to launches of earlier files", values=values)
    launches = _counted(row["new_launches"], "launch")
    if not row["new_kernels"]:
        return stored(
            "{launches} of kernels of earlier files, {values}", launches=launches, values=values
        )
    return f"{launches}, {_counted(row['new_kernels'], 'new kernel')}, {values}"


def _counted(number: int, what: str) -> str:
    plural = "es" if what.endswith("h") else "s"
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}{plural}"
