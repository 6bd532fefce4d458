"""The machine of fakes of the orchestrator's tests, for faults."""

from tests.orchestrator.conftest import lab, watcher, write

__all__ = ["lab", "watcher", "write"]
