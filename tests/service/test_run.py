"""`fairsync serve` and `fairsync check` as they are run: a process, a file, signals."""

from __future__ import annotations

import json
import os
import re
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
import typer
from typer.testing import CliRunner

from fairsync.catalog import Catalog
from fairsync.catalog.files import save_catalog
from fairsync.cli.check import check
from fairsync.coordination.redis import RedisCoordinator
from fairsync.data.requests import Ragged
from fairsync.errors import InvalidInputError
from fairsync.models import train_svd
from fairsync.service.client import Client
from fairsync.service.run import bind, make_promise_service, make_search, serve
from fairsync.service.settings import HttpSettings, SearchSettings, load_settings
from ledger.valkey_server import ValkeyServer
from service.running import small_catalog

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

RUN = "import typer; from fairsync.cli.serve import serve; typer.run(serve)"
PROMISES = '[[promises]]\ngroup = "wine"\nfloor = 500\nwindow = {every = "day"}\n'


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def configured(folder: Path, more: str = "", *, port: int = 0) -> Path:
    """Write a small catalog and a configuration."""
    if not (folder / "items").exists():
        save_catalog(small_catalog(), folder / "items")
    path = folder / "service.toml"
    path.write_text(
        f'[catalog]\npath = "items"\n[promise]\nk = 3\n[ledger]\nkind = "sqlite"\npath = "exposures.db"\n'
        f"[traffic]\nper_second = 1\n[http]\nport = {port}\n{more}"
    )
    return path


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
    with served(config, log) as process, Client(f"http://127.0.0.1:{port}", timeout=60, attempts=40) as client:
        assert client.ready()
        (promise,) = client.promises()
        answered: list[Any] = []

        def ask() -> None:
            for start in range(0, 400, 4):
                try:
                    answered.append(client.retrieve(users[start : start + 4]).groups)
                except Exception:  # the service has gone
                    return

        client._attempts = 1
        thread = threading.Thread(target=ask)
        thread.start()
        while len(answered) < 10:
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
        thread.join()
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert "stopped" in lines[-1]["message"]
    calls = [line for line in lines if line["message"] == "call" and line["path"] == "/v1/retrieve"]
    assert sum(line["status"] == 200 for line in calls) == len(answered), "every answer has arrived"
    with served(config, tmp_path / "log2"), Client(f"http://127.0.0.1:{port}", timeout=60, attempts=40) as client:
        (again,) = client.promises()
        assert again.id == promise.id
        assert again.exposures == sum(int((groups == "wine").sum()) for groups in answered)


def test_before_it_stops_it_says_so_and_still_answers(tmp_path: Path) -> None:
    port = free_port()
    config, log = configured(tmp_path, "drain_seconds = 1\n", port=port), tmp_path / "log"
    users = np.random.default_rng(0).normal(size=(4, 8))
    lost: list[Exception] = []
    answered: list[float] = []
    told, url = threading.Event(), f"http://127.0.0.1:{port}"
    with served(config, log) as process, Client(url, timeout=60, attempts=40) as client:
        assert client.ready()

        def ask() -> None:
            with Client(url, attempts=1) as caller:
                while not told.is_set():  # by then a load balancer would have turned away
                    try:
                        caller.retrieve(users)
                        answered.append(time.monotonic())
                    except Exception as error:
                        lost.append(error)

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        time.sleep(0.3)
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        while client.ready():
            time.sleep(0.02)
        refused = time.monotonic()
        answer = httpx.get(f"{url}/ready")
        assert (answer.status_code, answer.headers["connection"]) == (503, "close")
        assert "being stopped" in answer.json()["message"]
        time.sleep(0.2)
        told.set()
        for thread in threads:
            thread.join()
        assert process.wait(20) == 0
        assert time.monotonic() - began >= 1
    assert not lost
    assert max(answered) > refused, "it answered after it had said that it ends"


def test_a_second_interrupt_ends_it_at_once_and_says_what_that_means(tmp_path: Path) -> None:
    port = free_port()
    config, log = configured(tmp_path, "drain_seconds = 60\n", port=port), tmp_path / "log"
    with served(config, log) as process, Client(f"http://127.0.0.1:{port}", timeout=60, attempts=40) as client:
        assert client.ready()
        process.send_signal(signal.SIGINT)
        while client.ready():
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        process.wait(20)
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
    with served(config, tmp_path / "log"), Client(f"http://127.0.0.1:{port}", timeout=60, attempts=40) as client:
        found = client.retrieve_for([["tea"], ["unknown", "bolt"]], k=2)
        assert [set(ids) for ids in found.ids.tolist()] == [{"tea", "milk"}, {"nut", "bolt"}]


def over_redis(config: Path, server: ValkeyServer) -> Path:
    """Have the exposures recorded on a server."""
    told = f'kind = "redis"\nurl = "{server.url}"\nname = "shop"'
    config.write_text(config.read_text().replace('kind = "sqlite"\npath = "exposures.db"', told))
    return config


