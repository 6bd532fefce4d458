"""Whole networks: a list of operations, and how long they take together.

A list is what targets/static_compute.py writes of a torch module, for one image or sequence; some
are bundled (lists/, written by scripts/bundled_networks.py). Reading one needs no torch.

A network takes the sum of its operations: nothing overlaps. An operation finds its activations
where the one before left them, so that it takes what it took on the same buffers again (hot); its
weights it finds in the L2 cache only where all weights of the network and its largest activations
fit there, else the difference to buffers that were not used lately (cold) is added by their part
of the bytes. Launched by the host it takes the sum of what the host needs where that is longer,
moved and bounded by what other networks that were measured whole needed beyond that
(host_residuals.yaml): a module does more on the host than call its operations.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path

from nsight_prof.parsers.errors import UsageError
from nsight_prof.parsers.operations.models import COLD, FUSED, HOT, NetworkKernels, Operation
from nsight_prof.parsers.packaged import packaged_yaml
from nsight_prof.parsers.predict.corrections import Factors, factors
from nsight_prof.parsers.predict.costs import Estimate

BUNDLED = resources.files("nsight_prof.parsers.operations") / "lists"
EAGER, GRAPH, COMPILED = "eager", "graph", "compiled-graph"
MERGED = ("batch-norm", "group-norm", "layer-norm", "rms-norm", "softmax", "relu", "gelu", "silu",
          "add", "mul", "copy", FUSED)  # fmt: skip
"""Operations that torch.compile makes one kernel of where they follow each other."""


@dataclass(frozen=True)
class Network:
    """A network by its operations, in order, for one image or sequence."""

    name: str
    operations: tuple[Operation, ...]

    def at(self, batch: int) -> Network:
        """Return the network for so many images or sequences."""
        return Network(self.name, tuple(operation.at(batch) for operation in self.operations))

    @property
    def weight_bytes(self) -> float:
        """Bytes of all weights that a pass reads."""
        return sum(operation.calls * operation.weight_bytes for operation in self.operations)

    @property
    def flops(self) -> float:
        """FLOPs of a pass."""
        return sum(operation.calls * operation.flops for operation in self.operations)

    def compiled(self) -> Network:
        """Return it with one kernel for each chain of operations between products.

        The kernel reads what the first one reads and all others read beside the output of the one
        before, and writes once.
        """
        found: list[Operation] = []
        for operation in self.operations:
            before = found[-1] if found else None
            if before is None or not {before.op, operation.op} <= {*MERGED} or operation.calls > 1:
                found.append(operation)
                continue
            # Two of the tensors that each moves are the one between them, as large as the other's
            # output is: of a reduction along rows, too.
            between = 2 * _output_bytes(operation)
            found[-1] = replace(
                before, op=FUSED, sizes=(), layout="", flops=before.flops + operation.flops,
                activation_bytes=before.activation_bytes + operation.activation_bytes - between,
                weight_bytes=before.weight_bytes + operation.weight_bytes,
            )  # fmt: skip
        return Network(self.name, tuple(found))


def _output_bytes(operation: Operation) -> float:
    return operation.activation_bytes / (3 if operation.op in ("add", "mul") else 2)


def bundled_networks() -> list[str]:
    """Return the names of the bundled lists."""
    return sorted(path.name.removesuffix(".json") for path in BUNDLED.iterdir())


def is_network(name: str) -> bool:
    """Tell whether a name is a bundled list of operations, or a file that holds one."""
    if name in bundled_networks():
        return True
    path = Path(name)
    return path.suffix == ".json" and path.is_file() and '"calls"' in path.read_text("utf-8")


def read_network(name: str) -> Network:
    """Return a bundled network, or that of a file of targets/static_compute.py.

    Raises:
        UsageError: the file holds no such list.
    """
    bundled = name in bundled_networks()
    path = BUNDLED / f"{name}.json" if bundled else Path(name)
    try:
        found = json.loads(path.read_text("utf-8"))
        operations = tuple(map(Operation.of, found["calls"]))
        label = name if bundled else str(found["model"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(
            f"{name} holds no list of operations: {type(error).__name__}: {error}",
            "python targets/static_compute.py FILE.py:FUNCTION writes one (its key calls)",
        ) from error
    if not operations:
        raise UsageError(f"{name} lists no operation", "count a module whose forward computes")
    return Network(label, operations)


@dataclass(frozen=True)
class OperationTime:
    """How long all calls of an operation take the GPU, and the host to launch."""

    operation: Operation
    gpu: Estimate
    host_s: float


OPERATIONS_ALONE = Factors(1.0, 1.0, 1.0)
"""The host of a pass that does nothing but launch its operations."""


def host_factors(unseen: str = "") -> Factors:
    """Return what the host needs for a pass over what it needs for its operations.

    It is that of networks that were measured whole, `unseen` left out.
    """
    return factors(packaged_yaml("nsight_prof.parsers.operations", "host_residuals.yaml"), unseen)


@dataclass(frozen=True)
class NetworkTime:
    """How long a network takes: seconds with their interval, and of which operations.

    `host`: what the host needs for the pass over what it needs for the operations alone.
    """

    network: Network
    launch: str
    operations: tuple[OperationTime, ...]
    host: Factors = OPERATIONS_ALONE

    @property
    def gpu(self) -> Estimate:
        """Sum of the operations; an end of the interval has all of them at that end."""
        found = [timed.gpu for timed in self.operations]
        return Estimate(
            sum(timed.seconds for timed in found),
            sum(timed.low for timed in found),
            sum(timed.high for timed in found),
            min(timed.tier for timed in found),
        )

    @property
    def host_s(self) -> float:
        """What the host needs to launch all operations; NaN in a CUDA graph."""
        if self.launch != EAGER:
            return math.nan
        return self.host.value * sum(timed.host_s for timed in self.operations)

    @property
    def seconds(self) -> Estimate:
        """The GPU, or the host where it takes longer."""
        gpu, host = self.gpu, self.host_s
        if math.isnan(host):
            return gpu
        low, high = (host * end / self.host.value for end in (self.host.low, self.host.high))
        return Estimate(max(gpu.seconds, host), max(gpu.low, low), max(gpu.high, high), gpu.tier)

    @property
    def bound(self) -> str:
        """Which of both takes longer."""
        return "host" if self.seconds.seconds > self.gpu.seconds else "gpu"


def network_time(
    kernels: NetworkKernels,
    network: Network,
    launch: str,
    l2_bytes: float,
    host: Factors = OPERATIONS_ALONE,
) -> NetworkTime:
    """Return how long a network takes at the batch that it has.

    Args:
        kernels: measured on the GPU that is asked for.
        network: at its batch.
        launch: EAGER, GRAPH or COMPILED.
        l2_bytes: size of the L2 cache.
        host: what the host needs for the pass over what it needs for the operations alone.

    Raises:
        UsageError: an operation was not measured.
    """
    largest = max(operation.activation_bytes for operation in network.operations)
    cold = network.weight_bytes + largest > l2_bytes
    listed = network.compiled() if launch == COMPILED else network
    unknown = {
        str(operation.key) for operation in listed.operations if not kernels.knows(operation)
    }
    if unknown:
        raise UsageError(
            f"no run has measured these operations of {network.name}: {', '.join(sorted(unknown))}",
            "prof run network-kernels measures those that it knows; others cannot be predicted",
        )
    times = tuple(
        OperationTime(
            operation,
            _of_calls(kernels, operation, cold),
            operation.calls * kernels.host(operation),
        )
        for operation in listed.operations
    )
    return NetworkTime(network, launch, times, host)


def _of_calls(kernels: NetworkKernels, operation: Operation, cold: bool) -> Estimate:
    """Return the time of all calls of an operation: hot, its weights cold where `cold` says so."""
    hot, unused = (kernels.estimate(operation, mode) for mode in (HOT, COLD))
    share = 0.0
    if cold:
        share = operation.weight_bytes / (operation.weight_bytes + operation.activation_bytes)

    def mixed(of_hot: float, of_cold: float) -> float:
        return operation.calls * (of_hot + share * max(0.0, of_cold - of_hot))

    return Estimate(
        mixed(hot.seconds, unused.seconds),
        mixed(hot.low, unused.low),
        mixed(hot.high, unused.high),
        min(hot.tier, unused.tier),
    )
