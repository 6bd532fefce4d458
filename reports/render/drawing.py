"""Draws the pictures of a report: in this process, or in a second one beside the text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from itertools import chain
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler
from typing import NamedTuple

from nsight_prof.parsers.substeps import substep
from nsight_prof.reports.page.catalogue import ENGLISH, file_in
from nsight_prof.reports.render.gallery import Picture
from nsight_prof.reports.render.second_process import second_process
from nsight_prof.reports.render.style import HTML, MARKDOWN, Style


@dataclass(frozen=True)
class Drawn:
    """A picture as drawn: `files` of markdown by name, an <svg> element for HTML by language.

    Either is empty where no page of that format is written.
    """

    name: str
    files: dict[str, bytes]
    html: dict[str, str]


class Drawing(NamedTuple):
    """The pictures of a report by `names`, and each as `drawn` once it is asked for."""

    names: tuple[str, ...]
    drawn: Iterator[Drawn]


def together(*drawings: Drawing) -> Drawing:
    """Return pictures that were asked for one after the other, in that order, as one."""
    names = (name for drawing in drawings for name in drawing.names)
    return Drawing(tuple(names), chain.from_iterable(drawing.drawn for drawing in drawings))


Draw = Callable[[Sequence[Picture], Style], Drawing]
"""Draws pictures for the pages of a style."""


def draw_here(pictures: Sequence[Picture], style: Style) -> Drawing:
    """Draw pictures in this process, each when it is asked for."""
    return Drawing(tuple(picture.name for picture in pictures), _each(pictures, style))


def _each(pictures: Iterable[Picture], style: Style) -> Iterator[Drawn]:
    for picture in pictures:
        substep("figures", picture.name)
        yield _drawn(picture, style)


@contextmanager
def drawing_in_parallel() -> Iterator[Draw]:
    """Give what draws in a second process, which imports matplotlib meanwhile."""
    with second_process(_serve) as connection:
        yield draw_here if connection is None else partial(_draw_in_process, connection)


def begun(draw: Draw, pictures: Sequence[Picture], style: Style) -> Draw:
    """Return `draw`, which has begun with pictures for who asks for the same first."""
    early, known = draw(pictures, style), repr((pictures, style))
    waiting = [early]

    def drawing(asked: Sequence[Picture], style: Style) -> Drawing:
        first = waiting.pop() if waiting else None
        if first is not None and repr((asked, style)) == known:
            return first
        for _ in first.drawn if first else ():  # they come before what is asked for now
            pass
        return draw(asked, style)

    return drawing


def _draw_in_process(connection: Connection, pictures: Sequence[Picture], style: Style) -> Drawing:
    """Have pictures drawn from now on; what a process that died leaves is drawn here."""
    connection.send((pictures, style))
    return Drawing(tuple(p.name for p in pictures), _received(connection, pictures, style))


def _received(connection: Connection, pictures: Sequence[Picture], style: Style) -> Iterator[Drawn]:
    for index, picture in enumerate(pictures):
        substep("figures", picture.name)
        try:
            drawn = connection.recv()
        except (EOFError, OSError):
            yield from _each(pictures[index:], style)
            return
        if isinstance(drawn, Exception):
            raise drawn
        yield drawn


def _serve(connection: Connection) -> None:
    """Draw what the connection asks for until it is closed."""
    from matplotlib import artist

    # Half of the import would go into what setters take and texts about them: nobody asks here.
    artist.Artist._update_set_signature_and_docstring = lambda: None  # type: ignore
    from matplotlib.textpath import TextToPath

    # Half of the texts of a report stand in several of its pictures.
    measured = cache(partial(TextToPath.get_text_width_height_descent, TextToPath()))
    TextToPath.get_text_width_height_descent = lambda _, *text: measured(*text)  # type: ignore
    # Imported before the first picture is asked for, which would wait for them.
    from matplotlib.backends import backend_svg  # noqa: F401

    from nsight_prof.reports.plots import heat, icicle, inline, sheet, stacks  # noqa: F401
    from nsight_prof.reports.plots.bench import bars, lines, timeline  # noqa: F401
    from nsight_prof.reports.plots.style import style as settings

    # A pipe holds less than a picture: a thread waits for the reader.
    with settings(), ThreadPoolExecutor(1) as sender:
        while True:
            pictures, style = connection.recv()
            for picture in pictures:
                drawn = ForkingPickler.dumps(_drawn_or_error(picture, style))
                sender.submit(connection.send_bytes, drawn)


def _drawn_or_error(picture: Picture, style: Style) -> Drawn | Exception:
    try:
        return _drawn(picture, style)
    except Exception as error:
        return error


def _drawn(picture: Picture, style: Style) -> Drawn:
    from nsight_prof.reports.plots.inline import render_inline
    from nsight_prof.reports.plots.style import render_png, render_svg
    from nsight_prof.reports.plots.words import drawn_in

    drawn = Drawn(picture.name, {}, {})
    for language in style.all_languages:
        with drawn_in(language):
            figure = picture.draw()
            svg = render_svg(figure)
            if MARKDOWN in style.formats:
                drawn.files[file_in(f"{picture.name}.svg", language)] = svg
                if style.png and language == ENGLISH:  # the font of PNG has English alone
                    drawn.files[f"{picture.name}.png"] = render_png(figure)
            if HTML in style.formats:
                drawn.html[language] = render_inline(figure, svg, picture.name, picture.alt)
                if picture.narrow is not None:
                    small = picture.narrow()
                    name = f"{picture.name}-narrow"
                    drawn.html[language] += render_inline(
                        small, render_svg(small), name, picture.alt
                    )
    return drawn
