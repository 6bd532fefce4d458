"""The metrics of ncu's section files, for one chip, without ncu."""

import os
import runpy
import subprocess
from pathlib import Path

import pytest

from nsight_prof.orchestrator.tools.ncu import RULE_SECTIONS

_SCRIPT = runpy.run_path(str(Path(__file__).resolve().parents[2] / "scripts" / "section_passes.py"))
metrics, parse = _SCRIPT["metrics"], _SCRIPT["parse"]

SECTION = """
Identifier: "Made"   # a comment with "quotes" and { braces
Header {
  Metrics {
    Label: "Old or new"
    Name: "old__metric.avg"
    Filter { MaxArch: CC_70 }
    Options { Name: "mid__metric.avg" Filter { MinArch: CC_75 MaxArch: CC_86 } }
    Options { Name: "new__metric.avg" Filter { MinArch: CC_89 } }
  }
  Metrics { Label: "All" Name: "all__metric.sum" }
}
Body {
  Items {
    Table { Metrics { Label: "x" Name: "all__metric.sum" } }
    SuffixTable {
      Suffixes { Suffix { Name: ".avg" } Suffix { Name: ".max" } }
      BaseNames {
        BaseName { Name: "sm__a" }
        BaseName { Name: "gone__b" Filter { Items { MaxArch: CC_70 } Items { MinArch: CC_100 } } }
      }
    }
  }
}
"""
TABLE = ["sm__a.avg", "sm__a.max"]


@pytest.mark.parametrize(
    ("capability", "names"),
    [
        (70, ["old__metric.avg", "all__metric.sum", *TABLE, "gone__b.avg", "gone__b.max"]),
        (80, ["mid__metric.avg", "all__metric.sum", *TABLE]),
        (90, ["new__metric.avg", "all__metric.sum", *TABLE]),
        (100, ["new__metric.avg", "all__metric.sum", *TABLE, "gone__b.avg", "gone__b.max"]),
    ],
)
def test_a_chip_gets_the_metrics_that_its_filters_let_through(
    capability: int, names: list[str]
) -> None:
    assert metrics(parse(SECTION), capability) == names


@pytest.mark.parametrize("section", RULE_SECTIONS)
def test_ncu_lists_the_metrics_of_its_own_sections(nsight: Path, section: str) -> None:
    folder = (nsight / "ncu").resolve().parent
    files = [
        path for place in folder.parents for path in place.glob("ncu-target/sections/*.section")
    ]
    named = [path for path in files if f'Identifier: "{section}"' in path.read_text("utf-8")]
    if not named:
        pytest.skip(f"the folder of {nsight} holds no section files")
    argv = [str(nsight / "ncu"), "--config-file", "off", "--section", section, "--list-metrics"]
    listed = subprocess.run(argv, env=os.environ, capture_output=True, text=True, check=True).stdout
    ours = [name for name in metrics(parse(named[0].read_text("utf-8")), 90) if ":" not in name]
    assert ours
    assert [name for name in ours if name.split(".")[0] not in listed] == []
