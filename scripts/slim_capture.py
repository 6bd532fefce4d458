"""Makes a recorded run small enough to commit, and free of what tells about the machine.

    python scripts/slim_capture.py RUN_DIR DEST --drop trace.nsys-rep --replace /opt/prof/=
        --forbid my-host --forbid /home/me

Copies the manifest, the measured roofs and the steps; tables and report are made again by a replay.
In an .ncu-rep the modules (cubins), sources, environment, command lines, host names and folders go;
in a trace.sqlite every table that the reader does not need, and every string that no kept row uses.
A .gz is unpacked, and packed with xz like all that is large.
Whatever the readers make of a file must be the same before and after, or nothing is written.

Of a benchmark, whose kernels are many, `--drop counters.ncu-rep` leaves counters.csv, which has the
same rounded to two decimals of the base units.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import gzip
import json
import lzma
import shutil
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import pandas as pd

from nsight_prof.parsers.ncu.blocks import MAGIC, blocks, fields
from nsight_prof.parsers.ncu.nvtx import path_of_state
from nsight_prof.parsers.nsys.rows.python_samples import stack_strings
from nsight_prof.parsers.nsys.sqlite.database import Database
from nsight_prof.parsers.nsys.trace import open_trace
from nsight_prof.parsers.roofs.comm import COMM_ROOFS_FILE
from nsight_prof.parsers.roofs.file import ROOFS_FILE
from nsight_prof.parsers.run.artifacts import describe
from nsight_prof.parsers.run.directory import MANIFEST, STEPS, decompress
from nsight_prof.parsers.whole_file import write_atomic

# An edit of a protobuf field: drop it (None), change its bytes, or edit the message inside.
Edit = None | Callable[[bytes], bytes] | Mapping[int, Any]
# Smaller files are easier to read in a diff than packed.
PACK_FROM_BYTES = 32_768
KEPT_TABLES = (
    "CUDA_CALLCHAINS",
    "META_DATA_EXPORT", "EXPORT_META_DATA", "StringIds", "NVTX_EVENTS", "TARGET_INFO_GPU",
    "TARGET_INFO_CUDA_DEVICE", "TARGET_INFO_SESSION_START_TIME", "CUPTI_ACTIVITY_KIND_KERNEL",
    "CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE", "ENUM_CUDA_MEMCPY_OPER", "NVTX_PAYLOAD_SCHEMAS",
    "NVTX_PAYLOAD_SCHEMA_ENTRIES", "NVTX_PAYLOAD_ENUMS", "NVTX_PAYLOAD_ENUM_ENTRIES",
    "GPU_METRICS", "TARGET_INFO_GPU_METRICS",
)  # fmt: skip
KEPT_EXPORT_FACTS = ("EXPORT_PRODUCT", "EXPORT_SCHEMA")


class Refused(Exception):
    """The run cannot be made small without loss, or tells something that it must not."""


def _last_part(text: bytes) -> bytes:
    return text.replace(b"\\", b"/").rpartition(b"/")[2]


def _nameless(_: bytes) -> bytes:
    return b"host"


# Field numbers: extras/FileFormat/*.proto of Nsight Compute 2024.1.1.
SYSTEM: Edit = {5: _nameless, 7: None}
SESSION: Edit = {3: SYSTEM, 4: SYSTEM, 7: None, 9: {1: _last_part, 2: None, 4: None}, 11: None}
HEADER: Edit = {3: SESSION, 6: {3: _last_part}}
SOURCE: Edit = {2: None, 3: None, 4: None, 8: None}
KERNEL: Edit = {12: None, 15: SOURCE, 18: None, 28: None}
_PAYLOAD_SIZE = 5


def slim_report(data: bytes) -> bytes:
    """Return an .ncu-rep without modules, sources and what tells about the machine."""
    end_of_head = 8 + int.from_bytes(data[4:8], "little")
    out = bytearray(data[:end_of_head])
    for block in blocks(data):
        payload = bytearray()
        kernels = block.number(2)
        for place, (start, end) in enumerate(block.messages):
            edit: Edit = SOURCE if place < block.sources else {}
            if block.sources <= place < block.sources + kernels:
                edit = KERNEL
            payload += _prefixed(_rewrite(data, start, end, edit))
        first, last = block.span
        header = _rewrite(data, first, last, HEADER, {_PAYLOAD_SIZE: len(payload)})
        out += _prefixed(header) + payload
    return bytes(out)


def _prefixed(message: bytes) -> bytes:
    return len(message).to_bytes(4, "little") + message


def _rewrite(
    data: bytes, start: int, end: int, edits: Edit, numbers: Mapping[int, int] | None = None
) -> bytes:
    """Return the message with some fields edited and all others as they are, byte for byte."""
    assert isinstance(edits, Mapping)
    out, place = bytearray(), start
    for field in fields(data, start, end):
        known = numbers or {}
        if field.number in known:
            out += _varint(field.number << 3) + _varint(known[field.number])
        elif field.number not in edits or field.wire != 2:
            out += data[place : field.end]
        elif (edit := edits[field.number]) is not None:
            content = (
                edit(data[field.start : field.end])
                if callable(edit)
                else _rewrite(data, field.start, field.end, edit)
            )
            out += _varint(field.number << 3 | 2) + _varint(len(content)) + content
        place = field.end
    return bytes(out)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def facts_of_report(path: Path) -> list[Any]:
    """Return everything that ncu_report tells of every result: names, metrics, instances, NVTX."""
    import ncu_report

    facts: list[Any] = []
    for result_range in ncu_report.load_report(str(path)):
        for action in result_range:
            names = [action.name(base) for base in (0, 1, 2)]
            metrics = [
                _metric(action.metric_by_name(name)) for name in sorted(action.metric_names())
            ]
            rest = (action.workload_type(), path_of_state(action.nvtx_state()))
            facts.append((names, rest, metrics, len(action.rule_results())))
    return facts


def _metric(metric: Any) -> tuple[Any, ...]:
    instances = [str(metric.value(i)) for i in range(metric.num_instances())]
    return metric.name(), metric.kind(), metric.unit(), str(metric.value()), instances


def slim_trace(path: Path, replace: Mapping[str, str]) -> None:
    """Drop from a trace.sqlite, in place, what the reader does not need."""
    before = _trace_facts(path)
    traced = Database(path)
    of_stacks = stack_strings(traced)
    traced.close()
    with contextlib.closing(sqlite3.connect(path)) as db:
        _prune(db, of_stacks)
        db.commit()
        db.execute("VACUUM")
    if _trace_facts(path) != before:
        raise Refused(f"{path.name}: the reader gets another result from the slim file")
    with contextlib.closing(sqlite3.connect(path)) as db:
        for old, new in replace.items():
            db.execute("UPDATE StringIds SET value = replace(value, ?, ?)", (old, new))
        db.commit()
        db.execute("VACUUM")


def _prune(db: sqlite3.Connection, strings: set[int]) -> None:
    kept = [name for name in _tables(db) if _is_kept(name)]
    for name in _tables(db):
        if name not in kept:
            db.execute(f'DROP TABLE "{name}"')
    wanted = " OR ".join(f"name LIKE '{start}%'" for start in KEPT_EXPORT_FACTS)
    for name in {"META_DATA_EXPORT", "EXPORT_META_DATA"} & set(kept):
        db.execute(f'DELETE FROM "{name}" WHERE NOT ({wanted})')
    if used := " UNION ".join(_string_columns(db, kept)):
        of_stacks = ", ".join(map(str, sorted(strings))) or "-1"
        db.execute(f"DELETE FROM StringIds WHERE id NOT IN ({used}) AND id NOT IN ({of_stacks})")


def _tables(db: sqlite3.Connection) -> list[str]:
    query = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
    return [str(name) for (name,) in db.execute(query)]


def _is_kept(table: str) -> bool:
    return any(table == name or table.startswith(f"{name}_V") for name in KEPT_TABLES)


def _string_columns(db: sqlite3.Connection, tables: list[str]) -> Iterator[str]:
    for table in tables:
        for _, column, kind, *_ in db.execute(f'PRAGMA table_info("{table}")').fetchall():
            about_text = any(
                part in column.lower() for part in ("name", "text", "symbol", "module")
            )
            if table != "StringIds" and kind.upper() == "INTEGER" and about_text:
                yield f'SELECT "{column}" FROM "{table}" WHERE "{column}" IS NOT NULL'


def _trace_facts(path: Path) -> list[str]:
    with open_trace(path) as trace:
        frames = [
            trace.gpus(), trace.kernels(), trace.launches(), trace.stages(), trace.stage_kernels(),
            trace.memory_operations(), trace.api_calls(), trace.engine_steps(), trace.engine_gaps(),
            trace.devices(), trace.gpu_stages(), trace.gpu_idle_gaps(), trace.host_lines(),
            trace.gpu_samples(), trace.thread_lines(), trace.launch_lines(), *trace.modules(),
        ]  # fmt: skip
        return [_text(frame) for frame in frames] + [trace.product_version, trace.schema_version]


def _text(frame: pd.DataFrame) -> str:
    return str(frame.to_csv(index=False))


def slim_run(run: Path, target: Path, options: argparse.Namespace) -> None:
    """Write the slim copy of `run` to the empty folder `target`."""
    replace = dict(pair.split("=", 1) for pair in options.replace)
    # What earlier tries of a step left (1-bench.failed-1) is not part of the run.
    wanted = [run / name for name in (MANIFEST, ROOFS_FILE, COMM_ROOFS_FILE)]
    wanted += sorted((run / STEPS).glob("[0-9]-[a-z]*/**/*"))
    wanted = [path for path in wanted if "." not in path.relative_to(run).parent.name]
    _check_counters(wanted, options.drop)
    for source in wanted:
        plain_name = source.name.removesuffix(".xz")
        if not source.is_file() or plain_name in options.drop:
            continue
        place = target / source.relative_to(run).with_name(plain_name)
        place.parent.mkdir(parents=True, exist_ok=True)
        if source.suffix == ".xz":
            decompress(source, place)
        elif source.suffix == ".gz":  # xz packs it better, and what it holds can be looked through
            place = place.with_suffix("")
            place.write_bytes(gzip.decompress(source.read_bytes()))
        else:
            shutil.copyfile(source, place)
        _slim_file(place, replace)
    _describe_anew(target)


def _describe_anew(run: Path) -> None:
    """Give the manifest sizes and hashes of the slim files, where it has those of the run's."""
    manifest = json.loads((run / MANIFEST).read_text(encoding="utf-8"))
    described = [step for step in manifest.get("steps", ()) if step.get("files")]
    for step in described:
        files = describe(run / step["directory"])
        step["files"] = {name: dataclasses.asdict(file) for name, file in files.items()}
    if described:
        write_atomic(run / MANIFEST, json.dumps(manifest, indent=1, ensure_ascii=False) + "\n")


