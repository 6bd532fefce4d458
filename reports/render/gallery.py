"""Turns a view into the list of its pictures: file name, words for who cannot see it, figure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from nsight_prof.reports.page.charts import (
    BarFigure,
    Chart,
    HeatFigure,
    IcicleFigure,
    LineFigure,
    RooflineFigure,
    RooflinePanel,
    StackFigure,
    TimelineFigure,
)
from nsight_prof.reports.page.figure_models import Overview, TimeBar
from nsight_prof.reports.page.section import Section, slug
from nsight_prof.reports.page.values import Text, Words

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from nsight_prof.reports.profile.view_models import KernelFigures, ReportView

NARROW = 380.0
"""Pixels that a page of 400 px leaves for a picture."""


@dataclass(frozen=True)
class Picture:
    """One picture of a report: `group` is the section it belongs to, `stage` empty for the whole.

    `name` is the file name without its suffix; `alt` says what the picture shows. `narrow` draws
    the same for narrow pages, where it does not do to scroll.
    """

    group: str
    name: str
    alt: Words
    stage: str
    draw: Callable[[], Figure]
    narrow: Callable[[], Figure] | None = None


def kernel_pictures(view: KernelFigures) -> list[Picture]:
    """Return the pictures that the kernels of a run allow, in the order of the report."""
    return _distinct([*_time(view), *_rooflines(view), *_counters(view)])


def pictures(view: ReportView) -> list[Picture]:
    """Return all pictures that the data of `view` allow: `kernel_pictures` first."""
    return _distinct([*kernel_pictures(view), *bench_pictures(view.sections)])


def overview_pictures(figure: Overview) -> list[Picture]:
    """Return the first picture of a report; none where no time is known."""
    if not figure.drawn:
        return []
    alt = "Timeline: stages and kernels of each GPU; bar: where the time of the run goes"
    draw = partial(_draw, "overview", figure)
    return [Picture("overview", "overview", alt, "", draw, partial(draw, NARROW))]


def bench_pictures(sections: Sequence[Section]) -> list[Picture]:
    """Return the pictures of the sections; the group is the key of the section.

    Lines have a second drawing for narrow pages where they come first, as on the first screen.
    """
    found = [
        Picture(section.key, figure.file, figure.alt, "", partial(_draw_chart, figure.chart))
        for section in sections
        for figure in section.figures
    ]
    lead = next((figure.chart for section in sections for figure in section.figures), None)
    if isinstance(lead, LineFigure):
        found[0] = replace(found[0], narrow=partial(_draw_chart, lead, NARROW))
    return _distinct(found)


def _distinct(found: list[Picture]) -> list[Picture]:
    """Number names that are the same: stages "a b" and "a-b" make one file name."""
    uses: Counter[str] = Counter()
    renamed = []
    for picture in found:
        uses[picture.name] += 1
        more = uses[picture.name]
        renamed.append(replace(picture, name=f"{picture.name}-{more}") if more > 1 else picture)
    return renamed


def _time(view: KernelFigures) -> Iterator[Picture]:
    from nsight_prof.reports.profile.view_models import working_gpus

    bars = [
        TimeBar(str(k.number), k.short_name, k.category, k.share, k.total_ns, k.calls)
        for k in view.kernels
        if k.share is not None
    ]
    if bars and view.rest_kernels and view.rest_share is not None:
        rest = Text("rest ({n} kernel)", "rest ({n} kernels)", n=view.rest_kernels)
        bars.append(TimeBar("", rest, "", view.rest_share, None, None))
    if bars:
        alt = "Bars: share of GPU time of each kernel"
        drawn = partial(_draw, "time", bars, view.gpu_time_ns, working_gpus(view.gpus))
        yield Picture("time", "time", alt, "", drawn)


def _rooflines(view: KernelFigures) -> Iterator[Picture]:
    for panel in view.rooflines:
        if panel.kernels:
            yield _roofline(panel, "")
    for stage in view.stages:
        for panel in view.rooflines:
            panel_of_stage = _of_stage(view, panel, stage.stage)
            if panel_of_stage is not None:
                yield _roofline(panel_of_stage, stage.stage)


def _roofline(panel: RooflinePanel, stage: str) -> Picture:
    numbers = ", ".join(str(kernel.number) for kernel in panel.kernels)
    name = f"roofline-{slug(panel.key)}" + (f"-{slug(stage)}" if stage else "")
    alt = Text("{title} (kernels {numbers})", title=panel.title, numbers=numbers)
    return Picture("roofline", name, alt, stage, partial(_draw, "roofline", panel))


def _of_stage(view: KernelFigures, panel: RooflinePanel, stage: str) -> RooflinePanel | None:
    """Return the panel with the kernels of one stage, or None where it would show nothing new."""
    from nsight_prof.reports.analysis.stages import stage_words

    stages = {kernel.number: kernel.stages for kernel in view.kernels}
    kernels = tuple(k for k in panel.kernels if stage in stages.get(k.number, ()))
    if not kernels or len(kernels) == len(panel.kernels):
        return None
    title = Text("{title}, stage {stage}", title=panel.title, stage=stage_words(stage))
    return replace(panel, title=title, kernels=kernels)


def _counters(view: KernelFigures) -> Iterator[Picture]:
    if view.occupancy:
        alt = "Bars: achieved and theoretical occupancy of each kernel"
        yield Picture(
            "occupancy", "occupancy", alt, "", partial(_draw, "occupancy", view.occupancy)
        )
    if view.throughput:
        alt = "Table of cells: per cent of the DRAM, L2, L1 and Tensor Core peaks of each kernel"
        yield Picture(
            "throughput", "throughput", alt, "", partial(_draw, "throughput", view.throughput)
        )
    if view.stalls.bars:
        alt = "Stacked bars: stall reasons of each kernel"
        yield Picture("stalls", "stalls", alt, "", partial(_draw, "stalls", view.stalls))


# matplotlib takes half a second to import: who only names pictures, as the process that writes the
# pages, does without.


def _draw_chart(chart: Chart, *given: Any) -> Figure:
    from nsight_prof.reports.plots.bench.bars import plot_bars
    from nsight_prof.reports.plots.bench.lines import plot_lines
    from nsight_prof.reports.plots.bench.timeline import plot_timeline
    from nsight_prof.reports.plots.heat import plot_heat
    from nsight_prof.reports.plots.icicle import plot_icicle
    from nsight_prof.reports.plots.stacks import plot_stacks

    if isinstance(chart, RooflineFigure):
        return _draw("roofline", chart.panel, chart.subtitle)
    plots: dict[type[Chart], Callable[..., Figure]] = {
        **{BarFigure: plot_bars, HeatFigure: plot_heat, IcicleFigure: plot_icicle},
        **{LineFigure: plot_lines, StackFigure: plot_stacks, TimelineFigure: plot_timeline},
    }
    return plots[type(chart)](chart, *given)


def _draw(kind: str, *given: Any) -> Figure:
    from nsight_prof.reports.plots.bars import plot_occupancy, plot_throughput, plot_time
    from nsight_prof.reports.plots.overview import plot_overview
    from nsight_prof.reports.plots.roofline.roofline import plot_roofline
    from nsight_prof.reports.plots.stacks import plot_stalls

    of_kind: dict[str, Callable[..., Figure]] = {
        **{"overview": plot_overview, "time": plot_time, "roofline": plot_roofline},
        **{"occupancy": plot_occupancy, "throughput": plot_throughput, "stalls": plot_stalls},
    }
    return of_kind[kind](*given)