def test_groups_that_came_or_went_keep_their_counts_on_a_server(tmp_path: Path) -> None:
    """One that does not sort last has come since the last start, and one has no items any more."""
    users = np.random.default_rng(0).normal(size=(30, 8))
    with ValkeyServer() as server:
        config = over_redis(configured(tmp_path), server)
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
        assert first.scheduler.planner.caps()["toys"] == 3, "whoever started first still has them"
        for promise_service in (first, second):
            promise_service.close()
            assert isinstance(promise_service.coordinator, RedisCoordinator)
            promise_service.coordinator.close()


def run_check(config: Path, *options: str) -> Any:
    app = typer.Typer()
    app.command()(check)
    return CliRunner().invoke(app, [str(config), *options], env={"COLUMNS": "200"})


def test_check_explains_and_changes_nothing(tmp_path: Path) -> None:
    config = configured(tmp_path, PROMISES)
    impressions = run_check(config)
    assert impressions.exit_code == 0
    words = re.sub(r"\s+", " ", impressions.output)
    assert "60 items, 3 groups, dimension 8" in words
    assert "Nothing to mend" in words
    assert sorted(os.listdir(tmp_path)) == ["items", "service.toml"]


def test_check_tells_what_cannot_be_kept(tmp_path: Path) -> None:
    # A day has 86,400 requests of three slots: two groups cannot have 150,000 each.
    both = "".join(
        f'[[promises]]\ngroup = "{group}"\nfloor = 150_000\nwindow = {{every = "day"}}\n' for group in ("wine", "toys")
    )
    told = run_check(configured(tmp_path, both), "--json")
    assert told.exit_code == 1
    document = json.loads(told.output)
    assert [one["accepted"] for one in document["promises"]] == [False, False]
    assert [one["largest"] for one in document["promises"]] == [3 * 86_400 - 150_000] * 2
    assert "which cannot be met" in document["problems"][0]


def test_check_looks_at_the_server_and_changes_nothing(tmp_path: Path) -> None:
    config = configured(tmp_path, PROMISES)
    with ValkeyServer("--appendfsync", "everysec") as server:
        over_redis(config, server)
        told = run_check(config, "--json")
        document = json.loads(told.output)
        assert told.exit_code == 0, document
        assert (
            f"127.0.0.1:{server.port} answers; shared under the name 'shop': nothing yet" in document["facts"]["ledger"]
        )
        assert "appendfsync everysec" in document["warnings"][0]
        assert "appendfsync everysec" in re.sub(r"\s+", " ", run_check(config).output)
        with server.client() as client:
            assert not client.keys()
        promise_service = make_promise_service(load_settings(config, {}))
        ledger = json.loads(run_check(config, "--json").output)["facts"]["ledger"]
        assert re.search(r"3 groups, k = 3, 500 exposures of 'wine' \(.*\); \S+ leads$", ledger)
        config.write_text(config.read_text().replace("k = 3", "k = 4"))
        told = run_check(config, "--json")
        assert told.exit_code == 1
        document = json.loads(told.output)
        assert "differs in k (4 here, 3 there)" in document["problems"][0]
        assert "3 groups, k = 3" in document["facts"]["ledger"]
        assert document["warnings"]
        assert isinstance(promise_service.coordinator, RedisCoordinator)
        promise_service.coordinator.close()
        server.kill()
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr("fairsync.service.sharing._GLANCE_SECONDS", 0.2)
            away = run_check(config, "--json")
        server.start()
    assert away.exit_code == 1
    assert "Is the server up?" in json.loads(away.output)["problems"][0]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ('[[tokens]]\nname = "a"\nroles = ["admin"]\nenv = "NOT_SET_ANYWHERE"\n', "NOT_SET_ANYWHERE, which is not set"),
        ('[model]\npath = "nowhere"\n', "is not a model"),
    ],
)
def test_check_finds_what_would_stop_a_start(tmp_path: Path, more: str, message: str) -> None:
    told = run_check(configured(tmp_path, more), "--json")
    assert told.exit_code == 1
    assert message in " ".join(json.loads(told.output)["problems"])


def test_check_looks_at_the_file_and_changes_nothing(tmp_path: Path) -> None:
    config, file = configured(tmp_path), tmp_path / "exposures.db"
    promise_service = make_promise_service(load_settings(config, {}))
    promise_service.retrieve(np.ones((5, 8)))
    promise_service.close()
    promise_service.coordinator.ledger.close()  # type: ignore[attr-defined]
    before = file.read_bytes()
    told = json.loads(run_check(config, "--json").output)
    assert "5 requests so far, 3 groups; promises are those it has, not those of the file" in told["facts"]["ledger"]
    assert file.read_bytes() == before
    file.write_bytes(b"no ledger at all" * 1000)
    told = run_check(config, "--json")
    assert told.exit_code == 1
    assert "cannot be read as a ledger" in json.loads(told.output)["problems"][0]


def test_plans_are_prepared_for_the_slump_that_is_set(tmp_path: Path) -> None:
    config = configured(tmp_path, PROMISES)
    config.write_text(config.read_text().replace("per_second = 1\n", "per_second = 1\nworst_case = 0.1\n"))
    promise_service = make_promise_service(load_settings(config, {}))
    assert promise_service.scheduler.planner.worst_case_traffic == 0.1
    promise_service.close()
    promise_service.coordinator.ledger.close()  # type: ignore[attr-defined]
