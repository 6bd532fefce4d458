"""The concepts of a page: numbers keep their source and texts their values until it is written.

Whoever finds something makes a `Section` of texts, findings, tables and figures. The renderers
(reports.page.markdown, .html, .json) know only these classes; `Writer` alone turns a value into
words, in one language.
"""

from nsight_prof.reports.page.finding import Evidence, Finding, OpenQuestion
from nsight_prof.reports.page.number import Interval, Number, Ref
from nsight_prof.reports.page.section import Bullets, Fact, Figure, Json, Part, Section
from nsight_prof.reports.page.table import Column, Table
from nsight_prof.reports.page.text import Name, Text, Value, Verbatim

__all__ = [
    "Bullets",
    "Column",
    "Evidence",
    "Fact",
    "Figure",
    "Finding",
    "Interval",
    "Json",
    "Name",
    "Number",
    "OpenQuestion",
    "Part",
    "Ref",
    "Section",
    "Table",
    "Text",
    "Value",
    "Verbatim",
]
