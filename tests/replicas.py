"""A replica of a service, for tests that kill it: a front end and a coordinator in a process of their own."""

import json
import multiprocessing
import time
from collections import Counter
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from fairsync.catalog import Catalog
from fairsync.coordination.coordinator import Coordinator
from fairsync.coordination.front_end import FrontEnd
from fairsync.errors import BackendUnavailableError
from fairsync.promises import Promise, each
from promise_worlds import make_catalog, make_users
from worlds import World, make_world

HORIZON = 400
# Requests over which promises that overlap are kept.
PROMISED = 100


def world() -> World:
    return make_world(9, items=60, horizon=HORIZON, tightness=0.9)


def start(url: str, mine: int, answered: Path) -> BaseProcess:
    """Start a replica that answers requests until it is killed, forked off a process that has loaded everything."""
    return _start(_answer, url, mine, answered)


def promises() -> tuple[Catalog, list[Promise]]:
    """Return items, and promises about them that overlap, with floors near their caps and a limit per list."""
    catalog = make_catalog(3)
    return catalog, [
        *each(catalog, "provider", at_least=PROMISED // 2),
        Promise({"category": "wine"}, at_least=PROMISED, at_most=PROMISED + 20),
        Promise({"new": True}, at_most=PROMISED // 3, at_most_per_list=3),
        Promise({"new": True, "category": "books"}, at_least=15),
    ]


def start_promising(url: str, mine: int, answered: Path) -> BaseProcess:
    """Start a replica like `start` with promises that overlap; it writes the ids of its answers."""
    return _start(_answer_promising, url, mine, answered)


def read_ids(answered: Path) -> list[list[int]]:
    """Return the answers of such a replica. The last line may be torn."""
    lines = answered.read_text().split("\n")[:-1] if answered.exists() else []
    return [json.loads(line) for line in lines]


def start_leader(url: str) -> BaseProcess:
    """Start a replica that leads, and saves a value as long as it does; then it saves that it has lost the lead."""
    return _start(_lead, url)


def end(process: BaseProcess) -> None:
    """Kill it with -9, wherever it is."""
    process.kill()
    process.join()


def read(answered: Path) -> Counter[Any]:
    """Return how often each group was in an answer. The last line may be torn."""
    lines = answered.read_text().split("\n")[:-1] if answered.exists() else []
    return sum((Counter(json.loads(line)) for line in lines), Counter())


def _start(target: Any, *arguments: Any) -> BaseProcess:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["fairsync.coordination.shared_state", "fairsync.coordination.front_end"])
    process = context.Process(target=target, args=arguments, daemon=True)
    process.start()
    return process


def _answer(url: str, mine: int, answered: Path) -> None:
    served, at = world(), mine
    coordinator = Coordinator(
        served.catalog,
        k=served.k,
        floors=served.floors,
        horizon=HORIZON,
        batch_size=8,
        ledger=url,
        lease_seconds=0.5,
    )
    front = FrontEnd(served.catalog, coordinator)
    with answered.open("a") as file:
        while True:
            found = front.retrieve(served.users[[at % HORIZON]])
            print(json.dumps(Counter(found.groups.ravel().tolist())), file=file, flush=True)
            at += 7


def _answer_promising(url: str, mine: int, answered: Path) -> None:
    catalog, made = promises()
    coordinator = Coordinator(
        catalog, k=10, promises=made, horizon=PROMISED, batch_size=4, ledger=url, lease_seconds=0.5
    )
    front, users, at = FrontEnd(catalog, coordinator), make_users(PROMISED, mine), 0
    with answered.open("a") as file:
        while True:
            found = front.retrieve(users[[at % PROMISED, (at + 1) % PROMISED]])
            for ids in found.ids.tolist():
                print(json.dumps(ids), file=file, flush=True)
            at += 7


def _lead(url: str) -> None:
    served = world()
    with Coordinator(served.catalog, k=served.k, auto_restart=False, ledger=url) as coordinator:
        while not coordinator.lead():
            time.sleep(0.01)
        try:
            while True:
                coordinator.ledger.save("leader", b"process")
                time.sleep(0.01)
        except BackendUnavailableError:
            assert not coordinator.lead()
            coordinator.ledger.save("lost the lead", b"yes")
            time.sleep(60)
