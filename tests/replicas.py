"""A replica of a service, for tests that kill it: a front end and a coordinator in a process of their own."""

import json
import multiprocessing
from collections import Counter
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from fairsync.coordination.front_end import FrontEnd
from fairsync.coordination.redis import RedisCoordinator
from worlds import World, make_world

HORIZON = 400


def world() -> World:
    return make_world(9, items=60, horizon=HORIZON, tightness=0.9)


def start(url: str, name: str, mine: int, answered: Path) -> BaseProcess:
    """Start a replica that answers requests until it is killed, forked off a process that has loaded everything."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["fairsync.coordination.redis", "fairsync.coordination.front_end"])
    process = context.Process(target=_answer, args=(url, name, mine, answered), daemon=True)
    process.start()
    return process


def end(process: BaseProcess) -> None:
    """Kill it with -9, wherever it is."""
    process.kill()
    process.join()


def read(answered: Path) -> Counter[Any]:
    """Return how often each group was in an answer. The last line may be torn."""
    lines = answered.read_text().split("\n")[:-1] if answered.exists() else []
    return sum((Counter(json.loads(line)) for line in lines), Counter())


def _answer(url: str, name: str, mine: int, answered: Path) -> None:
    served, at = world(), mine
    coordinator = RedisCoordinator(
        url,
        served.catalog,
        k=served.k,
        floors=served.floors,
        horizon=HORIZON,
        batch_size=8,
        name=name,
        lease_seconds=0.5,
    )
    front = FrontEnd(served.catalog, coordinator)
    with answered.open("a") as file:
        while True:
            found = front.retrieve(served.users[[at % HORIZON]])
            print(json.dumps(Counter(found.groups.ravel().tolist())), file=file, flush=True)
            at += 7
