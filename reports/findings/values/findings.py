"""What a program computes that it need not: again, for nobody, or on zeros.

Known by the values of its operators (table `operator_values`), which no trace and no counter shows.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pandas as pd

from nsight_prof.parsers.cells import Row, records, text
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.analysis.lines import location
from nsight_prof.reports.findings.model import Finding
from nsight_prof.reports.findings.program.rule import (
    Rule,
    Threshold,
    column,
    measured,
    message,
    of_row,
    rows_of,
)
from nsight_prof.reports.findings.values.calls import (
    HALF,
    OFTEN,
    PRODUCTS,
    SORTS,
    Place,
    elements,
    grouped,
    hoisted,
    operands,
    operator_calls,
)
from nsight_prof.reports.findings.values.price import Launches, Price, price
from nsight_prof.reports.page import Evidence, Number, Text, Value, Verbatim

WORDS = rows_of("nsight_prof.reports.findings.values", "values.yaml")
VALUES = Text("values of operators, recorded in a further run")
REQUIRES = "values of operators, and a trace with samples of Python stacks"
SHARE = Threshold(0.03, Text("prof: part of the time worth a finding"))
GAIN = (
    "time of the kernels that are launched at these lines, and the idle time in which the host is "
    "there, x the part of the operators that goes there (by their time, and by their calls)."
)
REPEATED_WORK = of_row(
    Rule,
    WORDS["repeated_work"],
    key="repeated_work",
    requires=REQUIRES,
    thresholds={
        "share": SHARE,
        "calls": Threshold(OFTEN, Text("prof: calls from which on an operator repeats"), "count"),
        "distinct": Threshold(
            HALF,
            Text(
                "prof: new inputs per call, over those of the operators that take the time: where "
                "the inputs of the whole program come again, that is no defect"
            ),
        ),
        "whole": Threshold(
            0.9, Text("prof: part of the time below a call that is repeated, to be left out whole")
        ),
    },
    gain=GAIN,
)
UNREAD_RESULTS = of_row(
    Rule,
    WORDS["unread_results"],
    key="unread_results",
    requires=REQUIRES,
    thresholds={
        "share": SHARE,
        "read": Threshold(0.4, Text("prof: part of a result that is read, up to which it counts")),
    },
    gain=f"{GAIN} Of a product as much as nobody reads; of a sort seven tenths.",
)
ZEROS_MULTIPLIED = of_row(
    Rule,
    WORDS["zeros_multiplied"],
    key="zeros_multiplied",
    requires=REQUIRES,
    thresholds={
        "share": SHARE,
        "zeros": Threshold(
            0.98,
            Text(
                "prof: part of a matrix from which on a sparse product is faster than the Tensor "
                "Cores, with room to spare"
            ),
        ),
        "rows": Threshold(0.55, Text("prof: part of the rows that hold zeros alone")),
    },
    gain=f"{GAIN} Of a product with a matrix of zeros nine tenths, with rows of zeros their part.",
)
RULES = (REPEATED_WORK, UNREAD_RESULTS, ZEROS_MULTIPLIED)
REMEDIES = {
    key: (message(row["action"]), message(row["advice"])) for key, row in WORDS["remedies"].items()
}
SORTED, SPARSE, FUSED = 0.7, 0.9, 0.7
"""Part of the time of a sort that goes where topk does, of a product in a sparse form, and of what
passes scores through memory where fused attention keeps them on the chip."""
ONE_BATCH = Text(
    " Where that comes of a batch which is fed in all steps for a measurement alone, nothing is "
    "saved: real batches differ."
)
CAST = "aten::_to_copy"
MAIN = 0.6
"""Part of the casts that a line is around, to be told in place of the lines that make them."""
LARGE = 0.25
"""Part of what the dearest line of a group saves, from which on a line is named."""
NAMED, MOST = 2, 3
"""Lines and callers that a sentence names, and findings of one rule."""


def value_findings(run: Run) -> list[Finding]:
    """Return what the values of operators tell; empty without them, or without lines of Python."""
    if run.operator_values.empty or (run.launch_lines.empty and run.host_lines.empty):
        return []
    calls = operator_calls(run)
    return [*_repeated(run, calls), *_unread(run, calls), *_zeros(run, calls)]


class Group:
    """Operators at lines of one function of which a part of the time can go."""

    def __init__(self, run: Run, calls: pd.DataFrame, saved: dict[Place, pd.Series[float]]) -> None:
        """Price the operators of each frame by the time that can go of them."""
        every = pd.concat(list(saved.values()))
        self.saved = every.groupby(level=0).max()
        self.rows = calls.loc[self.saved.index]
        of_place = {site: float(each.sum()) for site, each in saved.items()}
        limit = LARGE * max(of_place.values())
        self.frames = sorted(p for p, each in of_place.items() if each >= limit)
        self.price: Price = price(run, calls, self.saved, {(p[0], p[2]) for p in saved})

    @property
    def places(self) -> list[Verbatim]:
        """Return the lines, in the order of the program."""
        return [Verbatim(location(p[0], p[2])) for p in self.frames[:NAMED]]

    @property
    def main(self) -> Row:
        """Return the row of the operator that takes the time, with its index as `at`."""
        return self.main_of(self.saved.index)

    def main_of(self, index: pd.Index) -> Row:
        """Return the same of some operators."""
        at = int(str(self.saved[self.saved.index.isin(index)].idxmax()))
        return {**records(self.rows.loc[[at]])[0], "at": at}

    @property
    def callers(self) -> list[Verbatim]:
        """Return the lines that lead there, the innermost first."""
        stack: tuple[Place, ...] = self.main["stack"]
        depth = next((i for i, frame in enumerate(stack) if frame in self.frames), 0)
        return [Verbatim(location(f[0], f[2])) for f in reversed(stack[:depth])][:NAMED]


def _repeated(run: Run, calls: pd.DataFrame) -> Iterator[Finding]:
    rule = REPEATED_WORK
    saved = calls["time_ns"] * calls["repeated"]
    frames = hoisted(calls, rule.limit("whole"), Launches(run).are_all)
    frames = _with_casts(calls, saved, frames)
    groups: dict[tuple[str, str], dict[Place, pd.Series[float]]] = {}
    for site, index in frames.items():
        groups.setdefault(site[:2], {})[site] = saved.loc[sorted(set(index))]
    for group in _priced(run, calls, groups.values(), rule):
        title, how, evidence = _again(group)
        is_cast, is_constant = group.main["operator"] == CAST, bool(group.main["is_of_batch"])
        action, advice = REMEDIES["cast"] if is_cast else (rule.action, rule.advice)
        yield _finding(
            rule,
            group,
            title=title,
            verdict=Text(
                "At {places} the program computes again what it has: {how}{others}{batch}{callers} "
                "Kernels that are launched there take {share} of the GPU time ({time}). {gain}",
                places=group.places,
                how=how,
                batch=ONE_BATCH if is_constant else "",
                others=Text(" It is one of {n} operators that repeat there.", n=len(group.rows))
                if len(group.rows) > 1
                else "",
                **_launched(group),
                gain=_gain(Text("Computed once"), group.price),
            ),
            action=action,
            advice=advice,
            evidence=evidence,
            confidence="low" if is_constant else "medium",
        )


def _with_casts(
    calls: pd.DataFrame, saved: pd.Series[float], frames: dict[Place, list[int]]
) -> dict[Place, list[int]]:
    """Return frames with lines that repeat casts alone at the innermost line around nearly all of
    them: what goes in there, such as weights, is to be of another type.
    """
    stacks: dict[int, tuple[Place, ...]] = dict(zip(calls.index, calls["stack"], strict=True))
    is_cast = calls["operator"].eq(CAST)
    casting = [site for site, index in frames.items() if is_cast[index].all()]
    if len(casting) < 2:
        return frames
    index = sorted({at for site in casting for at in frames[site]})
    weights: dict[tuple[int, Place], float] = {}
    for at in index:
        for depth, frame in enumerate(stacks[at]):
            weights[depth, frame] = weights.get((depth, frame), 0.0) + saved[at]
    around = [key for key, weight in weights.items() if weight >= MAIN * saved[index].sum()]
    if not around:
        return frames
    rest = {site: at for site, at in frames.items() if site not in casting}
    site = max(around)[1]
    return rest | {site: [*rest.get(site, []), *index]}


def _again(group: Group) -> tuple[Text, Text, tuple[Evidence, ...]]:
    """Return the title, the sentence and the evidence of how the dearest operator repeats."""
    main, site = group.main, group.places[0]
    often, distinct, elsewhere = (
        Number(main[name], "count", column("operator_values", name))
        for name in ("calls", "distinct_inputs", "elsewhere")
    )
    operator = Verbatim(text(main["operator"]))
    if main["before"]:
        earlier = _parted(main["stack"], main["before"][::-1])
        return (
            Text("At {place} the program computes again what it has from {earlier}",
                 place=site, earlier=earlier),
            Text("in {n} of {calls} calls {operator} has the inputs that it had at {earlier} "
                 "before.", operator=operator, n=elsewhere, calls=often, earlier=earlier),
            (measured(Text("calls"), often, VALUES),
             measured(Text("calls with inputs of another place"), elsewhere, VALUES)),
        )  # fmt: skip
    if main["of_numbers"]:
        return (
            Text("The program computes the same again at {place}, of numbers alone: {distinct} "
                 "distinct inputs in {calls} calls", place=site, distinct=distinct, calls=often),
            Text("{distinct} of {calls} calls of {operator} have new inputs, and no tensor comes "
                 "from outside: other data change nothing.",
                 operator=operator, calls=often, distinct=distinct),
            (measured(Text("calls"), often, VALUES),
             measured(Text("distinct inputs"), distinct, VALUES)),
        )  # fmt: skip
    usual = Number(main["fresh"], "fraction", column("operator_values", "distinct_inputs"))
    limit = REPEATED_WORK.thresholds["distinct"]
    return (
        Text("The program computes the same again at {place}: {distinct} distinct inputs in "
             "{calls} calls", place=site, distinct=distinct, calls=often),
        Text("{distinct} of {calls} calls of {operator} have new inputs, where {other} of those "
             "of other operators have.",
             operator=operator, calls=often, distinct=distinct, other=usual),
        (
            Evidence(Text("distinct inputs per call"),
                     Number(main["new"], "fraction", distinct.refs),
                     Text("{limit} of those of other operators or less", limit=limit.number),
                     limit.source),
            measured(Text("calls"), often, VALUES),
            measured(Text("new inputs per call of operators that take the time"), usual, VALUES),
        ),
    )  # fmt: skip


def _parted(stack: Sequence[Place], earlier: Sequence[Place]) -> Verbatim:
    """Return the line at which an earlier stack, the outermost frame first, leaves another one."""
    pairs = zip(earlier, [*stack, *earlier], strict=False)
    at = next((frame for frame, here in pairs if frame != here), earlier[-1])
    return Verbatim(location(at[0], at[2]))


def _unread(run: Run, calls: pd.DataFrame) -> Iterator[Finding]:
    rule, name = UNREAD_RESULTS, calls["operator"]
    read = calls["results_read"].astype(float)
    rows = calls[calls["is_work"] & ~calls["is_random"] & (read <= rule.limit("read"))]
    rows = rows[rows["calls"].ge(OFTEN) & ~_is_last(calls).reindex(rows.index)]
    rows = rows[~_with_zero_rows(rows)]  # which are why nobody reads their products
    is_sort = name.str.fullmatch(SORTS)
    is_part = is_sort | name.str.fullmatch(PRODUCTS)
    fraction = (1 - read).mask(is_sort & (read > 0), SORTED)
    rows = rows[rows["direction"].eq("forward") & (is_part | read.eq(0)).reindex(rows.index)]
    scores = _scores(calls, rows[read.reindex(rows.index).eq(0)])
    with_scores = pd.concat([rows, calls.loc[scores]])
    fraction = fraction.mask(fraction.index.isin(scores), FUSED)
    saved = (calls["time_ns"] * fraction).reindex(with_scores.index)
    for group in _priced(run, calls, _by_line(with_scores, saved), rule):
        main = group.main_of(rows.index)
        share = Number(main["results_read"], "fraction", column("operator_values", "results_read"))
        remedy = "sorted" if is_sort[main["at"]] else "sliced"
        action, advice = REMEDIES[remedy] if share.value else (rule.action, rule.advice)
        operator = Verbatim(text(main["operator"]))
        at = group.places[0]
        yield _finding(
            rule,
            group,
            title=Text("Of what {operator} computes at {place}, {share} is read",
                       operator=operator, place=at, share=share)
            if share.value
            else Text("Nothing reads what {operator} computes at {place}",
                      operator=operator, place=at),
            verdict=Text(
                "At {places} {operator} computes {calls} times what {who}.{reader}{callers} "
                "Kernels that are launched there take {share} of the GPU time ({time}). {gain}",
                places=group.places,
                operator=operator,
                calls=Number(main["calls"], "count", column("operator_values", "calls")),
                who=Text("is read to {share} only", share=share)
                if share.value
                else Text("nothing reads before it is freed"),
                reader=_reader(main) if share.value else "",
                **_launched(group),
                gain=_gain(Text("Without what nobody reads"), group.price),
            ),
            action=action,
            advice=advice,
            evidence=(
                Evidence(
                    Text("part of the result that is read"),
                    share,
                    Text("{limit} or less", limit=rule.thresholds["read"].number),
                    rule.thresholds["read"].source,
                ),
            ),
        )  # fmt: skip


def _scores(calls: pd.DataFrame, unread: pd.DataFrame) -> list[int]:
    """Return the operators that pass scores of attention through memory since its weights are asked
    for, which nobody reads: those that take or return as many numbers, where a softmax does.
    """
    shapes = ["input_shapes", "result_shapes"]
    size = calls[shapes].map(elements).max(axis=1)
    stacks, found = dict(zip(calls.index, calls["stack"], strict=True)), set[int]()
    for at in unread.index:
        same = pd.Series([stack == stacks[at] for stack in stacks.values()], calls.index)
        here = calls[same & (size == size[at]) & calls["is_work"]]
        here = here[~here["operator"].str.fullmatch(r"aten::(?:(?:add)?mm|linear)")]
        if here["operator"].str.contains("softmax").any():
            found |= set(map(int, here.index))
    return sorted(found - {*unread.index})


def _zeros(run: Run, calls: pd.DataFrame) -> Iterator[Finding]:
    rule = ZEROS_MULTIPLIED
    rows = calls[calls["operator"].str.fullmatch(PRODUCTS) & calls["calls"].ge(OFTEN)]
    is_read = ~(rows["results_read"].astype(float) <= UNREAD_RESULTS.limit("read"))
    rows = rows[is_read | _with_zero_rows(rows)]
    for name, limit, removable in (("zeros", "zeros", SPARSE), ("zero_rows", "rows", 1.0)):
        of = rows[name].map(_largest).astype(float)
        found = rows[of >= rule.limit(limit)]
        rows = rows.drop(found.index)
        fraction = of[found.index] * removable
        for group in _priced(run, calls, _by_line(found, found["time_ns"] * fraction), rule):
            main = group.main
            zeros = Number(of[main["at"]], "fraction", column("operator_values", name), digits=3)
            of_rows = name == "zero_rows"
            action, advice = REMEDIES["rows"] if of_rows else (rule.action, rule.advice)
            operator, at = Verbatim(text(main["operator"])), group.places[0]
            yield _finding(
                rule,
                group,
                title=Text("{share} of the rows that {operator} multiplies at {place} are zeros",
                           share=zeros, operator=operator, place=at)
                if of_rows
                else Text("{share} of a matrix that {operator} multiplies at {place} are zeros",
                          share=zeros, operator=operator, place=at),
                verdict=Text(
                    "At {places} {operator} multiplies {what}.{callers} Kernels that are launched "
                    "there take {share} of the GPU time ({time}). {gain}",
                    places=group.places,
                    operator=operator,
                    what=Text("a tensor of which {share} of the rows hold zeros alone (padding, "
                              "places without an entry)", share=zeros)
                    if of_rows
                    else Text("a dense matrix of which {share} are zeros", share=zeros),
                    **_launched(group),
                    gain=_gain(Text("Without products with zeros"), group.price),
                ),
                action=action,
                advice=advice,
                evidence=(
                    rule.thresholds[limit].met(
                        Text("rows that hold zeros alone") if of_rows else Text("zeros"), zeros
                    ),
                ),
            )  # fmt: skip


def _with_zero_rows(rows: pd.DataFrame) -> pd.Series[bool]:
    """Tell which operators are products of an operand in which many rows hold zeros alone."""
    zeros = rows["zero_rows"].map(_largest).astype(float)
    return rows["operator"].str.fullmatch(PRODUCTS) & (zeros >= ZEROS_MULTIPLIED.limit("rows"))


def _largest(cell: object) -> float:
    """Return the largest share of zeros in an operand that holds other numbers, too."""
    shares = [share for share in operands(cell) if share < 1]
    return max(shares, default=np.nan)


def _is_last(calls: pd.DataFrame) -> pd.Series[bool]:
    """Tell which operators are the last that compute anything in a step: who reads what comes out
    of a program is not known.
    """
    often = calls["calls"].where(calls["is_work"], 0)[::-1]
    later = often.groupby(calls["process"]).transform(lambda each: each.shift().cummax())
    return (later[::-1].fillna(0) < calls["calls"]).astype(bool)


def _by_line(rows: pd.DataFrame, saved: pd.Series[float]) -> list[dict[Place, pd.Series[float]]]:
    """Return what goes of operators by the function and line that calls them."""
    groups: dict[tuple[str, str], dict[Place, pd.Series[float]]] = {}
    stacks: dict[int, tuple[Place, ...]] = dict(zip(rows.index, rows["stack"], strict=True))
    for site, index in grouped(stacks, lambda at: stacks[at][-1]).items():
        groups.setdefault(site[:2], {})[site] = saved.loc[index]
    return [*groups.values()]


def _priced(
    run: Run, calls: pd.DataFrame, groups: Iterable[dict[Place, pd.Series[float]]], rule: Rule
) -> list[Group]:
    """Return groups that are worth a finding, the dearest first."""
    priced = [Group(run, calls, group) for group in groups if group]
    large = [group for group in priced if group.price.share >= rule.limit("share")]
    return sorted(large, key=lambda group: -group.price.share)[:MOST]


def _launched(group: Group) -> dict[str, Value]:
    """Return who calls the lines, and the time of kernels that are launched there."""
    callers, time = group.callers, group.price.time
    return {
        "callers": Text(" It is called from {places}.", places=callers) if callers else "",
        "share": time.share_of(group.price.total),
        "time": time,
    }


def _reader(row: Row) -> Text | str:
    by = json.loads(text(row["read_by"]) or "null") or {}
    if not by.get("line"):
        return ""
    return Text(
        " What reads it is {operator} at {place}.",
        operator=Verbatim(str(by["operator"])),
        place=Verbatim(location(str(by["file"]), int(by["line"]))),
    )


def _gain(without: Text, found: Price) -> Text:
    """Say what is saved, of the GPU time or, with waits, of the wall time."""
    if not found.waits.value:
        return Text(
            "{without}, at most {gain} of the GPU time is saved ({saved}).",
            without=without,
            gain=found.saved.share_of(found.total),
            saved=found.saved,
        )
    saved = found.saved + found.waits
    return Text(
        "{without}, at most {gain} of the wall time is saved ({saved}), {waits} of it time in "
        "which the GPU waits for these lines.",
        without=without,
        gain=saved.share_of(found.wall),
        saved=saved,
        waits=found.waits,
    )


def _finding(rule: Rule, group: Group, **fields: object) -> Finding:
    """Return a finding of a group of operators with what all such findings say."""
    evidence = fields.pop("evidence")
    assert isinstance(evidence, tuple)
    found = group.price
    return rule.finding(
        key="idle" if found.waits.value else rule.key,
        stage=found.stage,
        kernel_ids=found.kernel_ids,
        evidence=(
            *evidence,
            measured(Text("time of kernels launched there"), found.time),
            measured(Text("could save"), found.saved),
            measured(Text("waits for these lines that go with it"), found.waits)
            if found.waits.value
            else None,
        ),
        **{"confidence": "medium", **fields},
        **found.gains,
    )
