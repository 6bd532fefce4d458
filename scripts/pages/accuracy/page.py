"""The pages of accuracy as a whole."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from scripts.pages.accuracy.answers import answered, intervals, known_server, waiting
from scripts.pages.accuracy.asked import asked
from scripts.pages.accuracy.captures import validated
from scripts.pages.accuracy.committed import (
    against_peer,
    before_kernels,
    before_server,
    before_table,
    missed,
    pauses,
)
from scripts.pages.accuracy.engines import (
    adapted,
    collectives,
    host_adds,
    kv_cache,
    memsets,
    operator_shares,
    operators_of,
)
from scripts.pages.accuracy.glance import carried, evidence, glance
from scripts.pages.accuracy.issuing import explained, further_requests, issued, kept_busy, looked_up
from scripts.pages.accuracy.machine import (
    SAME,
    TIMED,
    host_speed,
    slower_host,
    timed_speed,
)
from scripts.pages.accuracy.questions import (
    BEFORE,
    ELSEWHERE,
    EXACT_OPERATORS,
    KERNELS_RUNS,
    OPERATORS_OF,
    QUESTIONS,
    SPLIT,
    TRACE,
    Committed,
)
from scripts.pages.accuracy.texts import (
    ADAPTED,
    ASKED,
    BEFORE_INTRO,
    BEFORE_KERNELS,
    BEFORE_SERVER,
    CARRIED,
    CAUSES,
    COLLECTIVES,
    ELSEWHERE_INTRO,
    ELSEWHERE_OPERATORS,
    EXACT,
    EXPLAINED,
    FURTHER,
    HOST_ADDS,
    HOST_SPEED,
    INTERVALS,
    INTRO,
    ISSUED_INTRO,
    KEPT_BUSY,
    KV_CACHE,
    LOOK_UPS,
    MEMSET,
    MISSED,
    MISSED_ROWS,
    MODELS_INTRO,
    PAUSES,
    REACHED,
    READ_SO,
    SLOWER_HOST,
    TIMED_HOST,
    TIMED_SPEED,
    WAITS,
)
from scripts.pages.marked import linked


def render(work: Path) -> dict[str, str]:
    """Return the pages by file name; copies of the captures and runs are made below `work`."""
    answers = answered(work, QUESTIONS)
    models = {model: Committed(model, model) for model in BEFORE}
    first = [INTRO, glance(work), CARRIED, carried(work), READ_SO, REACHED, evidence(work)]
    first += [ASKED, asked(work), MISSED, CAUSES]
    parts = [MODELS_INTRO, "\n## Predicted before they were recorded\n"]
    parts += [BEFORE_INTRO, before_table(work, models)]
    parts.append(ELSEWHERE_INTRO)
    for title, (written, bounds) in ELSEWHERE.items():
        parts += [f"\n### {title}\n", before_table(work, written, bounds)]
    parts += [PAUSES, pauses(work)]
    parts += [BEFORE_SERVER, before_server(work), BEFORE_KERNELS, before_kernels(work)]
    parts += [MISSED_ROWS, missed(work), against_peer(work)]
    parts += [KV_CACHE, kv_cache(work), INTERVALS, intervals(work)]
    parts += [*answers, known_server(work), WAITS, waiting(work)]
    parts += [HOST_SPEED, host_speed(), SLOWER_HOST, slower_host(work, SAME)]
    parts += [TIMED_SPEED, timed_speed(work), TIMED_HOST, slower_host(work, TIMED)]
    parts += [ISSUED_INTRO, issued(work), KEPT_BUSY, kept_busy(work)]
    parts += [EXPLAINED, explained(work), LOOK_UPS, looked_up(work)]
    parts += [EXACT, operators_of(work, EXACT_OPERATORS)]
    parts += [ELSEWHERE_OPERATORS, operators_of(work, OPERATORS_OF)]
    parts += [COLLECTIVES, collectives(work), MEMSET, memsets(), ADAPTED, adapted(work)]
    parts += [FURTHER, further_requests(work)]
    kernels = pd.concat([validated(work, truth, KERNELS_RUNS) for truth in (TRACE, SPLIT)])
    parts += ["\n## Operators of recorded steps, held out (T1)\n", operator_shares(kernels)]
    parts += [HOST_ADDS, host_adds(work)]
    return linked({"accuracy.md": "\n".join(first), "accuracy-models.md": "\n".join(parts)})
