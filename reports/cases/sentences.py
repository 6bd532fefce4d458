"""What a study says is data: sentences.yaml of its package, below reports.studies.

`findings` has the sentences of each rule, `charts` the words of each figure by its name, `notes`
those below a table by its key, and `texts` all others.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

from nsight_prof.parsers.packaged import packaged_yaml
from nsight_prof.reports.page import Evidence, Finding, Text, Value
from nsight_prof.reports.page.values import placeholders

message: type[Text] = Text  # one of data, where scripts/messages.py finds it
FIELDS = ("verdict", "evidence", "action", "disproof", "lay_verdict")
"""Sentences of a rule, which are fields of its finding; `technical` is another."""


class Sentences:
    """The sentences of a study, whose package is `study`.

    Of several for one field of a finding the first counts whose values are all given; without one
    the field is empty. Of its `evidence` each does, behind the evidence that is given. A rule whose
    findings say different things has an entry for each, "rule/which".
    """

    def __init__(self, study: str) -> None:
        self._study = study

    def text(self, name: str, /, **values: Value) -> Text:
        """Return a text with its values."""
        return message(_data(self._study)["texts"][name], **values)

    def texts(self, name: str) -> tuple[Text, ...]:
        """Return texts that have no values."""
        return tuple(map(message, _data(self._study)["texts"][name]))

    def note(self, table: str) -> Text:
        """Return the note below a table."""
        return message(_data(self._study)["notes"][table])

    def chart(self, name: str) -> dict[str, Any]:
        """Return the name of a figure and its fixed words: fields of its class."""
        return {"name": name, **_data(self._study)["charts"][name]}

    def finding(
        self, name: str, evidence: Iterable[Evidence | Text] = (), /, **values: Value | None
    ) -> Finding:
        """Return the finding of an entry with its values; None stands for one that is not known.

        Raises:
            ValueError: the verdict lacks a value, or no sentence takes one that is given.
        """
        rule = _data(self._study)["findings"][name]
        given = {key: value for key, value in values.items() if value is not None}
        found: dict[str, list[Text]] = {}
        taken = set()
        for field in FIELDS:
            messages = rule.get(field, ())
            for words in (messages,) if isinstance(messages, str) else messages:
                names = placeholders(words)
                taken |= names
                if names <= given.keys():
                    text = message(words, **{k: v for k, v in given.items() if k in names})
                    found.setdefault(field, []).append(text)
        if "verdict" not in found or given.keys() - taken:
            raise ValueError(f"{self._study}, {name}: takes {sorted(taken)}, not {sorted(given)}")
        first = {field: texts[0] for field, texts in found.items()}
        return Finding(
            name.partition("/")[0],
            first["verdict"],
            (*evidence, *found.get("evidence", ())),
            first.get("action"),
            first.get("disproof"),
            lay_verdict=first.get("lay_verdict"),
            technical=bool(rule.get("technical")),
        )


@cache
def _data(study: str) -> dict[str, Any]:
    data: dict[str, Any] = packaged_yaml(f"nsight_prof.reports.studies.{study}", "sentences.yaml")
    return data
