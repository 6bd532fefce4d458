"""Writes a small nsys export: 3 kernels, 6 launches, as nsys 2025.3.1 lays its tables out."""

import sqlite3
from os import PathLike

SCHEMA = """
CREATE TABLE META_DATA_EXPORT (name TEXT, value TEXT);
CREATE TABLE META_DATA_CAPTURE (name TEXT, value TEXT);
CREATE TABLE TARGET_INFO_SYSTEM_ENV (globalVid INTEGER, devStateName TEXT, name TEXT,
    nameEnum INTEGER, value TEXT);
CREATE TABLE TARGET_INFO_GPU (vmId INTEGER, id INTEGER, name TEXT, uuid TEXT, chipName TEXT,
    computeMajor INTEGER, computeMinor INTEGER, smCount INTEGER, clockRate INTEGER,
    totalMemory INTEGER, memoryBandwidth INTEGER, l2CacheSize INTEGER, maxWarpsPerSm INTEGER);
CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER, eventClass INTEGER,
    globalTid INTEGER, correlationId INTEGER, nameId INTEGER, returnValue INTEGER,
    callchainId INTEGER);
"""
KERNEL = """
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER,
    contextId INTEGER, greenContextId INTEGER, streamId INTEGER, correlationId INTEGER,
    globalPid INTEGER, demangledName INTEGER, shortName INTEGER, mangledName INTEGER,
    launchType INTEGER, cacheConfig INTEGER, registersPerThread INTEGER, gridX INTEGER,
    gridY INTEGER, gridZ INTEGER, blockX INTEGER, blockY INTEGER, blockZ INTEGER,
    staticSharedMemory INTEGER, dynamicSharedMemory INTEGER, localMemoryPerThread INTEGER,
    localMemoryTotal INTEGER, gridId INTEGER, sharedMemoryExecuted INTEGER,
    graphNodeId INTEGER, sharedMemoryLimitConfig INTEGER)
"""
NVTX = """
CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, eventType INTEGER, text TEXT,
    globalTid INTEGER, endGlobalTid INTEGER, textId INTEGER, domainId INTEGER);
"""
# Two launches each: a prefill of 2 requests, and two decode steps.
VLLM_STEPS = {
    450: "execute_context_2(32)_generation_0(0)",
    2450: "execute_context_0(0)_generation_2(2)",
    4450: "execute_context_0(0)_generation_2(2)",
}
NAMES = ["nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_TNT", "_Z4axpyfPfS_i", "_Z6kernelPf"]
PID = 7 << 24


def make_trace(path: str | PathLike[str], mode: str, environment: dict[str, str]) -> None:
    """Write the export; `mode` as FAKE_NSYS. FAKE_TRACE=vllm adds the ranges of engine steps."""
    # nsys stores bytes that are no UTF-8 as they are; sqlite3 takes no such text.
    environment = {n: v.encode(errors="replace").decode() for n, v in environment.items()}
    database = sqlite3.connect(path)
    database.executescript(SCHEMA)
    facts = {"EXPORT_PRODUCT_VERSION": "2025.3.1.90", "EXPORT_SCHEMA_VERSION": "3.20.3"}
    database.executemany("INSERT INTO META_DATA_EXPORT VALUES (?, ?)", facts.items())
    joined = ";".join(f"{name}={value}" for name, value in environment.items())
    insert = database.execute
    insert("INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES (1,'x','DeviceEnvironment',610,?)", [joined])
    variables = [("PROCESS_0:ENVIRONMENT_VARIABLE", f"{n}={v}") for n, v in environment.items()]
    database.executemany("INSERT INTO META_DATA_CAPTURE VALUES (?, ?)", variables)
    gpu = [0, 0, "NVIDIA H200", "GPU-0", "GH100", 9, 0, 132, 1980000000]
    gpu += [150_000_000_000, 4814304000000, 62914560, 64]
    insert(f"INSERT INTO TARGET_INFO_GPU VALUES ({','.join('?' * 13)})", gpu)
    called = "cudaFree" if mode == "no-kernels" else "cudaLaunchKernel"
    strings = {1: called, **{i + 10: name for i, name in enumerate(NAMES)}}
    database.executemany("INSERT INTO StringIds VALUES (?, ?)", strings.items())
    call = "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?,?,0,?,?,1,0,NULL)"
    insert(call, [50, 60, PID + 7, 99])
    if mode != "no-kernels":
        database.executescript(KERNEL)
        for number in range(6):
            start, kernel = 1000 * (number + 1), number % 3
            insert(call, [start - 500, start - 400, PID + 7, number + 1])
            end = start + 100 * (3 - kernel) + number
            row: list[int | None] = [start, end, 0, 1, 0, 7, number + 1, PID]
            row += [10 + kernel] * 3 + [1, 0, 32, 4, 1, 1, 128, 1, 1, 0, 0, 0, 0, 0, 0, None, 0]
            marks = ",".join("?" * len(row))
            insert(f"INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES ({marks})", row)
    if environment.get("FAKE_TRACE") == "vllm":
        database.executescript(NVTX)
        for start, name in VLLM_STEPS.items():
            step = [start, start + 1250, 59, name, PID + 7, None, None, 0]
            insert("INSERT INTO NVTX_EVENTS VALUES (?,?,?,?,?,?,?,?)", step)
    if mode == "unknown-schema":
        insert("ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL RENAME COLUMN gridX TO gridDimensions")
        insert("UPDATE META_DATA_EXPORT SET value='9.0.0' WHERE name='EXPORT_SCHEMA_VERSION'")
    database.commit()
    database.close()
