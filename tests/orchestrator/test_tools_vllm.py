"""What vLLM's own output tells of a failure, with its words as version 0.20.2 writes them."""

import pytest

from nsight_prof.orchestrator.tools import target
from nsight_prof.parsers.errors import StepFailed, ToolMissing

PREFIX = "(EngineCore pid=411) ERROR 11-22 00:10:17 [core.py:1109] "
DEAD = (
    f"{PREFIX}EngineCore failed to start.\n"
    f"{PREFIX}Traceback (most recent call last):\n"
    f'{PREFIX}  File "core.py", line 1083, in run_engine_core\n'
    f"{PREFIX}{{cause}}\n"
    "RuntimeError: Engine core initialization failed. See root cause above. Failed procs: {}\n"
)


@pytest.mark.parametrize(
    ("log", "message", "hint"),
    [
        ("ModuleNotFoundError: No module named 'vllm'", "has no vLLM", "target.python"),
        (
            DEAD.replace("{cause}", "ValueError: No available memory for the cache blocks. Try"),
            "no room for vLLM's KV cache: ValueError: No available memory for the cache blocks",
            "gpu_memory_utilization",
        ),
        (
            "ValueError: To serve at least one request with the models's max seq len (131072), "
            "(16.0 GiB KV cache is needed, which is larger than the available KV cache memory "
            "(3.01 GiB). Based on",
            "no room for vLLM's KV cache",
            "max_model_len",
        ),
        (
            "ValueError: Free memory on device cuda:0 (3.2/139.8 GiB) on startup is less than "
            "desired GPU memory utilization (0.9, 125.8 GiB). Decrease GPU memory utilization",
            "other programs hold the GPU's memory: ValueError: Free memory on device cuda:0",
            "nvidia-smi",
        ),
        (
            "OSError: Invalid repository ID or local directory specified: '/no/model'.\nPlease",
            "does not find the model: OSError: Invalid repository ID or local directory specified: "
            "'/no/model'",
            "HF_TOKEN",
        ),
        (
            "RuntimeError: \n        An attempt has been made to start a new process before the\n",
            "without a main guard",
            "__name__",
        ),
        ("OSError: [Errno 98] Address already in use", "port is taken", "another port"),
        (
            DEAD.replace("{cause}", "AssertionError: head size 7 is odd"),
            "vLLM's engine died: AssertionError: head size 7 is odd",
            "VLLM_LOGGING_LEVEL",
        ),
        (
            "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack "
            "trace (above) for the root cause.",
            "vLLM's engine died: vllm.v1.engine.exceptions.EngineDeadError",
            "dmesg",
        ),
        (
            DEAD.replace("{cause}", "torch.OutOfMemoryError: CUDA out of memory. Tried 2.00 GiB."),
            "too little memory: torch.OutOfMemoryError: CUDA out of memory. Tried 2.00 GiB",
            "nvidia-smi",
        ),
    ],
)
def test_a_failure_of_vllm_is_explained(log: str, message: str, hint: str) -> None:
    error = target.explain(log)
    assert isinstance(error, StepFailed)
    assert message in error.message
    assert hint in error.hint


def test_vllm_without_a_gpu_is_something_that_this_machine_lacks() -> None:
    error = target.explain("RuntimeError: Failed to infer device type, please set")
    assert isinstance(error, ToolMissing)
    assert "--gpus all" in error.hint


def test_a_retried_port_and_a_program_without_vllm_say_nothing() -> None:
    assert target.explain("WARNING Address already in use. Retrying with a new port.") is None
    assert target.explain("ValueError: batch must be positive") is None
