"""Turns a view into the list of its pictures: file name, words for who cannot see it, figure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial

from matplotlib.figure import Figure

from nsight_prof.reports.page.charts import (
    BarFigure,
    Chart,
    RooflineFigure,
    StackFigure,
    TimelineFigure,
)
from nsight_prof.reports.page.figure_models import Overview, RooflinePanel
from nsight_prof.reports.page.section import Section, slug
from nsight_prof.reports.plots.bars import TimeBar, plot_occupancy, plot_time
from nsight_prof.reports.plots.bench_bars import plot_bars
from nsight_prof.reports.plots.bench_lines import plot_lines
from nsight_prof.reports.plots.overview import plot_overview
from nsight_prof.reports.plots.roofline.roofline import plot_roofline
from nsight_prof.reports.plots.stacks import plot_stacks, plot_stalls
from nsight_prof.reports.plots.throughput import plot_throughput
from nsight_prof.reports.plots.timeline import plot_timeline
from nsight_prof.reports.profile.view_models import ReportView


@dataclass(frozen=True)
class Picture:
    """One picture of a report: `group` is the section it belongs to, `stage` empty for the whole.

    `name` is the file name without its suffix; `alt` says what the picture shows.
    """

    group: str
    name: str
    alt: str
    stage: str
    draw: Callable[[], Figure]


def pictures(view: ReportView) -> list[Picture]:
    """Return the pictures that the data of `view` allow, in the order of the report."""
    own = [*_time(view), *_rooflines(view), *_counters(view)]
    return _distinct([*own, *bench_pictures(view.sections)])


def overview_pictures(shown: Overview) -> list[Picture]:
    """Return the first picture of a report; none where no time is known."""
    if not shown.drawn:
        return []
    alt = "Timeline: stages and kernels of each GPU; bar: where the time of the run goes"
    return [Picture("overview", "overview", alt, "", partial(plot_overview, shown))]


def bench_pictures(sections: Iterable[Section]) -> list[Picture]:
    """Return the pictures of the sections; the group is the key of the section."""
    found = [
        Picture(section.key, figure.file, figure.alt, "", partial(_drawn, figure.chart))
        for section in sections
        for figure in section.figures
    ]
    return _distinct(found)


def _drawn(figure: Chart) -> Figure:
    if isinstance(figure, RooflineFigure):
        return plot_roofline(figure.panel, figure.subtitle)
    if isinstance(figure, TimelineFigure):
        return plot_timeline(figure)
    if isinstance(figure, StackFigure):
        return plot_stacks(figure)
    return plot_bars(figure) if isinstance(figure, BarFigure) else plot_lines(figure)


def _distinct(found: list[Picture]) -> list[Picture]:
    """Number names that are the same: stages "a b" and "a-b" make one file name."""
    seen: Counter[str] = Counter()
    named = []
    for picture in found:
        seen[picture.name] += 1
        more = seen[picture.name]
        named.append(replace(picture, name=f"{picture.name}-{more}") if more > 1 else picture)
    return named


def _time(view: ReportView) -> Iterator[Picture]:
    bars = [
        TimeBar(str(k.number), k.short_name, k.category, k.share, k.total_ns, k.calls)
        for k in view.kernels
        if k.share is not None
    ]
    if bars and view.rest_kernels and view.rest_share is not None:
        plural = "s" if view.rest_kernels > 1 else ""
        rest = f"rest ({view.rest_kernels} kernel{plural})"
        bars.append(TimeBar("", rest, "", view.rest_share, None, None))
    if bars:
        alt = "Bars: share of GPU time of each kernel"
        yield Picture(
            "time", "time", alt, "", lambda: plot_time(bars, view.gpu_time_ns, view.working_gpus)
        )


def _rooflines(view: ReportView) -> Iterator[Picture]:
    for panel in view.rooflines:
        if panel.kernels:
            yield _roofline(panel, "")
    for stage in view.stages:
        for panel in view.rooflines:
            part = _of_stage(view, panel, stage.stage)
            if part is not None:
                yield _roofline(part, stage.stage)


def _roofline(panel: RooflinePanel, stage: str) -> Picture:
    numbers = ", ".join(str(kernel.number) for kernel in panel.kernels)
    name = f"roofline-{slug(panel.key)}" + (f"-{slug(stage)}" if stage else "")
    alt = f"{panel.title} (kernels {numbers})"
    return Picture("roofline", name, alt, stage, lambda: plot_roofline(panel))


def _of_stage(view: ReportView, panel: RooflinePanel, stage: str) -> RooflinePanel | None:
    """Return the panel with the kernels of one stage, or None where it would show nothing new."""
    stages = {kernel.number: kernel.stages for kernel in view.kernels}
    mine = tuple(k for k in panel.kernels if stage in stages.get(k.number, ()))
    if not mine or len(mine) == len(panel.kernels):
        return None
    return replace(panel, title=f"{panel.title}, stage {stage}", kernels=mine)


def _counters(view: ReportView) -> Iterator[Picture]:
    if view.occupancy:
        alt = "Bars: achieved and theoretical occupancy of each kernel"
        yield Picture("occupancy", "occupancy", alt, "", lambda: plot_occupancy(view.occupancy))
    if view.throughput:
        alt = "Table of cells: per cent of the DRAM, L2, L1 and Tensor Core peaks of each kernel"
        yield Picture("throughput", "throughput", alt, "", lambda: plot_throughput(view.throughput))
    if view.stalls.bars:
        alt = "Stacked bars: stall reasons of each kernel"
        yield Picture("stalls", "stalls", alt, "", lambda: plot_stalls(view.stalls))
