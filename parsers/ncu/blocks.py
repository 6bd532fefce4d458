"""Turns the frame of an .ncu-rep file (its blocks) into the tool's version and the process ids.

ncu_report does not tell them. The file is "NVR\\0", a header and blocks: each has its length (four
bytes, little endian), a protobuf BlockHeader, and a payload of length-prefixed messages, sources
first. NVIDIA ships the definitions with Nsight Compute (extras/FileFormat/ProfilerReport.proto,
read in 2024.1.1; file version 7 from ncu 2020.3 to 2025.3).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

MAGIC = b"NVR\0"
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
# BlockHeader
_SOURCES, _KERNELS, _SESSION, _PAYLOAD_SIZE, _PROCESS = 1, 2, 3, 5, 6
_RANGES, _CMDLISTS, _GRAPHS = 7, 8, 9
# ReportSessionDetails.VersionInfo, VersionInfo.Provider and .Version, ProcessInfo.ProcessID
_VERSION_INFO, _PROVIDER, _VERSION, _PROCESS_ID = 8, 1, 2, 1


@dataclass(frozen=True)
class Field:
    """One protobuf field: a number (`value`), or bytes from `start` to `end` of the file."""

    number: int
    wire: int
    value: int
    start: int
    end: int


@dataclass(frozen=True)
class Block:
    """One block: its header's span and fields, and the spans of its payload's messages."""

    span: tuple[int, int]
    header: list[Field]
    messages: list[tuple[int, int]]

    def number(self, field: int) -> int:
        """Return a number of the header, 0 where it has none."""
        return next((f.value for f in self.header if f.number == field), 0)

    @property
    def sources(self) -> int:
        """How many of the messages are modules (source, cubin); they come first."""
        return self.number(_SOURCES)

    @property
    def results(self) -> int:
        """How many of the messages are results: kernels, ranges, graphs."""
        return sum(self.number(field) for field in (_KERNELS, _RANGES, _CMDLISTS, _GRAPHS))


@dataclass(frozen=True)
class Frame:
    """What the blocks tell of the whole report; `pids` has one entry a result, in file order."""

    version: str
    pids: list[int]


def read_frame(path: Path) -> Frame:
    """Read the version of ncu and the process of each result.

    Raises:
        ValueError: not laid out as an .ncu-rep.
    """
    data = path.read_bytes()
    version, pids = "", []
    for block in blocks(data):
        for field in block.header:
            if field.number == _SESSION and not version:
                version = _version(data, field)
            elif field.number == _PROCESS:
                pid = _first(data, field, _PROCESS_ID)
                pids += [pid.value if pid else 0] * block.results
    return Frame(version, pids)


def blocks(data: bytes) -> Iterator[Block]:
    """Yield the blocks of an .ncu-rep.

    Raises:
        ValueError: not laid out as an .ncu-rep, or cut.
    """
    if not data.startswith(MAGIC):
        raise ValueError("no NVR header")
    _, offset = _message(data, len(MAGIC))
    while offset < len(data):
        (start, end), offset = _message(data, offset)
        block = Block((start, end), list(fields(data, start, end)), [])
        payload_end = offset + block.number(_PAYLOAD_SIZE)
        if payload_end > len(data):
            raise ValueError("a block is longer than the file")
        while offset < payload_end:
            span, offset = _message(data, offset)
            block.messages.append(span)
        yield block


def fields(data: bytes, start: int, end: int) -> Iterator[Field]:
    """Yield the fields of the protobuf message from `start` to `end`.

    Raises:
        ValueError: no protobuf message.
    """
    offset = start
    while offset < end:
        key, offset = _varint(data, offset, end)
        number, wire = key >> 3, key & 7
        value, first = 0, offset
        if wire == _VARINT:
            value, offset = _varint(data, offset, end)
        elif wire == _BYTES:
            size, first = _varint(data, offset, end)
            offset = first + size
        elif wire in (_FIXED64, _FIXED32):
            offset += 8 if wire == _FIXED64 else 4
        else:
            raise ValueError(f"unknown wire type {wire}")
        if offset > end:
            raise ValueError("a field is longer than its message")
        yield Field(number, wire, value, first, offset)


def _message(data: bytes, offset: int) -> tuple[tuple[int, int], int]:
    start = offset + 4
    if start > len(data):
        raise ValueError("a length is cut")
    end = start + struct.unpack_from("<I", data, offset)[0]
    if end > len(data):
        raise ValueError("a message is longer than the file")
    return (start, end), end


def _varint(data: bytes, offset: int, end: int) -> tuple[int, int]:
    value = shift = 0
    while offset < end and shift < 70:
        byte = data[offset]
        offset += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, offset
    raise ValueError("a number is cut")


def _first(data: bytes, inside: Field, number: int) -> Field | None:
    found = (f for f in fields(data, inside.start, inside.end) if f.number == number)
    return next(found, None)


def _version(data: bytes, session: Field) -> str:
    for info in fields(data, session.start, session.end):
        if info.number != _VERSION_INFO or not _text(data, info, _PROVIDER).startswith("Nsight"):
            continue
        # "2025.3.1.0 (build 36398880) (public-release)"
        return _text(data, info, _VERSION).split(" (")[0]
    return ""


def _text(data: bytes, inside: Field, number: int) -> str:
    found = _first(data, inside, number)
    return data[found.start : found.end].decode("utf-8", "replace") if found else ""
