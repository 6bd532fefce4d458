"""Reading chrome traces event by event equals reading them whole."""

from __future__ import annotations

import gzip
import json
import lzma
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nsight_prof.parsers.errors import ArtifactUnreadable
from nsight_prof.parsers.torch import events as torch_events
from nsight_prof.parsers.torch.events import read_events

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
EVENTS = st.lists(st.dictionaries(st.text(), VALUES, max_size=4), max_size=6)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    events=EVENTS,
    header=st.dictionaries(st.text().filter(lambda key: key != "traceEvents"), VALUES, max_size=3),
    indent=st.sampled_from([None, 0, 2]),
    chunk=st.integers(1, 40),
    bare=st.booleans(),
)
def test_events_are_those_of_the_whole_file(
    tmp_path: Path,
    events: list[Any],
    header: dict[str, Any],
    indent: int | None,
    chunk: int,
    bare: bool,
) -> None:
    whole = events if bare else {**header, "traceEvents": events, "displayTimeUnit": 1e3}
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(whole, indent=indent), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch_events, "CHUNK", chunk)
        assert list(read_events(path)) == events


def test_numbers_that_a_chunk_cuts_are_whole(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text('{"a": 1234567, "traceEvents": [{"ts": 4449323236496.168}]}', encoding="utf-8")
    for chunk in range(1, 30):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(torch_events, "CHUNK", chunk)
            assert list(read_events(path)) == [{"ts": 4449323236496.168}]


@pytest.mark.parametrize("suffix", [".json", ".json.gz", ".json.xz"])
def test_compressed_files(tmp_path: Path, suffix: str) -> None:
    data = json.dumps({"traceEvents": [{"name": "ä"}]}).encode()
    packed = {".json": data, ".json.gz": gzip.compress(data), ".json.xz": lzma.compress(data)}
    path = tmp_path / f"trace{suffix}"
    path.write_bytes(packed[suffix])
    assert list(read_events(path)) == [{"name": "ä"}]


WHOLE = b'{"x": [1, 2], "traceEvents": [{"a": {"b": "c"}}, {"d": 1.5}], "y": 2}'


def test_a_file_that_is_cut_off_anywhere_is_told(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    said = {}
    for length in range(len(WHOLE)):
        path.write_bytes(WHOLE[:length])
        try:
            said[length] = f"it was read: {list(read_events(path))}"
        except ArtifactUnreadable as error:
            said[length] = str(error)
    assert {length: words for length, words in said.items() if "torch profiler" not in words} == {}


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("cut.json.gz", gzip.compress(WHOLE * 100, mtime=0)[:-9]),
        ("no.json.gz", b"no gzip"),
        ("no.json.xz", b"no xz"),
        ("other.json", b'{"events": []}'),
        ("text.json", b"error: nothing"),
    ],
)
def test_other_files_are_told(tmp_path: Path, name: str, content: bytes) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(ArtifactUnreadable) as told:
        list(read_events(path))
    assert "operators.enabled=false" in told.value.hint


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ArtifactUnreadable):
        list(read_events(tmp_path / "nowhere.json"))
