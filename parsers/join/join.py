"""Joins what ncu profiled to the kernels of the trace, and says of each result how, or why not.

The key is mangled name, grid and block. A CSV may lack the mangled name; then the demangled name
joins where it is the same text, or where both sides have exactly one kernel of the same name once
the two tools' ways of demangling are undone. Nothing else joins: a wrong join gives wrong numbers,
a missing one says so.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import pandas as pd

from nsight_prof.parsers import tables
from nsight_prof.parsers.ncu.capture import NcuCapture
from nsight_prof.parsers.run.selection import Selection, only_demangled
from nsight_prof.parsers.run.sentences import stored

NOT_PROFILED = stored("selected, but ncu profiled no launch of it")
_LAMBDA = re.compile(r"[\[{]lambda\((?:[^()]|\([^()]*\))*\)\s*(?:\(instance (\d+)\)|#(\d+))[\]}]")
_UNNAMED = re.compile(r"\(anonymous namespace\)|<unnamed>|\bunnamed>|_GLOBAL__N__\w+")
# Of a template's argument: (int)4, (cutlass::FloatRoundStyle)2; one tool writes it, the other not.
_CAST = re.compile(
    r"(?<![\w>])\(\s*(?:unsigned |signed )?(?:bool|char|short|int|long|long long)\s*\)"
    r"|(?<=[<,])\s*\([A-Za-z_][^()]*\)\s*(?=-?\d)"
)
_SUFFIX = re.compile(r"\b(\d+)(?:ull|ul|ll|u|l)\b", re.IGNORECASE)
_NAMESPACE = re.compile(r"\b[A-Za-z_]\w*::|::")


@dataclass(frozen=True)
class Joined:
    """`metrics`: every value with its kernel and launch. `joins`: one row per result."""

    metrics: pd.DataFrame
    joins: pd.DataFrame


@dataclass(frozen=True)
class _Kernel:
    """A kernel of either side; `mangled` is empty where only the demangled name is known."""

    kernel_id: str
    name: str
    mangled: str
    grid: str
    block: str


@dataclass(frozen=True)
class _Match:
    kernel_id: str | None
    method: str
    reason: str


def join(
    capture: NcuCapture, kernels: pd.DataFrame, selection: Selection, untraced: bool = False
) -> Joined:
    """Join a capture to `kernels` (where that is empty, to the kernels of the selection).

    `launch` is `selection.skip` plus the number of earlier results of the same kernel in the same
    process and file: `ncu --filter-mode per-launch-config --launch-skip N` skips N launches of each
    mangled name, grid, block and shared memory size. `chosen` marks the result nearest to the
    selection's launch of that kernel, or to the first one where the kernel was not selected; of
    several, that with the most values, then the first. `untraced`: the kernels were
    made of this very capture, so that names join where it has no grid and block (`ncu --csv` of
    2020 has none).
    """
    traced = _of_table(kernels) or _of_selection(selection)
    counted = _of_capture(capture)
    matcher = _Matcher(traced, counted, untraced)
    workloads = capture.launches["workload"].tolist()
    matches = [matcher.match(k, w) for k, w in zip(counted, workloads, strict=True)]
    known = capture.metrics["value"].notna() | capture.metrics["text"].notna()
    values = capture.metrics[known].groupby("profile").size()
    joins = _choose(_rows(capture, matches, selection.skip), selection, values)
    joins = pd.concat([joins, _missing(joins, selection)], ignore_index=True)
    return Joined(_metrics(capture, joins), tables.check(joins, "joins"))


def plain_name(name: str) -> str:
    """Return a demangled name without what nsys and ncu write differently.

    ncu: ``void at::fill<(int)4, (bool)0, [lambda() (instance 1)]>(T1 *)``;
    nsys: ``void at::native::fill<4, false, {lambda()#1}>(float*)``. Return type, parameters, casts,
    namespaces, spaces and number suffixes go, so different kernels may become equal.
    """
    name = _LAMBDA.sub(lambda found: f"lambda{found[1] or found[2]}", name)
    name = _UNNAMED.sub("", name)
    name = _CAST.sub("", name)
    name = _without_parameters(name).strip()
    name = re.sub(r"\btrue\b", "1", re.sub(r"\bfalse\b", "0", name))
    name = _SUFFIX.sub(r"\1", name)
    name = _NAMESPACE.sub("", name)
    return re.sub(r"\s+", "", re.sub(r"^void\s+", "", name))


def _without_parameters(name: str) -> str:
    """Cut the parameter list: the first parenthesis outside of all angle brackets."""
    angles = parentheses = 0
    for index, letter in enumerate(name):
        if letter == "(" and not angles and index:
            return name[:index]
        parentheses += (letter == "(") - (letter == ")")
        if not parentheses:
            angles = max(0, angles + (letter == "<") - (letter == ">"))
    return name


class _Matcher:
    """Finds the kernel of a result. Each way needs the same grid and block."""

    def __init__(self, traced: list[_Kernel], counted: list[_Kernel], untraced: bool) -> None:
        self._theirs = traced
        with_shape = [k for k in traced if untraced or (k.grid and k.block)]
        self._by_mangled = _index(with_shape, lambda kernel: kernel.mangled)
        ways: list[Callable[[_Kernel], str]] = [lambda k: k.name, lambda k: plain_name(k.name)]
        self._by_name = [(way, _index(with_shape, way), _distinct(counted, way)) for way in ways]
        self._unmangled = {kernel.kernel_id for kernel in traced if not kernel.mangled}

    def match(self, kernel: _Kernel, workload: str) -> _Match:
        if workload != "kernel":
            return _none(
                stored("the result is of a whole {workload}, not of a kernel", workload=workload)
            )
        if not self._theirs:
            return _none(stored("there is no trace to join to"))
        if kernel.mangled:
            found = self._by_mangled.get((kernel.mangled, kernel.grid, kernel.block), set())
            if len(found) == 1:
                return _Match(next(iter(found)), "mangled", "")
        return self._match_name(kernel)

    def _match_name(self, kernel: _Kernel) -> _Match:
        reason = ""
        for way, traced, counted in self._by_name:
            key = (way(kernel), kernel.grid, kernel.block)
            found = traced.get(key, set())
            if kernel.mangled:
                # Names that are known mangled on both sides join by them or not at all.
                found = found & self._unmangled
            if len(found) == 1 and counted[key] == 1:
                return _Match(next(iter(found)), "name", "")
            if found:
                reason = stored("more than one kernel has this name, grid and block")
        return _none(reason or self._reason(kernel))

    def _reason(self, kernel: _Kernel) -> str:
        if not kernel.grid or not kernel.block:
            return stored("the result has no grid and block")
        same_name = [k for k in self._theirs if _same_name(k, kernel)]
        if not same_name:
            return stored("no kernel of the trace has this name")
        if not any(k.grid and k.block for k in same_name):
            return stored("the trace has this name without grid and block")
        shapes = ", ".join(sorted({f"{k.grid} of {k.block}" for k in same_name})[:3])
        return stored(
            "the trace has this name with other grids and blocks only: {shapes}", shapes=shapes
        )


def _index(
    kernels: list[_Kernel], key: Callable[[_Kernel], str]
) -> dict[tuple[str, str, str], set[str]]:
    found: dict[tuple[str, str, str], set[str]] = defaultdict(set)
    for kernel in kernels:
        if key(kernel):
            found[key(kernel), kernel.grid, kernel.block].add(kernel.kernel_id)
    return found


def _distinct(
    kernels: list[_Kernel], key: Callable[[_Kernel], str]
) -> Counter[tuple[str, str, str]]:
    return Counter((key(k), k.grid, k.block) for k in set(kernels))


def _same_name(a: _Kernel, b: _Kernel) -> bool:
    if a.mangled and b.mangled:
        return a.mangled == b.mangled
    return plain_name(a.name) == plain_name(b.name)


def _none(reason: str) -> _Match:
    return _Match(None, "none", reason)


def _of_table(kernels: pd.DataFrame) -> list[_Kernel]:
    names = ("kernel_id", "name", "mangled_name", "grid", "block")
    columns = [kernels[name].fillna("").astype(str).tolist() for name in names]
    return [_kernel(*row) for row in zip(*columns, strict=True)]


def _of_selection(selection: Selection) -> list[_Kernel]:
    return [
        _kernel(k.kernel_id, k.name, k.mangled_name, k.grid, k.block) for k in selection.kernels
    ]


def _kernel(kernel_id: str, name: str, mangled: str, grid: str, block: str) -> _Kernel:
    """The table repeats the demangled name where the trace has no mangled one."""
    return _Kernel(kernel_id, name, "" if only_demangled(name, mangled) else mangled, grid, block)


def _of_capture(capture: NcuCapture) -> list[_Kernel]:
    names = ("name", "mangled_name", "grid", "block")
    columns = [capture.launches[name].fillna("").astype(str).tolist() for name in names]
    return [_Kernel("", *row) for row in zip(*columns, strict=True)]


def _rows(capture: NcuCapture, matches: Iterable[_Match], skip: int) -> pd.DataFrame:
    launches = capture.launches
    rows = launches[["profile", "name", "mangled_name", "grid", "block"]].copy()
    matches = list(matches)
    rows["kernel_id"] = pd.Series([m.kernel_id for m in matches], dtype="string")
    rows["method"] = [m.method for m in matches]
    rows["reason"] = [m.reason for m in matches]
    process = launches["pid"].fillna(-1)
    order = rows.groupby([rows["kernel_id"], process, launches["file"]]).cumcount() + skip
    rows["launch"] = order.astype("Int64").where(rows["kernel_id"].notna())
    return rows


def _choose(rows: pd.DataFrame, selection: Selection, values: pd.Series) -> pd.DataFrame:
    wanted = {kernel.kernel_id: kernel.launch for kernel in selection.kernels}
    rows["chosen"] = False
    for kernel_id, group in rows[rows["kernel_id"].notna()].groupby("kernel_id", sort=False):
        target = wanted.get(str(kernel_id), group["launch"].iloc[0])
        distance = (group["launch"] - target).abs()
        nearest = group.loc[distance == distance.min(), "profile"]
        codes = nearest.map(values).fillna(0).astype("int64")
        rows.loc[codes.idxmax(), "chosen"] = True
    return rows


def _missing(joins: pd.DataFrame, selection: Selection) -> pd.DataFrame:
    profiled = set(joins["kernel_id"].dropna())
    rows = [
        {
            "kernel_id": kernel.kernel_id,
            "launch": kernel.launch,
            "name": kernel.name,
            "mangled_name": kernel.mangled_name,
            "grid": kernel.grid,
            "block": kernel.block,
            "chosen": False,
            "method": "none",
            "reason": NOT_PROFILED,
        }
        for kernel in selection.kernels
        if kernel.kernel_id not in profiled
    ]
    missing = pd.DataFrame(rows, columns=[c for c in joins.columns if c != "profile"])
    missing["profile"] = pd.Series([pd.NA] * len(rows), dtype="Int64")
    return missing.astype(joins.dtypes.to_dict())


def _metrics(capture: NcuCapture, joins: pd.DataFrame) -> pd.DataFrame:
    keys = joins.loc[joins["profile"].notna(), ["profile", "kernel_id", "launch"]]
    return tables.check(capture.metrics.merge(keys, on="profile", how="left"), "metrics")
