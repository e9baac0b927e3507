"""A service with arms, over HTTP: routing, split promises, ledgers of their own, and the report."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import httpx
import msgspec
import numpy as np
import pytest
import uvicorn

from fairsync import Catalog, Promise
from fairsync.catalog.files import save_catalog
from fairsync.errors import InvalidInputError
from fairsync.ledger.reader import LedgerReader
from fairsync.schedule import ScheduledPromise, Window
from fairsync.service.arms.arm_record import PromisedItems
from fairsync.service.arms.arm_settings import make_assignment
from fairsync.service.catalog_settings import open_items
from fairsync.service.client import Client
from fairsync.service.run import make_services
from fairsync.service.settings import load_settings
from service import running
from service.running import small_catalog

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CONFIG = """
experiment = "november"
[catalog]
path = "items"
[promise]
k = 3
[[promises]]
group = "wine"
floor = 101
window = { every = "day" }
[traffic]
per_second = 1
[ledger]
url = "sqlite:///exposures.db"
[[arms]]
name = "control"
share = 0.5
policy = "none"
[[arms]]
name = "fair"
share = 0.5
"""


@contextmanager
def served(path: Path) -> Iterator[tuple[str, Any]]:
    settings = load_settings(path, {})
    services, app = make_services(settings, open_items(settings))
    server = uvicorn.Server(uvicorn.Config(app, port=0, http="httptools", ws="none", log_config=None))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}", services
    finally:
        server.should_exit = True
        thread.join(240)
        for service in services:
            service.coordinator.ledger.close()


@pytest.fixture
def config(tmp_path: Path, midday: None) -> Path:
    save_catalog(small_catalog(), tmp_path / "items")
    path = tmp_path / "service.toml"
    path.write_text(CONFIG)
    return path


def test_calls_go_to_the_arm_of_their_user_and_the_report_compares(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assignment = make_assignment(load_settings(config, {}))
    rng, counted = np.random.default_rng(0), {"control": 0, "fair": 0}
    with served(config) as (url, services), httpx.Client(base_url=url, timeout=60) as client:
        for number in range(60):
            user = f"u{number % 30}"
            body = {"vectors": rng.normal(size=(2, 8)).tolist()}
            answer = client.post("/v1/retrieve", json=body, headers={"x-user-id": user})
            assert answer.status_code == 200, answer.text
            assert answer.headers["x-arm"] == assignment.arm_of(user)
            counted[assignment.arm_of(user)] += 2
        assert [service.coordinator.totals().requests for service in services] == list(counted.values())
        report = client.get("/v1/arms").json()
        assert [arm["requests"] for arm in report["arms"]] == list(counted.values())
        assert report["experiment"] == "november"
        fair = report["arms"][1]
        assert fair["relevance"]["low"] <= fair["relevance"]["value"] <= fair["relevance"]["high"]
        assert fair["relevance_difference"]["low"] is None, "an interval takes two days"
        assert report["differ"] is None
        floors = [client.get(f"/arms/{name}/v1/promises").json()[0]["floor"] for name in counted]
        assert floors == [51, 50], "the parts add up to 101"
        with Client(f"{url}/arms/fair/", timeout=60) as fair_client:
            assert fair_client.ready()
            assert fair_client.audit().entries[0].by == "settings"
        assert client.get("/arms/fair/").status_code == 200, "the dashboard of an arm"
        packed = {"vectors": {"dtype": "<f4", "shape": [1, 8], "data": np.ones(8, np.float32).tobytes()}}
        headers = {"x-user-id": "u1", "content-type": "application/msgpack"}
        assert client.post("/v1/retrieve", content=msgspec.msgpack.encode(packed), headers=headers).status_code == 200
        assert sum(arm["requests"] for arm in client.get("/v1/arms").json()["arms"]) == 121
        missing = client.post("/v1/retrieve", json={"vectors": [[1.0] * 8]})
        assert missing.status_code == 422
        assert "x-user-id" in missing.json()["message"]
        assert client.post("/v1/promises", json={}).status_code == 422, "it must name an arm"
        assert client.get("/arms/nobody/v1/promises").status_code == 404
    monkeypatch.setattr(running, "UNTIL_NOON", running.UNTIL_NOON + 86_400.0)
    with (
        served(config) as (url, _),
        httpx.Client(base_url=url, timeout=60) as client,
    ):  # a restart continues, a day later
        assert sum(arm["requests"] for arm in client.get("/v1/arms").json()["arms"]) == 121
        body = {"vectors": rng.normal(size=(1, 8)).tolist()}
        for number in range(30):
            again = {**body, "request_ids": [f"request {number}"]}
            for _ in range(2):  # a repeated request counts once
                client.post("/v1/retrieve", json=again, headers={"x-user-id": f"u{number}"}).raise_for_status()
            counted[assignment.arm_of(f"u{number}")] += 1
        report = client.get("/v1/arms").json()
        assert sum(arm["requests"] for arm in report["arms"]) == 151
        for name in ("relevance", "exposures", "relevance_difference", "exposures_difference", "cost"):
            assert report["arms"][1][name]["low"] <= report["arms"][1][name]["value"] <= report["arms"][1][name]["high"]
        assert (report["days"], report["differ"] is not None) == (2, True)
        assert "over 2 days" in report["verdict"]
        assert client.get("/v1/overview").json()["experiment"] == "november"
    for name in counted:
        with LedgerReader(config.parent / f"exposures.november.{name}.db") as reader:
            assert reader.summary().requests == counted[name] + (name == assignment.arm_of("u1"))


def test_a_promise_to_all_is_split_and_made_in_all_arms_or_in_none(config: Path) -> None:
    with served(config) as (url, services), httpx.Client(base_url=url, timeout=60) as client:
        promise = {"group": "toys", "floor": 7, "window": {"every": "day"}}
        made = client.post("/v1/arms/promises", json=promise)
        assert made.status_code == 201, made.text
        assert sorted(view["floor"] for view in made.json()) == [3, 4]
        refused = client.post("/v1/arms/promises", json={**promise, "group": "books", "floor": 10**9})
        assert refused.status_code == 409
        again = client.post("/v1/arms/promises", json=promise)
        assert again.status_code == 422
        assert [len(service.promises()) for service in services] == [2, 2]


def test_a_change_of_arms_in_the_middle_of_a_window_is_refused(config: Path) -> None:
    with served(config):
        pass
    config.write_text(CONFIG.replace("share = 0.5", "share = 0.3", 1).replace("share = 0.5", "share = 0.7", 1))
    settings = load_settings(config, {})
    with pytest.raises(InvalidInputError, match=r"cannot be changed in the middle of a window.*another name"):
        make_services(settings, open_items(settings))
    config.write_text(config.read_text().replace('"november"', '"december"'))
    with served(config) as (url, _):
        assert [arm["share"] for arm in httpx.get(f"{url}/v1/arms", timeout=60).json()["arms"]] == [0.3, 0.7]


def test_a_change_of_items_reaches_all_arms_or_the_answer_says_which_not(config: Path) -> None:
    def sizes() -> list[int]:
        return [len(service.catalog) for service in services]

    with served(config) as (url, services), httpx.Client(base_url=url, timeout=60) as client:
        before = len(services[0].catalog)
        new = {"ids": [9000, 9001], "groups": ["wine", "wine"], "embeddings": np.ones((2, 8)).tolist()}
        added = client.put("/v1/items", json=new)
        assert added.status_code == 200, added.text
        assert added.json() == {"items": before + 2}
        assert sizes() == [before + 2] * 2
        assert client.put("/v1/items", json={**new, "groups": ["wine"]}).status_code == 422
        assert client.request("DELETE", "/v1/items", json={"ids": [9001]}).json() == {"items": before + 1}
        assert client.request("DELETE", "/arms/fair/v1/items", json={"ids": [9000]}).status_code == 200
        assert sizes() == [before + 1, before]
        partly = client.request("DELETE", "/v1/items", json={"ids": [9000]})
        assert partly.status_code == 422
        assert "The arm 'fair' does not have the change" in partly.json()["message"]
        assert "These arms have it: control." in partly.json()["message"]
        assert "/arms/fair/v1/items" in partly.json()["hint"]
        assert sizes() == [before] * 2
        with Client(url, timeout=60) as one:
            one.upsert_items(np.ones((1, 8)), ["toys"], [9002])
        assert sizes() == [before + 1] * 2


def test_exposures_are_those_of_the_items_that_promises_select() -> None:
    """Compared with the plainest count: every candidate of every answer, and every promise."""
    rng = np.random.default_rng(3)
    ids = [f"item {row}" for row in range(60)]
    attributes = {"region": rng.choice(["n", "s"], 60), "provider": rng.choice(["a", "b", "c"], 60)}
    catalog = Catalog(rng.normal(size=(60, 4)), attributes, ids=ids)
    wheres: list[dict[str, Any]] = [{"provider": "a"}, {"region": "n", "provider": ["b", "c"]}, {"region": "n"}]
    service, prices = Mock(catalog=catalog), np.where(rng.random(60) < 0.5, -0.25, 0.0)
    service.front.item_prices = lambda _: (catalog, prices)
    service.scheduler.state.promises = {}
    promised = PromisedItems(service)
    assert promised.count(np.array(ids)) == (0, 0, 0.0)
    for n in (1, 2, 3):
        day = Window.day("UTC")
        service.scheduler.state.promises = {
            str(place): ScheduledPromise(Promise(where, at_least=1), day) for place, where in enumerate(wheres[:n])
        }
        promised.refresh()
        for _ in range(20):
            shown = rng.choice([*ids, "gone"], size=5, replace=False).tolist()
            plain, held = 0, 0
            for one in shown:
                row = ids.index(one) if one in ids else None
                if row is not None and any(
                    all(attributes[name][row] in np.atleast_1d(value) for name, value in where.items())
                    for where in wheres[:n]
                ):
                    plain += 1
                    held += prices[row] != 0
            assert promised.count(np.array(shown)) == (plain, held, -0.25 * held)
    assert promised.count(np.array([])).exposures == 0
    service.scheduler.state.promises = {"all": ScheduledPromise(Promise({}, at_most_per_list=3), Window.day("UTC"))}
    promised.refresh()
    assert promised.count(np.array([*ids[:7], "gone"])).exposures == 7
    chosen = Promise({"id": [ids[4], ids[9], "gone"]}, at_least=5)
    service.scheduler.state.promises = {"items": ScheduledPromise(chosen, Window.day("UTC"))}
    promised.refresh()
    assert promised.count(np.array([*ids[:7], "gone"])).exposures == 1
