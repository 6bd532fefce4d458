"""The measures of a made-up house, counted by hand, and that a worse house does not pass."""

from pathlib import Path

import pytest
import yaml

from scripts import measure_house

FILES = {
    "__init__.py": "",
    "a.py": "import re\nfrom nsight_prof.reports import b\n\ndef _f(told): return b\n\n\n_f(1)\n",
    "b.py": "from nsight_prof.reports.deep.c import X\nfrom nsight_prof.parsers.p import Y\n",
    "deep/__init__.py": "",
    "deep/c.py": "from importlib import import_module\nX = import_module('x')\n",
    "deep/d.py": "def late():\n    from .. import a\n    return a.re.search('x', 'y')\n",
    "deep/e.py": "import re\n_ours = re.compile('x')\n",
}
EXPECTED = {
    "files": 7, "lines": 16, "chain": 4, "modules_per_folder": 3, "both_ways": 1, "called_once": 1,
    "dialect": 2, "own_text_read": 1, "dynamic_imports": 1,
}  # fmt: skip


@pytest.fixture
def house(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        path = tmp_path / "reports" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "parsers").mkdir()
    (tmp_path / "parsers" / "p.py").write_text("Y = 1\n")
    (tmp_path / "scripts").mkdir()
    kept = {name: {"kept": value, "goal": 0} for name, value in EXPECTED.items()}
    rules = {"dialect": ["told", "ours"], "outside_text": [], "packages": {"reports": kept}}
    (tmp_path / measure_house.HOUSE).write_text("# why\n" + yaml.safe_dump(rules))
    return tmp_path


def test_the_measures_are_those_counted_by_hand(house: Path) -> None:
    found = measure_house.read(house, "reports")
    assert measure_house.measure(found, ["told", "ours"], []) == EXPECTED
    outside = measure_house.measure(found, ["told"], ["reports.deep.e"])
    assert (outside["dialect"], outside["own_text_read"]) == (1, 0)
    # Of both packages as one house: d, a, b and p, or c.
    assert measure_house.measure(measure_house.read(house, "reports parsers"), [], [])["chain"] == 4


@pytest.mark.parametrize(
    ("path", "text", "measure"),
    [
        ("deep/f.py", "def told(): ...\n", "dialect"),
        ("deep/f.py", "", "modules_per_folder"),
        ("deep/f.py", "from nsight_prof.reports.deep import d\n", "chain"),
        ("b.py", "import re\nfound = re.findall('x', 'y')\n", "own_text_read"),
        ("deep/c.py", "__import__('x')\n__import__('y')\n", "dynamic_imports"),
    ],
)
def test_a_house_that_got_worse_fails(
    house: Path, capsys: pytest.CaptureFixture[str], path: str, text: str, measure: str
) -> None:
    assert measure_house.main(["--check"], house) == 0
    (house / "reports" / path).write_text(text)
    assert measure_house.main(["--check"], house) == 1
    words = capsys.readouterr().err
    assert f"reports: {measure} is " in words
    assert ("reports.deep.f: told" in words) is (measure == "dialect")
    assert ("\n  reports/deep\n" in words) is (path == "deep/f.py")  # the fullest folder
    # Kept on purpose, it passes; the comments of the file stay.
    assert measure_house.main(["--keep"], house) == 0
    assert measure_house.main(["--check"], house) == 0
    assert (house / measure_house.HOUSE).read_text().startswith("# why\n")


def test_a_better_house_passes(house: Path) -> None:
    (house / "reports" / "deep" / "e.py").unlink()
    assert measure_house.main(["--check"], house) == 0
