"""The page of a fleet: the spread of each GPU model, and which GPU is off, why, and what to do."""

from __future__ import annotations

from collections.abc import Sequence

from nsight_prof.reports.fleet import fleet
from nsight_prof.reports.fleet.fleet import FEWEST, Board, Model, Outlier
from nsight_prof.reports.page import (
    Column,
    Evidence,
    Finding,
    Name,
    Number,
    Section,
    Table,
    Text,
    arranged,
)
from nsight_prof.reports.page.catalogue import ENGLISH
from nsight_prof.reports.page.charts import Bar, BarFigure
from nsight_prof.reports.page.markdown import MARKDOWN, section_markdown
from nsight_prof.reports.page.section import slug
from nsight_prof.reports.page.units import change
from nsight_prof.reports.page.values import Capital
from nsight_prof.reports.page.writer import Markup

BARS = 24
"""GPUs of a picture, the slowest ones."""
NAMES = {
    fleet.COMPUTE: Text("arithmetic"),
    fleet.CACHES: Text("caches"),
    fleet.MEMORY: Text("DRAM"),
    fleet.LINK: Text("transfers from and to the host"),
    fleet.ENGINE: Text("whole requests to the engine"),
}
CAUSES = {
    "clock": Text("a lower SM clock, which nothing that NVML names held down"),
    "heat": Text("heat, which held its SM clock down"),
    "power": Text("its power limit, which held its SM clock down"),
    "memory": Text("the DRAM itself"),
    "link": Text("the link itself"),
    "": Text("unknown: its SM clock does not explain it"),
}
ACTIONS = {
    "clock": (Text("Look for a clock that somebody locked"), "nvidia-smi -q -d CLOCK"),
    "heat": (Text("Check fans, airflow and coolant of its node"), "nvidia-smi -q -d TEMPERATURE"),
    "power": (Text("Hold its power limit against the others'"), "nvidia-smi -q -d POWER"),
    "memory": (Text("Look for remapped rows and ECC errors"), "nvidia-smi -q -d ROW_REMAPPER,ECC"),
    "link": (
        Text("Hold PCIe generation, link width and NUMA node against the others'"),
        "nvidia-smi -q -d PCIE; nvidia-smi topo -m",
    ),
    "": (Text("Measure it once more with its node otherwise idle"), "prof run"),
}


def section(models: Sequence[Model], *, pictures: bool = True) -> Section:
    """Return the page of a fleet, with a part for each model of GPU."""
    children = tuple(_model(model, pictures) for model in models)
    return Section("fleet", Text("GPUs of a fleet"), (), children)


def _model(model: Model, pictures: bool) -> Section:
    key = f"fleet-{slug(model.name)}"
    method = (
        Text(
            "Each case is held against its median over all GPUs of the model; a GPU's value is the "
            "median of these ratios over the cases of a kind. All of them ran {n} case.",
            "Each case is held against its median over all GPUs of the model; a GPU's value is the "
            "median of these ratios over the cases of a kind. All of them ran {n} cases.",
            n=model.cases,
        ),
        Text(
            "With {n} GPUs or more, a GPU counts as slower that is behind the median by {share} "
            "and by {spreads} standard deviations of the others.",
            n=FEWEST,
            share=Number(fleet.DIFFERS, "fraction", digits=1),
            spreads=int(fleet.SPREADS),
        ),
    )
    findings = [_spread(model), *map(_outlier, model.outliers)]
    charts = [_chart(key, model)] if pictures else []
    blocks = arranged((), findings, charts, [_boards(key, model)], method)
    return Section(key, Text("{model}", model=Name(model.name)), blocks)


