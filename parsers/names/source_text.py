"""What the text of lines of Python that ran tells: who uses a result, and what repeats one.

Lines are rows of table `timed_lines`: all that ran, with their text and how often they did, so that
no source is needed. Text is no syntax tree: what runs over several lines is known by its first.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import pandas as pd

from nsight_prof.parsers.cells import count, records, text

ASSIGNS = re.compile(r"(\w+)((?:, *\w+)*)(?: *: *[\w.\[\], |]+)? *=(?!=)(.*)")
CHANGES = re.compile(
    r"\b((?:self\.)?\w+)(?:\[[^\]=]*\])* *(?:[-+*/@|&]|//|\*\*)?=(?!=)|\b((?:self\.)?\w+)\.\w+_\("
)
LOOPS = re.compile(r"\bfor (.*?) in\b")
NAMES = re.compile(r"(?<![\w.\"'])((?:self\.)?[A-Za-z_]\w*)(?![\w(\"'=]| *=[^=])")
CALLS = re.compile(r"(?<![\w.])((?:self\.)?[a-z_]\w*(?:\.\w+)*\(([^()]*[A-Za-z_][^()]*)\))")
CHANGING = re.compile(
    r"rand|drop|noise|sampl|draw|next|\bget|pop|read|recv|step|print|len\(|range|time|append|item"
    r"|size|zeros|ones|empty|zip|enumerate|isinstance|str\(|super|^(?:min|max|sum|abs|int|float)\("
)
"""What gives another result each time, changes something, or costs nothing."""
DERIVES = r"\.backward\(|\bgrad\(|\b(?:jacobian|hessian|jacrev|jacfwd|vjp|jvp|grad_and_value)\("
"""Calls that derive; the texts of lines are those that ran."""
OPTIMIZER = r"\boptim\w*\.(?:step|zero_grad)\("
"""Lines of an optimizer, which has kernels for each weight."""
HEAD = r"\s*(?:async )?(?:for|while)\b"
"""Lines that are the head of a loop."""
OVER_RESULTS = r"^for .* in .*(?:\.tolist|\.item|\.cpu|\.numpy|nonzero)\("
"""Lines of loops over what they read back from the GPU."""
EMPTY = re.compile(r"\b(?:new_)?empty(?:_like)?\(")
STEPS = re.compile(r"\.step\(")
ATTRIBUTE = re.compile(r"(?<![\w.])(?!self\b)[A-Za-z_]\w*\.(?:dtype|device|shape|size\(|ndim)\b")
"""What a tensor is, beside its numbers."""
TABLES = re.compile(r"\b(?:arange|linspace)\(([^()]*)")
"""What makes a table of numbers alone."""
MODULES = {"return", "torch", "F", "nn", "np", "math", "self", "None", "True", "False"}
"""Names of what no line changes."""
MUTATES = re.compile(
    r"\b(self\.\w+)(?:\.\w+|\[[^\]]*\])*\.(?:append|update|extend|insert|add|push|put|pop|clear)\("
    r"|\w_\((self\.\w+)"
)
"""Calls that change what an attribute holds: methods, and functions that work in place."""
ITEM = re.compile(r"\b\w+\[(?:(?::|\.\.\.), *)*([a-z_]\w*)\]")
"""One item of a tensor, of the number that a name has."""
RETURNED = "return"
NEXT = 3
"""Lines behind a `return` from which on the next one of a function of that name is of another."""
IN_LOOP, OFTEN = 3, 10
"""Times per entry that a line runs which is in a loop, and entries of a function of a step."""


@dataclass
class Result:
    """What is known of the line of a result.

    `uses` are the lines of its function that use it, `used_at` their numbers, `entries` how often
    that was entered. `again`:
    a line before it makes a call that it makes, too, with the same arguments. `is_same`: it runs
    again and again in an inner loop, of which nothing that it takes depends. `is_item`: it runs for
    each item of a loop, and takes nothing that comes from the items before. `is_last`: no other
    line of the program derives. `is_kept`: it takes attributes (`self.x`) which no
    line changes that runs again. `indexed`: how often it takes an item by the number of a pass.
    `is_constant`: it
    computes from such attributes alone, and from what was computed of them. `is_table`: so does all
    that its function returns, from a number, and `is_fixed`: a call of the line takes nothing that
    its loop changes, but sizes.
    `is_returned`: what it sets or adds to is what its function returns.
    """

    uses: list[str] = field(default_factory=list)
    used_at: list[int] = field(default_factory=list)
    entries: int = 1
    again: bool = False
    is_same: bool = False
    is_item: bool = False
    is_last: bool = False
    is_kept: bool = False
    indexed: int = 0
    is_returned: bool = False
    is_constant: bool = False
    is_table: bool = False
    is_fixed: bool = False


@dataclass(frozen=True)
class _Line:
    number: int
    source: str
    hits: int

    @property
    def changed(self) -> set[str]:
        """Names that it assigns, changes in place, or takes from a loop."""
        assigned = ASSIGNS.match(self.source)
        names = set(re.findall(r"\w+", "".join(assigned.groups()[:2]))) if assigned else set()
        names |= {name for pair in CHANGES.findall(self.source) for name in pair if name}
        return names | self.targets

    @property
    def targets(self) -> set[str]:
        """Names that a loop gives a value in each pass."""
        return {n for loop in LOOPS.findall(self.source) for n in re.findall(r"\w+", loop)}

    @property
    def taken(self) -> str:
        """Return what it computes with: all but what it assigns as a whole."""
        return self.source.partition(" = ")[2] or self.source


def derives(source: str) -> bool:
    """Tell whether a line derives: its kernels are those of the forward lines."""
    return bool(re.search(DERIVES, source))


def results(lines: pd.DataFrame) -> dict[tuple[str, int], Result]:
    """Return what is known of lines of table `timed_lines`, by file and line."""
    found: dict[tuple[str, int], Result] = {}
    derive = lines[lines["source"].fillna("").str.contains(DERIVES)]
    for (file, _), rows in lines.groupby(["file", "function"]):
        for function in _functions(rows):
            found |= {(str(file), at): result for at, result in _results(function)}
    if len(derive) == 1:
        found[str(derive["file"].iloc[0]), count(derive["line"].iloc[0]) or 0].is_last = True
    again = lines[lines["hits"] >= IN_LOOP]
    changed = {name for row in records(again) for name in _Line(0, text(row["source"]), 0).changed}
    for row in records(lines):
        taken = {name for name in NAMES.findall(text(row["source"])) if name.startswith("self.")}
        at = text(row["file"]), count(row["line"]) or 0
        found[at].is_kept = bool(taken) and not taken & changed
    changed |= {
        name
        for row in records(again)
        for pair in MUTATES.findall(text(row["source"]))
        for name in pair
    }
    for (file, _), rows in again.groupby(["file", "function"]):
        for function in _functions(rows):
            constants, is_table = _constants(function, changed)
            for line in function:
                result = found[str(file), line.number]
                result.is_constant, result.is_table = line.number in constants, is_table
    return found


def _constants(lines: Sequence[_Line], changed: set[str]) -> tuple[set[int], bool]:
    """Return the lines of a function that compute from attributes alone which no line changes, and
    whether it returns a table that comes from these and from numbers that it was given.
    """
    known: set[str] = set()
    constants: set[int] = set()
    calls = (args for line in lines for args in TABLES.findall(line.source))
    numbers = {name for args in calls for name in NAMES.findall(ATTRIBUTE.sub("", args))}
    numbers -= {name for line in lines for name in line.changed}
    tables: set[str] = set()
    returned: list[bool] = []
    for line in lines:
        assigned = ASSIGNS.match(line.source)
        if LOOPS.match(line.source) or not (assigned or line.source.startswith(RETURNED)):
            known, tables = known - line.changed, tables - line.changed
            continue
        value = assigned[3] if assigned else line.source
        taken = set(NAMES.findall(ATTRIBUTE.sub("", value))) - MODULES
        of_attributes = {name for name in taken if name.startswith("self.")} - changed
        computes = re.search(r"[(@*+/-]", value)  # no other name of what may change elsewhere
        computes = None if CHANGING.search(TABLES.sub("", value)) else computes
        is_table = bool(computes and taken) and taken <= of_attributes | known | tables | numbers
        if assigned is None:
            returned.append(is_table and bool(taken & tables))
        elif computes and taken and taken <= of_attributes | known and not TABLES.search(value):
            known |= line.changed
            constants.add(line.number)
        else:
            known -= line.changed
        tables = tables | line.changed if is_table else tables - line.changed
    return constants, bool(returned) and all(returned)


def loop_over_results(
    lines: pd.DataFrame, file: str, function: str, line: int
) -> tuple[int, str] | None:
    """Return number and text of the loop around a line that goes over what it reads back there."""
    rows = lines[(lines["file"] == file) & (lines["function"] == function)]
    runs = rows.loc[rows["line"] == line, "hits"].sum()
    heads = rows[(rows["line"] < line) & (rows["hits"] > runs)]
    heads = heads[heads["source"].fillna("").str.contains(OVER_RESULTS)].sort_values("line")
    found = records(heads.tail(1))
    return (count(found[0]["line"]) or 0, text(found[0]["source"])) if found else None


def loop_around(
    lines: pd.DataFrame, file: str, function: str, at: Sequence[int]
) -> tuple[int, str] | None:
    """Return number and text of the head of the loop that some lines of a function are in: it runs
    once for each time that they do, and once more where the loop ends.
    """
    rows = lines[(lines["file"] == file) & (lines["function"] == function)]
    runs = rows.loc[rows["line"].isin(at), "hits"].max()
    heads = rows[(rows["line"] < min(at)) & (rows["hits"] > runs) & (rows["hits"] <= 2 * runs)]
    heads = heads[heads["source"].fillna("").str.match(HEAD)].sort_values("line")
    found = records(heads.tail(1))
    return (count(found[0]["line"]) or 0, text(found[0]["source"])) if found else None


def written_to_be_read(lines: pd.DataFrame, file: str, function: str, at: Sequence[int]) -> int:
    """Return the first of some lines of a function that takes new memory (`empty`) which a later
    one of them takes, too, and no other line, such as a `return`; 0 where none does.
    """
    rows = lines[(lines["file"] == file) & (lines["function"] == function)]
    texts = {count(row["line"]) or 0: text(row["source"]) for row in records(rows)}
    new, names = set[str](), {line: set(re.findall(r"\w+", each)) for line, each in texts.items()}
    for line, source in texts.items():
        if (assigned := ASSIGNS.match(source)) and EMPTY.search(assigned[3]):
            new |= set(re.findall(r"\w+", assigned[1] + assigned[2]))
            names[line] -= new
    elsewhere = {name for line, used in names.items() if line not in at for name in used}
    ordered = sorted(at)
    for n, line in enumerate(ordered):
        later = {name for each in ordered[n + 1 :] for name in names.get(each, ())}
        if (new - elsewhere) & names.get(line, set()) & later:
            return line
    return 0


def _functions(rows: pd.DataFrame) -> Iterator[list[_Line]]:
    """Yield the lines of each function: methods of several classes have one name."""
    lines: list[_Line] = []
    for row in records(rows.sort_values("line")):
        line = _Line(count(row["line"]) or 0, text(row["source"]), count(row["hits"]) or 0)
        ended = lines and lines[-1].source.startswith(RETURNED)
        if ended and line.number >= lines[-1].number + NEXT:
            yield lines
            lines = []
        lines.append(line)
    yield lines


def _results(lines: Sequence[_Line]) -> Iterator[tuple[int, Result]]:
    returning = [line for line in lines if line.source.startswith(RETURNED)]
    returns, returned = (
        sum(line.hits for line in returning),
        {name for line in returning for name in re.findall(r"\w+", line.source)},
    )
    entries = max(1, min(filter(None, (lines[0].hits, returns)), default=1))
    looping = [line for line in lines if line.hits >= IN_LOOP * entries]
    changed = {name for line in looping for name in line.changed}
    items = _items(looping, changed)
    targets = {name for each in looping if LOOPS.match(each.source) for name in each.targets}
    for at, line in enumerate(lines):
        assigned = ASSIGNS.match(line.source)
        uses = _uses(assigned[1] + assigned[2], lines, line) if assigned else {}
        is_inner = line in looping and entries >= OFTEN and not LOOPS.match(line.source)
        yield (
            line.number,
            Result(
                [*uses.values()],
                [*uses],
                entries,
                any(
                    _is_again(call, names, lines, at) for call, names in CALLS.findall(line.source)
                ),
                is_inner and assigned is not None and _is_same(assigned, line, changed),
                line.hits >= OFTEN * entries >= OFTEN**2 and line in items,
                indexed=line.hits if line in looping and _takes_item(line, targets) else 0,
                is_returned=bool(line.changed & returned),
                is_fixed=line in looping
                and any(
                    not set(NAMES.findall(ATTRIBUTE.sub("", names))) & changed
                    for _, names in CALLS.findall(line.source)
                ),
            ),
        )


def _items(lines: Sequence[_Line], changed: set[str]) -> list[_Line]:
    """Return lines of a loop that take what is of their own pass alone, or the same in all.

    In a loop in which an optimizer steps, all take the weights that the passes before left.
    """
    known, found = {name for line in lines for name in line.targets}, []
    for line in lines:
        if STEPS.search(line.source):
            return []
        is_item = not set(NAMES.findall(line.taken)) & (changed - known)
        if is_item and not LOOPS.match(line.source):
            found.append(line)
        assigned = ASSIGNS.match(line.source)
        names = set(re.findall(r"\w+", "".join(assigned.groups()[:2]))) if assigned else set()
        known = known | names if is_item else known - names
    return found


def _takes_item(line: _Line, targets: set[str]) -> bool:
    return any(name in targets for name in ITEM.findall(line.taken))


def _uses(names: str, lines: Iterable[_Line], line: _Line) -> dict[int, str]:
    either = "|".join(re.findall(r"\w+", names))
    used = re.compile(rf"(?<![\w.])(?:{either})\b(?! *=[^=])")
    return {
        each.number: used.sub("RESULT", each.source)
        for each in lines
        if each is not line and used.search(each.source)
    }


def _is_same(assigned: re.Match[str], line: _Line, changed: set[str]) -> bool:
    taken = set(NAMES.findall(assigned[3]))
    by_others = changed - line.changed if assigned[1] not in taken else changed
    return (
        bool(taken)
        and "(" in assigned[3]
        and not (taken & by_others)
        and not CHANGING.search(line.source)
    )


def _is_again(call: str, names: str, lines: Sequence[_Line], at: int) -> bool:
    """Tell whether a line before makes the same call, and nothing between changes what it takes."""
    if CHANGING.search(call):
        return False
    first = next((n for n, line in enumerate(lines[:at]) if call in line.source), None)
    if first is None or 2 * lines[first].hits < lines[at].hits:
        return False
    taken = set(NAMES.findall(names)) | set(re.findall(r"\w+", names))
    return not any(taken & line.changed for line in lines[first:at])
