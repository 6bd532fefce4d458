"""The concepts of a page: numbers keep their source and texts their values until it is written.

Whoever finds something makes a `Section` of texts, findings, tables and figures. The renderers
(reports.page.markdown, .html, .json) know only these classes; `Writer` alone turns a value into
words, in one language.
"""

from nsight_prof.reports.page.section import (
    Basis,
    Block,
    Bullets,
    Choice,
    Column,
    Evidence,
    Fact,
    Figure,
    Finding,
    Json,
    OpenQuestion,
    Section,
    Table,
    arranged,
)
from nsight_prof.reports.page.values import (
    Document,
    Interval,
    Link,
    Name,
    Number,
    Ref,
    Series,
    Strong,
    Text,
    Value,
    Verbatim,
    Word,
    adding_up,
)

__all__ = [
    "Basis",
    "Bullets",
    "Choice",
    "Column",
    "Document",
    "Evidence",
    "Fact",
    "Figure",
    "Finding",
    "Interval",
    "Json",
    "Link",
    "Name",
    "Number",
    "OpenQuestion",
    "Block",
    "Ref",
    "Section",
    "Series",
    "Strong",
    "Table",
    "Text",
    "Value",
    "Verbatim",
    "Word",
    "adding_up",
    "arranged",
]
