"""Section of a model's stages: the FLOPs and bytes that they need, over time and roofs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from nsight_prof.parsers.build.peaks import Peak, Peaks, peaks
from nsight_prof.parsers.cells import Row, grouped, known, records, text
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.analysis.stages import stage_rows
from nsight_prof.reports.analysis.timeline import range_times
from nsight_prof.reports.page import (
    Bullets,
    Column,
    Fact,
    Json,
    Number,
    Ref,
    Section,
    Table,
    Text,
    Value,
    Verbatim,
)
from nsight_prof.reports.serving.engine import DTYPES
from nsight_prof.reports.serving.roofs import roof_at

SHOWN = 12
"""Rows of each table before the rest."""
KEY, TITLE = "stage-work", Text("Work of the stages")
STEPS = ("trace", "counters", "operators", "untraced")
"""Whose work is shown, the first that has it: that of the trace, whose times are known."""
MOST = 1.05
"""Share of a roof beyond which the roof or the count must be wrong."""
BEYOND = "more than its roof allows, so that roof or count are wrong"
RANGE_COLUMNS = {"wall_ns": "wall_ns", "gpu_busy_ns": "busy_ns"}
"""Column of a stage -> that of a range inside of one."""
REFUTED = Text(
    "The measured roofs are left out: a stage reaches more than they allow, as where another "
    "program ran while they were measured."
)
METHOD = (
    Text(
        "FLOPs: matrix products, convolutions and attention, counted by torch while the model ran "
        "once more without a profiler; attention counts all pairs of query and key. Weights: what "
        "each call reads, of an embedding the rows and of a mixture of experts those that tokens "
        "were sent to. Activations are not counted."
    ),
    Text(
        "MFU is these FLOPs over the time of the stage and the roof of the Tensor Cores; MBU the "
        "weights and KV cache over its time and the bandwidth of DRAM. The time includes what the "
        "GPU was idle; MFU while busy leaves that out: where it is much higher, the GPU waits for "
        "work, and faster kernels would change little."
    ),
)


@dataclass(frozen=True)
class Modules:
    """Modules that differ in numbers of their names alone, as those of all layers of a stack."""

    name: str
    rows: tuple[Row, ...]

    def sum(self, column: str, unit: str) -> Number:
        """Return the sum of a column."""
        refs = tuple(Ref("module_work", text(row["module"]), column) for row in self.rows)
        values = [known(row[column]) for row in self.rows]
        if None in values:
            return Number(None, unit, refs, missing="the target did not count it")
        return Number(sum(filter(None, values)), unit, refs)


def part_tables(run: Run, source: str) -> list[Table[Modules] | Table[Row]]:
    """Return the tables of what a step counted; none where it named no modules or operators."""
    modules = _modules([row for row in records(run.module_work) if row["source"] == source])
    operators = [row for row in records(run.operator_work) if row["source"] == source]
    found: list[Table[Modules] | Table[Row]] = []
    if modules:
        found.append(_module_table(modules))
    if operators:
        found.append(_operator_table(operators))
    return found


def _modules(rows: list[Row]) -> list[Modules]:
    """Return the modules that multiply, most FLOPs first; outer ones before those inside.

    Those of all layers are one, with * for the number of the layer.
    """

    def name(row: Row) -> str:
        words = text(row["module"]).split(".")
        return ".".join("*" if word.isdecimal() else word for word in words)

    groups = grouped(rows, name)
    busy = [Modules(n, tuple(of)) for n, of in groups.items() if any(row["flops"] for row in of)]
    return sorted(busy, key=lambda m: m.sum("flops", "FLOP").value or 0, reverse=True)


def _module_table(modules: list[Modules]) -> Table[Modules]:
    total = modules[0].sum("flops", "FLOP")
    return Table(
        "module-work",
        Text("Modules"),
        [
            Column(
                Text("Module"),
                lambda m: Verbatim(m.name) if m.name else Text("the whole model"),
            ),
            Column(Text("Class"), lambda m: Verbatim(text(m.rows[0]["kind"]))),
            Column(Text("Modules"), lambda m: Number(len(m.rows), "count")),
            Column(Text("Parameters"), lambda m: m.sum("parameters", "count")),
            Column(Text("FLOPs"), lambda m: m.sum("flops", "FLOP")),
            Column(Text("Share"), lambda m: m.sum("flops", "FLOP").share_of(total)),
            Column(Text("Activations"), lambda m: m.sum("activation_bytes", "B")),
        ],
        modules,
        note=Text(
            "A module counts what is inside of it too; * are all layers of a stack. Activations: "
            "the tensors that it returned, over all of its calls."
        ),
        preview=SHOWN,
    )


def _operator_table(rows: list[Row]) -> Table[Row]:
    stages: dict[str, Number] = {}
    for row in rows:
        stage = text(row["stage"])
        stages[stage] = _flops(row) + stages[stage] if stage in stages else _flops(row)

    def share(row: Row) -> Number:
        return _flops(row).share_of(stages[text(row["stage"])])

    ordered = sorted(rows, key=lambda row: row["flops"], reverse=True)
    return Table(
        "operator-work",
        Text("Operators that multiply"),
        [
            Column(Text("Stage"), lambda row: Verbatim(text(row["stage"]))),
            Column(Text("Operator"), lambda row: Verbatim(text(row["operator"]))),
            Column(Text("FLOPs"), _flops),
            Column(Text("Of its stage"), share),
        ],
        ordered,
        preview=SHOWN,
    )


def _flops(row: Row) -> Number:
    key = f"{text(row['stage'])}/{text(row['operator'])}"
    return Number(known(row["flops"]), "FLOP", (Ref("operator_work", key, "flops"),))


@dataclass(frozen=True)
class Stage:
    """What a stage needs, and the time that it took in the trace; the GPU was `busy` for a part."""

    row: Row
    time: Number
    busy: Number
    roofs: Peaks

    @property
    def name(self) -> str:
        """Its name."""
        return text(self.row["stage"])

    def number(self, column: str, unit: str) -> Number:
        """Return a count of the stage."""
        return Number(known(self.row[column]), unit, (Ref("stage_work", self.name, column),))

    @property
    def read(self) -> Number:
        """Bytes of weights and KV cache."""
        return self.number("weight_bytes", "B") + self.number("kv_bytes", "B")

    @property
    def mfu(self) -> Number:
        """FLOPs over time and roof, 0 to 1."""
        return self._used(self.number("flops", "FLOP"), self.roofs.compute, self.time)

    @property
    def mfu_busy(self) -> Number:
        """FLOPs over the time in which the GPU works and roof, 0 to 1."""
        return self._used(self.number("flops", "FLOP"), self.roofs.compute, self.busy)

    @property
    def mbu(self) -> Number:
        """Bytes over time and roof, 0 to 1."""
        return self._used(self.read, self.roofs.memory, self.time)

    @staticmethod
    def _used(work: Number, roof: Peak | None, time: Number) -> Number:
        if roof is None or time.value is None:
            return Number(None, "fraction")
        attainable = Number(roof.value * time.value * 1e-9, work.unit, time.refs)
        share = work.share_of(attainable)
        impossible = share.value is not None and share.value > MOST
        return Number(None, "fraction", missing=BEYOND) if impossible else share


def section(run: Run) -> Section | None:
    """Return the section; None for a run whose target did not count its work."""
    rows = records(run.stage_work)
    source = next((step for step in STEPS if any(row["source"] == step for row in rows)), None)
    if source is None:
        return None
    of_source = [row for row in rows if row["source"] == source]
    in_trace = {text(row["stage"]): row for row in stage_rows(run)}
    inside = [name for row in of_source if (name := text(row["stage"])) not in in_trace]
    ranges = range_times(run, inside).groupby("name")[["wall_ns", "busy_ns"]].sum()

    def traced(name: str, column: str) -> Number:
        if name in ranges.index:  # of a stage of the engine, which has no ranges of its own there
            time_ns = int(ranges[RANGE_COLUMNS[column]][name])
            return Number(time_ns, "ns", (Ref("launches", name),))
        return Number(
            known(in_trace.get(name, {}).get(column)), "ns", (Ref("stages", name, column),)
        )

    roofs = peaks(run, DTYPES.get(text(of_source[0]["dtype"]), ""))

    def stages_below(roofs: Peaks) -> list[Stage]:
        return [
            Stage(row, traced(name, "wall_ns"), traced(name, "gpu_busy_ns"), roofs)
            for row in of_source
            if (name := text(row["stage"])) and (row["flops"] or row["weight_bytes"])
        ]

    stages, refuted = stages_below(roofs), []
    beyond = any(BEYOND in (stage.mfu.missing, stage.mbu.missing) for stage in stages)
    if beyond and (roofs.steady or roofs.burst or roofs.read):
        roofs = replace(roofs, steady=None, burst=None, read=None)
        stages, refuted = stages_below(roofs), [REFUTED]
    return Section(
        KEY,
        TITLE,
        (
            _intro(of_source[0], source),
            *_quantized(of_source),
            *refuted,
            *([_used(stages)] if any(s.mfu.value or s.mbu.value for s in stages) else ()),
            _table(run, stages, roofs),
            *part_tables(run, source),
            Bullets(Text("How it was counted"), METHOD),
        ),
        numbers={"stages": [_numbers(stage) for stage in stages]},
        facts=tuple(_facts({name: traced(name, "wall_ns") for name in in_trace}, stages)),
    )


def _facts(times: Mapping[str, Number], stages: list[Stage]) -> list[Fact]:
    """Return how long each stage takes, the longest first, and how much of the GPU it uses."""
    total = Number(sum(time.value or 0.0 for time in times.values()), "ns")
    used = {stage.name: stage for stage in stages if stage.mfu.value and stage.mbu.value}
    found = []
    for name, time in sorted(times.items(), key=lambda item: -(item[1].value or 0.0)):
        given: dict[str, Value] = {"time": time, "part": time.share_of(total)}
        value = Text("{time} ({part})", **given)
        if name in used:
            value = Text(
                "{time} ({part}), using {compute} of what the GPU can compute and {memory} of its "
                "memory bandwidth",
                **given,
                compute=used[name].mfu,
                memory=used[name].mbu,
            )
        found.append(Fact(Text("Time in {stage}", stage=Verbatim(name)), value))
    return found


def _intro(row: Row, source: str) -> Text:
    return Text(
        "The model {model} has {parameters} parameters in {dtype}; what was counted is in {file}.",
        model=Verbatim(text(row["model"])),
        parameters=Number(known(row["parameters"]), "count", digits=3),
        dtype=Verbatim(text(row["dtype"])),
        file=Verbatim(f"static_compute.json ({source})"),
    )


def _quantized(rows: list[Row]) -> list[Text]:
    """How the weights are quantized, and what that saves where the run had them in 16 bits."""
    method = Verbatim(text(rows[0]["quantization"]))
    if not text(rows[0]["quantization"]):
        return []
    stored = [row for row in rows if known(row["stored_bytes"]) and known(row["weight_bytes"])]
    if not stored:
        return [Text("Its linear layers are quantized ({kinds}).", kinds=method)]
    read = [
        Text(
            "{stage} {stored}",
            stage=Verbatim(text(row["stage"])),
            stored=Number(
                known(row["stored_bytes"]), "B", (Ref("stage_work", row["stage"], "stored_bytes"),)
            ),
        )
        for row in stored
    ]
    return [
        Text(
            "The checkpoint is quantized ({method}); the weights of this run are made up in "
            "{dtype}. As the checkpoint stores them each stage would read: {read}.",
            method=method,
            dtype=Verbatim(text(rows[0]["dtype"])),
            read=read,
        )
    ]


def _used(stages: list[Stage]) -> Text:
    each = [
        Text("{stage} ({mfu}, {mbu})", stage=Verbatim(s.name), mfu=s.mfu, mbu=s.mbu) for s in stages
    ]
    return Text("MFU and MBU of each stage: {stages}.", stages=each)


def _table(run: Run, stages: list[Stage], roofs: Peaks) -> Table[Stage]:
    alone = {
        text(row["stage"]): known(row["seconds"])
        for row in records(run.stage_work)
        if row["source"] == "untraced"
    }
    return Table(
        KEY,
        Text("FLOPs and bytes of each stage"),
        [
            Column(Text("Stage"), lambda s: Verbatim(s.name)),
            Column(Text("Calls"), lambda s: s.number("calls", "count")),
            Column(Text("FLOPs"), lambda s: s.number("flops", "FLOP")),
            Column(Text("Weights read"), lambda s: s.number("weight_bytes", "B")),
            Column(Text("KV cache read"), lambda s: s.number("kv_bytes", "B")),
            Column(Text("Time"), lambda s: s.time),
            Column(Text("MFU"), lambda s: s.mfu),
            Column(Text("MBU"), lambda s: s.mbu),
            Column(Text("Time without a profiler"), lambda s: Number(alone.get(s.name), "s")),
            Column(Text("MFU while busy"), lambda s: s.mfu_busy),
        ],
        stages,
        note=Text(
            "MFU is of the {compute}, MBU of the {memory}.",
            compute=_roof(roofs.compute, "FLOP/s"),
            memory=_roof(roofs.memory, "B/s"),
        ),
    )


def _roof(roof: Peak | None, unit: str) -> Value:
    if roof is None:
        return Text("roof of this type, which is not known")
    return roof_at(roof, unit)


def _numbers(stage: Stage) -> Json:
    counts = {k: known(stage.row[k]) for k in ("calls", "flops", "weight_bytes", "kv_bytes")}
    return {
        "stage": stage.name,
        **counts,
        "time_ns": known(stage.time.value),
        "mfu": stage.mfu.value,
        "mfu_busy": stage.mfu_busy.value,
        "mbu": stage.mbu.value,
    }