def _check_counters(wanted: list[Path], drop: list[str]) -> None:
    """Refuse to drop the last file that holds the counters of a run."""
    names = {path.name.removesuffix(".xz") for path in wanted}
    counters = {"counters.ncu-rep", "counters.csv"} & names
    if counters and counters <= set(drop):
        raise Refused(f"{' and '.join(sorted(counters))}: without it the run has no counters")


def _slim_file(path: Path, replace: Mapping[str, str]) -> None:
    data = path.read_bytes()
    if data.startswith(MAGIC):
        before = facts_of_report(path)
        path.write_bytes(slim_report(data))
        if facts_of_report(path) != before:
            raise Refused(f"{path.name}: ncu_report gets another result from the slim file")
    elif data.startswith(b"SQLite format 3\0"):
        slim_trace(path, replace)
    elif b"\0" not in data:
        for old, new in replace.items():
            data = data.replace(old.encode(), new.encode())
        path.write_bytes(data)


def check_forbidden(folder: Path, texts: list[str]) -> None:
    """Raise Refused where a file of `folder` still holds one of `texts`."""
    for path in sorted(folder.rglob("*")):
        data = path.read_bytes() if path.is_file() else b""
        for text in texts:
            if text.encode() in data or text.encode("utf-16-le") in data:
                raise Refused(f"{path.relative_to(folder)} still holds {text!r}")
            if text in path.name:
                raise Refused(f"the name {path.name} holds {text!r}")


