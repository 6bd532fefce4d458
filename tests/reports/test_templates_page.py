"""docs/templates.md: all that a template is given is documented, and nothing else."""

import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.render import report as render
from nsight_prof.reports.render.style import templates_folder
from scripts.pages.templates_page import PAGES, models, templates_page


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch, no_pictures: None) -> dict[str, dict[str, Any]]:
    """What each template was rendered with; pictures are left out."""
    seen: dict[str, dict[str, Any]] = {}

    write = render._marked

    def spy(name: str, content: Mapping[str, Any], *others: Any, **options: Any) -> str:
        # the tables are a function of all templates, which a report may have made before
        seen[name] = {key: value for key, value in content.items() if key != "table"}
        return write(name, content, *others, **options)

    monkeypatch.setattr(render, "_marked", spy)
    return seen


def check(given: Mapping[str, Mapping[str, Any]]) -> None:
    documented = {page.template: page.names for page in PAGES}
    for template, content in given.items():
        assert set(content) == set(documented[template]), template
        for name, value in content.items():
            kind = documented[template][name]
            assert isinstance(kind, str) or type(value) is kind, (template, name)


def test_the_names_of_a_report_are_those_of_the_page(
    run: Run, given: dict[str, dict[str, Any]]
) -> None:
    render.render_report(run)
    assert {"report.md.j2", "stakeholder_summary.md.j2"} <= set(given)
    check(given)


def test_the_names_of_a_benchmark_are_those_of_the_page(
    make_bench_run: Callable[..., Run], given: dict[str, dict[str, Any]]
) -> None:
    render.render_report(make_bench_run([]))
    assert set(given) == {"bench.md.j2", "bench_summary.md.j2"}
    check(given)


def test_every_view_model_says_what_it_is_and_has_a_place_that_links_find() -> None:
    text = templates_page()
    anchors = {title.lower() for title in re.findall(r"^### (\w+)$", text, re.MULTILINE)}
    assert set(re.findall(r"\]\(#(\w+)\)", text)) <= anchors
    assert {model.__name__.lower() for model in models()} == anchors
    for model in models():
        assert model.__doc__
        assert not model.__doc__.startswith(f"{model.__name__}("), "no docstring of its own"
        if dataclasses.is_dataclass(model):
            assert all(f"| `{field.name}` |" in text for field in dataclasses.fields(model))


def test_every_template_that_makes_a_file_is_on_the_page() -> None:
    # Those that only others include or import have no names of their own; compare has a schema.
    text = "\n".join(path.read_text("utf-8") for path in templates_folder().glob("*.j2"))
    parts = set(re.findall(r'(?:include|from|import) "([\w.]+)"', text))
    whole = {path.name for path in templates_folder().glob("*.j2")} - parts
    assert {name for name in whole if not name.startswith("compare")} == {
        page.template for page in PAGES
    }
