"""vLLM's exceptions of an engine."""


class EngineDeadError(Exception):
    """The engine's process is gone."""

    def __init__(self) -> None:
        super().__init__(
            "EngineCore encountered an issue. See stack trace (above) for the root cause."
        )