def pack(folder: Path) -> None:
    """Pack every large artifact with xz; the manifest and the roofs stay readable."""
    for path in sorted(folder.rglob("*")):
        plain = not path.is_file() or path.name in (MANIFEST, ROOFS_FILE, COMM_ROOFS_FILE)
        if not plain and path.stat().st_size >= PACK_FROM_BYTES:
            packed = path.with_name(f"{path.name}.xz")
            packed.write_bytes(lzma.compress(path.read_bytes(), preset=9 | lzma.PRESET_EXTREME))
            path.unlink()


def _print_sizes(run: Path, target: Path) -> None:
    for path in sorted(p for p in target.rglob("*") if p.is_file()):
        name = path.relative_to(target)
        plain = str(name).removesuffix(".xz")
        places = (run / name, run / plain, run / f"{plain}.gz")
        origin = next((place for place in places if place.is_file()), path)
        print(f"{origin.stat().st_size:>12,} -> {path.stat().st_size:>10,}  {name}")
    total = sum(p.stat().st_size for p in target.rglob("*") if p.is_file())
    print(f"{'':>12}    {total:>10,}  in all")


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; 0 done, 1 refused."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("run", type=Path)
    parser.add_argument("target", type=Path)
    for option, meaning in (
        ("--drop", "leave out the files of this name"),
        ("--forbid", "fail where a file still holds this text"),
        ("--replace", "OLD=NEW in all text files and in the strings of the trace"),
    ):
        parser.add_argument(option, action="append", default=[], help=meaning)
    options = parser.parse_args(arguments)
    try:
        if not (options.run / MANIFEST).is_file():
            raise Refused(f"{options.run} is no run directory")
        if options.target.exists():
            raise Refused(f"{options.target} exists")
        options.target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=options.target.parent) as partial:
            folder = Path(partial) / "run"
            slim_run(options.run, folder, options)
            check_forbidden(folder, options.forbid)
            pack(folder)
            folder.rename(options.target)
    except Refused as refused:
        print(f"refused: {refused}", file=sys.stderr)
        return 1
    _print_sizes(options.run, options.target)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
