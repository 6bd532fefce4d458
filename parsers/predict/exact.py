"""Costs of operators that were measured one by one at the model's own shapes (T2, predict-ops)."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pandas as pd

from nsight_prof.parsers.cells import records
from nsight_prof.parsers.predict.anchors import Anchors
from nsight_prof.parsers.predict.costs import (
    T2,
    Benchmarked,
    Costs,
    Estimate,
    Residuals,
    Spread,
)
from nsight_prof.parsers.predict.operators import Kind, Operator, Step, operators
from nsight_prof.parsers.serving.model_shape import ModelShape

FAMILY = "predict-op"
COLLECTIVES = ("all_reduce", "all_gather")
VALUE_BYTES = 2
"""Bytes of a value that ranks exchange: targets/serving/predict_ops.py measures in 16 bits."""
UNKNOWN = Residuals(0.0, math.inf)


@dataclass(frozen=True)
class Exact:
    """T2: what predict-ops measured of this very model, drawn between the measured sizes.

    Each time has the gap before the kernel in it. Intervals are those that sizes had which were
    left out; how far the engine lies from such measurements is not in them.
    """

    base: Costs
    anchors: Mapping[tuple[str, str], Anchors]
    residuals: Mapping[Kind, Residuals]

    def of(self, operator: Operator) -> Estimate:
        """Return the estimate; what was not measured is of the lower tier."""
        anchors = self.anchors.get((operator.name, operator.dtype))
        if anchors is None:
            return self.base.of(operator)
        seconds, (low, high) = anchors.seconds(operator), self.residuals[operator.kind]
        return Estimate(seconds, seconds * low, seconds * high, T2)

    def spread(self) -> Spread:
        """Return how far products and small operators lie from what was left out."""
        found = self.residuals.get
        others = self.base.spread().others if isinstance(self.base, Benchmarked) else UNKNOWN
        return Spread(found(Kind.PRODUCT, UNKNOWN), others, found(Kind.POINTWISE, UNKNOWN))

    @property
    def has_products(self) -> bool:
        """Tell whether the model itself was measured, and not only what its ranks exchange."""
        return Kind.PRODUCT in self.residuals


def exact_costs(base: Costs, bench: pd.DataFrame, shape: ModelShape) -> Costs:
    """Return the costs with what table `bench` holds of the operators of the shard `shape`.

    Collectives are those of any model on as many GPUs: they depend on their bytes alone.
    """
    found: dict[tuple[str, str], list[tuple[Operator, float]]] = defaultdict(list)
    for operator, seconds in _measured(bench, shape):
        found[operator.name, operator.dtype].append((operator, seconds))
    if not found:
        return base
    anchors = {key: Anchors.of(base, items) for key, items in found.items()}
    ratios: dict[Kind, list[float]] = defaultdict(list)
    for key, items in found.items():
        ratios[items[0][0].kind] += anchors[key].left_out()
    return Exact(base, anchors, {kind: Residuals.of(found) for kind, found in ratios.items()})


def _measured(bench: pd.DataFrame, shape: ModelShape) -> Iterator[tuple[Operator, float]]:
    """Yield the measured operators of the shard with the seconds of a call."""
    here = {
        "hidden": shape.hidden, "heads": shape.heads, "kv_heads": shape.kv_heads,
        "head_dim": shape.head_dim, "intermediate": shape.intermediate,
        "vocabulary": shape.vocabulary,
    }  # fmt: skip
    for row in records(bench[bench["status"].eq("ok") & bench["median_s"].gt(0)]):
        params = json.loads(row["params"])
        if params.get("family") != FAMILY:
            continue
        if params["operator"] in COLLECTIVES:
            if params["ranks"] == shape.tensor_parallel:
                yield _collective(params), row["median_s"]
        elif all(params[key] == value for key, value in here.items()):
            step = _step(params)
            same = (o for o in operators(shape, step) if o.name == params["operator"])
            for operator in same:
                yield operator, row["median_s"]


def _collective(params: Mapping[str, int | str]) -> Operator:
    name, tokens = str(params["operator"]), int(params["tokens"])
    shares = int(params["ranks"]) if name == "all_gather" else 1
    moved = float(VALUE_BYTES * tokens * int(params["width"]) * shares)
    return Operator(name, Kind.COLLECTIVE, 1, tokens, bytes=moved)


def _step(params: Mapping[str, int | str]) -> Step:
    """Return the step whose operator was measured: rows of a product are requests that generate."""
    if "requests" not in params:
        return Step(decode=int(params["tokens"]), context=1)
    requests, new, before = (int(params[key]) for key in ("requests", "new", "before"))
    if params["operator"] == "attention_decode":
        return Step(decode=requests, context=before)
    return Step(prefill=((new, before),) * requests)
