"""Explanations over HTTP: with the answer, later by request id, and through the client."""

from __future__ import annotations

from typing import Any

import httpx
import numpy as np
import pytest

from fairsync.catalog import Catalog
from fairsync.coordination.coordinator import Coordinator
from fairsync.coordination.front_end import FrontEnd
from fairsync.errors import FairSyncError, RefusedError
from fairsync.ledger import MemoryLedger, Retention
from fairsync.retriever import FairRetriever
from fairsync.schedule import Forecast, ScheduledPromise, Window
from fairsync.service.client import Client
from fairsync.service.promises.promise_service import PromiseService
from service.running import TOKENS, make_settings, running, small_service

USERS = np.random.default_rng(1).normal(size=(6, 8))


def words_catalog() -> Catalog:
    rng = np.random.default_rng(0)
    embeddings = rng.normal(size=(40, 8)) + np.repeat([[1.0], [-1.0]], 20, axis=0)
    kinds, stock = ["books"] * 20 + ["toys"] * 20, [True, False] * 20
    return Catalog(embeddings, {"kind": kinds, "stock": stock}, [f"{kinds[i][0]}/{i}" for i in range(40)])


def test_an_answer_explains_itself_only_if_asked() -> None:
    with running(small_service()) as service, httpx.Client(base_url=service.url, timeout=60) as http:
        plain = http.post("/v1/retrieve", json={"vectors": USERS.tolist()}).json()["answers"]
        assert all("explanation" not in one for one in plain)
        asked = http.post("/v1/retrieve", json={"vectors": USERS.tolist(), "explain": True}).json()["answers"]
    for one in asked:
        explained = one["explanation"]["candidates"]
        assert [candidate["id"] for candidate in explained] == one["ids"]
        assert [candidate["relevance"] for candidate in explained] == one["relevance"]
        assert [candidate["plain_rank"] for candidate in explained] == [1, 2, 3]
        assert {candidate["reason"] for candidate in explained} == {"relevance"}


def test_the_client_explains_now_and_later() -> None:
    """It says what a front end says in its own process, and the same after the answer was saved."""
    catalog = words_catalog()
    with running(small_service(catalog=catalog)) as service, Client(service.url, timeout=60) as client:
        ids = [f"visit/{i} ?ü" for i in range(6)]
        exclude, where = [["b/0", "b/2"]] * 6, {"stock": True}
        found = client.retrieve(USERS, request_ids=ids, exclude=exclude, where=where, explain=True)
        alone = FairRetriever(catalog, k=3).retrieve(USERS, exclude, where, explain=True)
        for i, request_id in enumerate(ids):
            assert found.explain(i) == alone.explain(i) == client.explain(request_id)
            assert str(found.explain(i)).startswith("id ")
            for item in set(catalog.ids.tolist()) - set(found.ids[i].tolist()):
                assert client.why_not(request_id, item) == alone.explain(i).why_not(item)
        reasons = {client.why_not(ids[0], item).reason for item in ("b/0", "b/1")}
        assert reasons == {"excluded", "condition"}
        again = client.retrieve(USERS, request_ids=ids, exclude=exclude, where=where, explain=True)
        assert again.explain(2) == found.explain(2)
        with pytest.raises(FairSyncError, match=r"client\.why_not"):
            found.explain(0).why_not("b/1")


def test_what_is_not_known_is_404_and_what_has_expired_is_410() -> None:
    catalog = words_catalog()
    ledger = MemoryLedger(catalog.n_groups, retention=Retention(max_bytes=5_000))
    coordinator = Coordinator(catalog, k=3, floors=0, horizon=1, auto_restart=False, ledger=ledger)
    promise_service = PromiseService(FrontEnd(catalog, coordinator), coordinator, [], Forecast(rate=1.0))
    with running(promise_service) as service, Client(service.url, timeout=60) as client:
        client.retrieve(USERS[:1], request_ids=["without"])
        for request_id in ("never", "without"):
            with pytest.raises(RefusedError) as refused:
                client.explain(request_id)
            assert (refused.value.status, refused.value.error) == (404, "not_found")
        unexplained = client.retrieve(USERS[:1], request_ids=["without"], explain=True)
        with pytest.raises(FairSyncError, match="explain=True"):
            unexplained.explain(0)
        client.retrieve(USERS[:1], request_ids=["first"], explain=True)
        assert client.explain("first").candidates
        for i in range(8):
            client.retrieve(USERS[:1], request_ids=[f"later-{i}"], explain=True)
        with pytest.raises(RefusedError) as refused:
            client.explain("first")
        assert (refused.value.status, refused.value.error) == (410, "expired")