def _spread(model: Model) -> Finding:
    off = len({outlier.uuid for outlier in model.outliers})
    if model.gpus < FEWEST:
        verdict = Text(
            "{n} GPU is too few to say which one is slower: that takes {enough}.",
            "{n} GPUs are too few to say which one is slower: that takes {enough}.",
            n=model.gpus,
            enough=FEWEST,
        )
    elif off:
        verdict = Text(
            "{n} of {gpus} GPUs is slower than the others.",
            "{n} of {gpus} GPUs are slower than the others.",
            n=off,
            gpus=model.gpus,
        )
    else:
        verdict = Text(
            "None of {gpus} GPUs is slower than the median by {share} and {spreads} standard "
            "deviations of the others.",
            gpus=model.gpus,
            share=Number(fleet.DIFFERS, "fraction"),
            spreads=int(fleet.SPREADS),
        )
    evidence = tuple(
        Evidence(Text("{kind}, from fastest to slowest", kind=NAMES[kind]), _share(value))
        for kind, value in model.spread.items()
    )
    return Finding("spread", verdict, evidence)


def _outlier(outlier: Outlier) -> Finding:
    verdict = Text(
        "{gpu} ({run}) is {slower} slower in {kind}; cause: {cause}.",
        gpu=Name(outlier.uuid),
        run=Name(outlier.run),
        slower=_share(outlier.slower),
        kind=NAMES[outlier.kind],
        cause=CAUSES[outlier.cause],
    )
    evidence = (
        Evidence(Text("SM clock below the median by"), _share(outlier.clock_lower)),
        Evidence(Text("highest temperature"), Number(outlier.temperature_c, "°C", digits=2)),
    )
    disproof = Text("A repeat on this GPU that is as fast as the others.")
    do, command = ACTIONS[outlier.cause]
    action = Text("{do}: {command}", do=do, command=Name(command))
    return Finding("off", verdict, evidence, action, disproof)


def _share(value: float | None) -> Number:
    return Number(value, "fraction", digits=2)


def _slowest_first(model: Model) -> list[Board]:
    return sorted(model.boards, key=lambda board: -max(board.slower.values()))


def _chart(key: str, model: Model) -> BarFigure:
    """Draw the kind of cases in which each GPU is off, else slowest."""
    title = Text("{model}: where each GPU is slowest", model=model.name)
    alt = "Bars: by how much each GPU is slower than the median, in its slowest kind of cases"
    off, bars = {outlier.uuid: outlier.kind for outlier in reversed(model.outliers)}, []
    for board in _slowest_first(model)[:BARS]:
        kind = off.get(board.uuid) or max(board.slower, key=lambda kind: board.slower[kind])
        slower = max(board.slower[kind], 0.0)
        label = "-".join(board.uuid.split("-")[:2])
        bars.append(Bar(label, 100 * slower, group=NAMES[kind].message, text=change(slower, 2)))
    levels = ((100 * fleet.DIFFERS, "matters"),)
    return BarFigure(key, title, alt, "Slower than the median (%)", tuple(bars), levels)


def _boards(key: str, model: Model) -> Table[Board]:
    def slower(kind: str) -> Column[Board]:
        return Column(
            Text("{kind}", kind=Capital(NAMES[kind])), lambda board: _share(board.slower[kind])
        )

    causes: dict[str, list[Text]] = {}
    for outlier in model.outliers:
        causes.setdefault(outlier.uuid, []).append(CAUSES[outlier.cause])
    columns = [
        Column[Board](Text("GPU"), lambda board: Name(board.uuid)),
        Column[Board](Text("Host and run"), lambda board: Name(board.run)),
        *map(slower, model.spread),
        Column[Board](Text("SM clock below the median"), lambda board: _share(board.clock_lower)),
        Column[Board](Text("Hottest"), lambda board: Number(board.temperature_c, "°C", digits=2)),
        Column[Board](Text("Cause"), lambda board: causes.get(board.uuid)),
    ]
    title = Text("How much slower than the median of the model, by kind of case")
    return Table(key, title, columns, _slowest_first(model), cards=True)


def markdown(models: Sequence[Model], language: str = ENGLISH, markup: Markup = MARKDOWN) -> str:
    """Return the page as markdown, which has no pictures."""
    return f"{section_markdown(section(models, pictures=False), language, 1, markup)}\n"


def html(models: Sequence[Model], language: str = ENGLISH) -> str:
    """Return the page as one HTML file."""
    # Only this format needs matplotlib, which takes long to import.
    from nsight_prof.reports.render.one_section import section_page

    return section_page(section(models), language)
