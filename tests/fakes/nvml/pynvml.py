"""A stand-in for NVML: H200s with the UUIDs that FAKE_GPUS lists, which tell nothing else."""

import os
from collections.abc import Callable
from typing import Any


class NVMLError(Exception):
    pass


def _uuids() -> list[str]:
    return [uuid for uuid in os.environ.get("FAKE_GPUS", "").split(",") if uuid]


def nvmlDeviceGetHandleByIndex(index: int) -> int:
    return index


def nvmlDeviceGetUUID(index: int) -> str:
    return _uuids()[index]


def nvmlDeviceGetCount() -> int:
    return len(_uuids())


def nvmlDeviceGetName(_: int) -> str:
    return "NVIDIA H200"


def nvmlSystemGetDriverVersion() -> str:
    return "580.95"


def nvmlSystemGetCudaDriverVersion_v2() -> int:
    return 13000


def nvmlInit() -> None:
    pass


def nvmlShutdown() -> None:
    pass


def __getattr__(name: str) -> int | Callable[..., Any]:
    if not name.startswith("nvml"):
        return 0

    def refuse(*_: Any) -> None:
        raise NVMLError("Not Supported")

    return refuse
