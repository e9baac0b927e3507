"""`fairsync serve` and `fairsync check` as they are run: a process, a file, signals."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import httpx
import numpy as np
import pytest

from fairsync.catalog import Catalog
from fairsync.catalog.files import save_catalog
from fairsync.errors import BackendUnavailableError, FairSyncError, InvalidInputError
from fairsync.ledger import SqlLedger
from fairsync.models import train_svd
from fairsync.ragged import Ragged
from fairsync.service.client import Client
from fairsync.service.run import bind, make_promise_service, serve
from fairsync.service.search_settings import make_search
from fairsync.service.settings import HttpSettings, SearchSettings, load_settings
from postgres_server import PostgresServer
from service.config_file import PROMISES, configured, over_postgres
from service.running import small_catalog
from service.service_process import free_port, is_ready, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

RUN = "import typer; from fairsync.cli.serve import serve; typer.run(serve)"


@contextmanager
def served(config: Path, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as file:
        process = subprocess.Popen([sys.executable, "-c", RUN, str(config)], stderr=file)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def test_it_serves_stops_gracefully_and_goes_on_where_it_was(tmp_path: Path) -> None:
    port = free_port()
    config, log = configured(tmp_path, PROMISES, port=port), tmp_path / "log"
    users = np.random.default_rng(0).normal(size=(400, 8))
    with served(config, log) as process, Client(f"http://127.0.0.1:{port}", timeout=240, attempts=40) as client:
        wait_until(lambda: is_ready(client))
        (promise,) = client.promises()
        answered: list[Any] = []

        def ask() -> None:
            with Client(f"http://127.0.0.1:{port}", attempts=1, timeout=60) as impatient:
                for start in range(0, 400, 4):
                    try:
                        answered.append(impatient.retrieve(users[start : start + 4]).groups)
                    except BackendUnavailableError:  # the service has stopped
                        return

        thread = threading.Thread(target=ask)
        thread.start()
        while len(answered) < 10:
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        assert process.wait(240) == 0
        thread.join()
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert "stopped" in lines[-1]["message"]
    calls = [line for line in lines if line["message"] == "call" and line["path"] == "/v1/retrieve"]
    assert sum(line["status"] == 200 for line in calls) == len(answered), "every answer has arrived"
    with served(config, tmp_path / "log2"), Client(f"http://127.0.0.1:{port}", timeout=240, attempts=40) as client:
        (again,) = client.promises()
        assert again.id == promise.id
        assert again.exposures == sum(int((groups == "wine").sum()) for groups in answered)


def test_before_it_stops_it_says_so_and_still_answers(tmp_path: Path) -> None:
    port = free_port()
    config, log = configured(tmp_path, "drain_seconds = 8\n", port=port), tmp_path / "log"
    users = np.random.default_rng(0).normal(size=(4, 8))
    lost: list[Exception] = []
    answered: list[float] = []
    told, url = threading.Event(), f"http://127.0.0.1:{port}"
    with served(config, log) as process, Client(url, timeout=240, attempts=40) as client:
        wait_until(lambda: is_ready(client))

        def ask() -> None:
            with Client(url, attempts=1, timeout=60) as caller:
                while not told.is_set():  # by then a load balancer would have turned away
                    try:
                        caller.retrieve(users)
                        answered.append(time.monotonic())
                    except Exception as error:
                        lost.append(error)

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        wait_until(lambda: len(answered) > 0)
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        while client.ready():
            time.sleep(0.02)
        refused = time.monotonic()
        answer = httpx.get(f"{url}/ready", timeout=60)
        assert (answer.status_code, answer.headers["connection"]) == (503, "close")
        assert "being stopped" in answer.json()["message"]
        wait_until(lambda: max(answered) > refused)
        told.set()
        for thread in threads:
            thread.join()
        assert process.wait(240) == 0
        assert time.monotonic() - began >= 8
    assert not lost
    assert max(answered) > refused, "it answered after it had said that it ends"


def test_a_second_interrupt_ends_it_at_once_and_says_what_that_means(tmp_path: Path) -> None:
    port = free_port()
    config, log = configured(tmp_path, "drain_seconds = 60\n", port=port), tmp_path / "log"
    with served(config, log) as process, Client(f"http://127.0.0.1:{port}", timeout=240, attempts=40) as client:
        wait_until(lambda: is_ready(client))
        process.send_signal(signal.SIGINT)
        while client.ready():
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        process.wait(240)
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert lines[-1]["message"].startswith("stopped at once")


def test_a_mistake_is_one_line_and_code_1(tmp_path: Path) -> None:
    config = configured(tmp_path, '[[promises]]\ngroup = "wyne"\nfloor = 1\nwindow = {every = "day"}\n')
    with pytest.raises(InvalidInputError, match="Did you mean 'wine'"):
        make_promise_service(load_settings(config, {}))


def test_whoever_cannot_start_has_not_touched_the_ledger(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(InvalidInputError, match=f"cannot listen on 127.0.0.1, port {port} .*set another"):
            serve(load_settings(configured(tmp_path, PROMISES, port=port), {}))
    token = "[[tokens]]\nname = 'shop'\nroles = ['admin']\nenv = 'NOT_SET_ANYWHERE'\n"
    with pytest.raises(InvalidInputError, match="NOT_SET_ANYWHERE, which is not set"):
        serve(load_settings(configured(tmp_path, PROMISES + token), {}))
    with pytest.raises(InvalidInputError, match="cannot listen on no-such-host"):
        bind(HttpSettings(host="no-such-host.invalid"))
    assert sorted(os.listdir(tmp_path)) == ["items", "service.toml"]


def test_all_that_is_wrong_is_said_before_the_port(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        lines = '[model]\npath = "nowhere"\n' + PROMISES.replace("wine", "wyne")
        settings = load_settings(configured(tmp_path, lines, port=other.getsockname()[1]), {})
        with pytest.raises(InvalidInputError, match=r"Did you mean 'wine'(.|\n)*nowhere"):
            serve(settings)
    assert sorted(os.listdir(tmp_path)) == ["items", "service.toml"]


def test_a_start_that_fails_leaves_no_port_open(tmp_path: Path) -> None:
    """Another process has the ledger, which is known only when it is opened."""
    port = free_port()
    settings = load_settings(configured(tmp_path, PROMISES, port=port), {})
    with (
        SqlLedger(tmp_path / "exposures.db", n_groups=3),
        pytest.raises(FairSyncError, match="is open in this process") as error,
    ):
        serve(settings)
    with socket.socket() as other:
        other.bind(("127.0.0.1", port))  # refused if a socket was left open
    assert error.traceback, "its frames, which had the sockets, are still there"


@pytest.mark.parametrize(
    "search", [{}, {"index": "ivf"}, {"shards": 3}, {"threads": 1}, {"index": "hnsw", "shards": 2}]
)
def test_every_way_of_searching(search: dict[str, Any]) -> None:
    rng = np.random.default_rng(0)
    catalog = Catalog(rng.normal(size=(500, 8)).astype(np.float32), np.repeat(["a", "b"], 250))
    index = make_search(SearchSettings(**search), catalog)
    user = rng.normal(size=(1, 1, 8))
    best = int(np.argmax(catalog.embeddings @ user[0, 0]))
    assert best in index.search(user, None, 10).rows[0]


def test_histories_are_answered_by_the_model(tmp_path: Path) -> None:
    bought = Ragged(np.array([0, 1, 0, 1, 2, 3, 2, 3], dtype=np.int32), np.array([0, 2, 4, 6, 8]))
    model = train_svd(bought, np.array(["tea", "milk", "nut", "bolt"]))
    model.save(tmp_path / "model")
    save_catalog(Catalog(model.item_vectors(), ["food", "food", "tools", "tools"], model.item_ids), tmp_path / "items")
    port = free_port()
    config = configured(tmp_path, '[model]\npath = "model"\n', port=port)
    with served(config, tmp_path / "log"), Client(f"http://127.0.0.1:{port}", timeout=240, attempts=40) as client:
        new = client.retrieve_for([["tea"], ["unknown", "bolt"]], k=1)
        assert new.ids.tolist() == [["milk"], ["nut"]]
        found = client.retrieve_for([["tea"], ["unknown", "bolt"]], k=2, exclude_history=False)
        assert [set(ids) for ids in found.ids.tolist()] == [{"tea", "milk"}, {"nut", "bolt"}]


def test_groups_that_came_or_went_keep_their_counts_on_a_server(tmp_path: Path) -> None:
    """One that does not sort last has come since the last start, and one has no items any more."""
    users = np.random.default_rng(0).normal(size=(30, 8))
    with PostgresServer() as server:
        config = over_postgres(configured(tmp_path), server)
        first = make_promise_service(load_settings(config, {}))
        impressions = Counter(first.retrieve(users).groups.ravel().tolist())
        old = small_catalog()
        kept = old.group_of != old.labels.index("toys")
        groups = [*np.array(old.labels)[old.group_of[kept]], *["art"] * 10]
        vectors = np.concatenate([old.embeddings[kept], np.full((10, 8), 2.0, dtype=np.float32)])
        shutil.rmtree(tmp_path / "items")
        save_catalog(Catalog(vectors, groups), tmp_path / "items")
        second = make_promise_service(load_settings(config, {}))
        assert second.coordinator.labels == ["books", "toys", "wine", "art"]
        impressions.update(second.retrieve(users).groups.ravel().tolist())
        impressions.update(first.retrieve(users).groups.ravel().tolist())  # of its own items, until it is started anew
        assert impressions["art"] > 0
        assert second.coordinator.labels == first.coordinator.labels
        ledger = second.coordinator.ledger
        counted = np.sum([one.exposures for one in (*ledger.past(), ledger.totals())], axis=0)
        assert dict(zip(second.coordinator.labels, counted.tolist(), strict=True)) == impressions
        assert first.scheduler.planner.capacities()["toys"] == 3, "whoever started first still has them"
        for promise_service in (first, second):
            promise_service.close()
            promise_service.coordinator.close()
            promise_service.coordinator.ledger.close()


def test_plans_are_prepared_for_the_slump_that_is_set(tmp_path: Path) -> None:
    config = configured(tmp_path, PROMISES)
    config.write_text(config.read_text().replace("per_second = 1\n", "per_second = 1\nworst_case = 0.1\n"))
    promise_service = make_promise_service(load_settings(config, {}))
    assert promise_service.scheduler.planner.worst_case_traffic == 0.1
    promise_service.close()
    promise_service.coordinator.ledger.close()


def test_a_call_that_hangs_does_not_keep_it_from_ending(tmp_path: Path) -> None:
    """A thread cannot be ended from outside, so the process ends around it."""
    port, entered = free_port(), tmp_path / "entered"
    config, log = configured(tmp_path, "shutdown_seconds = 2\n" + PROMISES, port=port), tmp_path / "log"
    hang = (
        "import pathlib, threading; from fairsync.service.promises.promise_service import PromiseService as P;"
        f"P.past = lambda self, limit: (pathlib.Path({str(entered)!r}).touch(), threading.Event().wait()); {RUN}"
    )
    with log.open("wb") as file:
        process = subprocess.Popen([sys.executable, "-c", hang, str(config)], stderr=file)
    try:
        with Client(f"http://127.0.0.1:{port}", timeout=240, attempts=40) as client:
            wait_until(lambda: is_ready(client))
        answers: list[int] = []
        url = f"http://127.0.0.1:{port}/v1/past"
        caller = threading.Thread(target=lambda: answers.append(httpx.get(url, timeout=60).status_code))
        caller.start()
        while not entered.exists():
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        assert process.wait(240) == 1
        caller.join()
    finally:
        process.kill()
        process.wait()
    assert answers == [503]
    assert "abandoned" in log.read_text()


def test_the_fallback_for_cold_users_is_a_setting(tmp_path: Path) -> None:
    config = configured(tmp_path)
    config.write_text(config.read_text().replace("k = 3", "k = 3\ncold = [41, 7, 19]\ncount_cold = false"))
    service = make_promise_service(load_settings(config, {}))
    try:
        found = service.retrieve(np.zeros((2, 8)))
        assert found.ids.tolist() == [[41, 7, 19]] * 2
        assert found.cold.all()
        assert service.coordinator.totals().requests == 0
    finally:
        service.close()
        service.coordinator.ledger.close()


@pytest.mark.parametrize("search", ['index = "exact"', 'index = "ivf"', "shards = 2"])
@pytest.mark.usefixtures("midday")
def test_promises_to_selections_survive_a_restart(tmp_path: Path, search: str) -> None:
    rng = np.random.default_rng(0)
    attributes = {"kind": rng.choice(["wine", "toys"], 400).tolist(), "new": (rng.random(400) < 0.1).tolist()}
    save_catalog(Catalog(rng.normal(size=(400, 8)), attributes, [f"i{row}" for row in range(400)]), tmp_path / "items")
    path = tmp_path / "service.toml"
    path.write_text(
        f'[catalog]\npath = "items"\n[promise]\nk = 3\n[traffic]\nper_second = 1\n[search]\n{search}\n'
        '[ledger]\nurl = "sqlite:///exposures.db"\n[[promises]]\nwhere = { kind = "toys", new = true }\n'
        'at_least = 100\nwindow = { every = "day" }\n'
    )
    seen = []
    for _ in range(3):
        service = make_promise_service(load_settings(path, {}))
        try:
            service.retrieve(rng.normal(size=(20, 8)))
            (promise,) = service.promises()
            seen.append((promise.name, service.coordinator.totals().requests))
        finally:
            service.close()
            service.coordinator.ledger.close()
    assert seen == [("kind=toys, new=True", requests) for requests in (20, 40, 60)]