def test_questions_without_an_answer_are_refused() -> None:
    with running(small_service()) as service, httpx.Client(base_url=service.url, timeout=60) as http:
        body = {"vectors": USERS[:1].tolist(), "request_ids": ["r"], "explain": True}
        candidate = http.post("/v1/retrieve", json=body).json()["answers"][0]["ids"][0]

        def ask(query: str) -> httpx.Response:
            return http.get(f"/v1/explain/r{query}")

        assert ask("").json()["why_not"] is None
        for item in (str(candidate), "x", "10000000", "1" * 400, "٣"):
            assert ask(f"?item={item}").status_code == 422
        assert http.get(f"/v1/explain/{'x' * 300}").status_code == 404
        assert http.get("/v1/explain/a%00b").status_code in (404, 422)


def test_retrieve_or_report_may_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    for role, token in TOKENS.items():
        monkeypatch.setenv(f"TEST_{role.upper()}", token)
    with running(small_service(), make_settings({}, tokens=True)) as service:
        for role in TOKENS:
            headers = {"authorization": f"Bearer {TOKENS[role]}"}
            assert httpx.get(f"{service.url}/v1/explain/x", headers=headers, timeout=60).status_code == 404
        assert httpx.get(f"{service.url}/v1/explain/x", timeout=60).status_code == 401


def test_promises_are_named_as_they_were_made() -> None:
    """The floors of the loop are those of the present plan; an explanation names the promise."""
    catalog = words_catalog()
    coordinator = Coordinator(catalog, k=3, floors=0, horizon=1, batch_size=4, auto_restart=False)
    promises = [
        ScheduledPromise.of_group("toys", 120, Window.day("UTC"), catalog.group_attribute),
        ScheduledPromise.of_group("toys", 60, Window.hour("UTC"), catalog.group_attribute),
    ]
    service = PromiseService(
        FrontEnd(catalog, coordinator), coordinator, promises, Forecast(rate=0.1), clock=lambda: 1_700_000_000.0
    )
    service.refresh()
    reasons: set[str] = set()
    prices: dict[str, Any] = {}
    for _ in range(20):
        found = service.retrieve(USERS + 1.0, explain=True)
        for i in range(len(found)):
            reasons |= {one.reason for one in found.explain(i).candidates}
            prices |= {name: price for one in found.explain(i).candidates for name, price in one.prices.items()}
    text = "toys ≥ 120 each day, toys ≥ 60 each hour"
    assert set(prices) == {text}
    assert reasons <= {"relevance", f"promise: {text}", f"forced: {text}"}
    assert len(reasons) > 1


def test_groups_without_a_promise_have_none_in_explanations() -> None:
    """The floors of the loop include what groups have had before the plan."""
    promise = {"group": "toys", "floor": 12, "window": {"every": "day"}}
    with running(small_service()) as service, httpx.Client(base_url=service.url, timeout=60) as http:
        http.post("/v1/retrieve", json={"vectors": USERS.tolist()})
        http.post("/v1/promises", json=promise).raise_for_status()
        answers = http.post("/v1/retrieve", json={"vectors": USERS.tolist(), "explain": True}).json()["answers"]
    prices = {name for one in answers for candidate in one["explanation"]["candidates"] for name in candidate["prices"]}
    assert prices <= {"toys ≥ 12 each day"}
