"""Speaks as targets/serving/worker.py does, and fails as SERVING_WORKER says.

SERVING_WORKER is a JSON mapping from "start" or the name of a point to what happens there: "die",
"killed", "hang" (with gauges going on), "out-of-memory" (the engine lives on), "dead" (it does
not), "refuse". SERVING_PIDS names a file that gets the process ids of the worker and of a child
that ignores SIGTERM.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

CHILD = (
    "import signal, time; signal.signal(15, signal.SIG_IGN); print(1, flush=True); time.sleep(600)"
)


def main() -> None:
    stream = os.fdopen(int(sys.argv[sys.argv.index("--fd") + 1]), "w", encoding="utf-8")
    plan = json.loads(sys.stdin.readline())
    wanted = json.loads(os.environ.get("SERVING_WORKER", "{}"))

    def tell(**fields: Any) -> None:
        stream.write(json.dumps(fields) + "\n")
        stream.flush()

    if "SERVING_PIDS" in os.environ:
        child = subprocess.Popen([sys.executable, "-c", CHILD], stdout=subprocess.PIPE)
        assert child.stdout is not None
        child.stdout.readline()
        with Path(os.environ["SERVING_PIDS"]).open("a", encoding="utf-8") as pids:
            pids.write(f"{os.getpid()} {child.pid}\n")

    def act(what: str | None) -> None:
        if what == "die":
            print("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 9 GiB", flush=True)
            os._exit(3)
        if what == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        while what == "hang":
            tell(record="engine_stats", schema=1, case=None, t_s=0.0)
            time.sleep(0.05)

    start = wanted.get("start", wanted.get(f"start {plan['options']['mode']}"))
    act(start)
    if start == "refuse":
        tell(event="failed", message="no such model", hint="name one", status="failed")
        return
    tell(record="engine", schema=1, mode=plan["options"]["mode"], args=plan["options"])
    tell(event="ready", t_s=0.5)
    for point in plan["points"]:
        shape = f"b{point['batch']}/p{point['prompt_tokens']}/o{point['output_tokens']}"
        case = f"{point['experiment']}/{point['mode']}/{shape}"
        tell(event="point", case=case)
        act(wanted.get(case))
        status = wanted.get(case, "ok")
        known = "ok" if status == "ok" else "out-of-memory"
        tell(
            record="case",
            case=case,
            status=known,
            reason="" if known == "ok" else "too large",
            params={"batch": point["batch"], "output_tokens": point["output_tokens"]},
            time={"median_s": 0.1, "n": 3} if known == "ok" else None,
        )
        if status == "dead":
            tell(event="dead")
            act("hang" if "SERVING_PIDS" in os.environ else None)
            return
    tell(event="done")


main()
