"""The control plane over HTTP and in the client: leases, settlements and prices for searches made elsewhere."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import httpx
import numpy as np
import pytest

from fairsync.errors import AccessError, RefusedError
from fairsync.schedule import ScheduledPromise, Window
from fairsync.service.client import AsyncClient, Client
from fairsync.service.schema.control_plane import LeaseGrant, PriceFormat, SettledList
from service.running import TOKENS, MiddayClock, make_settings, running, shop_catalog, small_service

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fairsync.service.promises.promise_service import PromiseService

CATALOG = shop_catalog()
USERS = np.random.default_rng(1).normal(size=(600, 8)).astype(np.float32)


def next_day() -> Window:
    """The 24 hours that begin now, by the clock of the service."""
    now = datetime.fromtimestamp(MiddayClock()(), UTC)
    return Window.campaign(now - timedelta(seconds=1), now + timedelta(days=1), "UTC")


def promised(floor: int = 900) -> PromiseService:
    """A service that promises wine many exposures until tomorrow."""
    service = small_service(per_second=600 / 86_400, catalog=CATALOG)
    service.editor.set_promise(ScheduledPromise.of_group("wine", floor, next_day(), attribute="category"))
    return service


@pytest.fixture
def client() -> Iterator[Client]:
    with running(promised()) as service, Client(service.url, timeout=60) as client:
        yield client


def search(users: Any, grant: LeaseGrant) -> list[SettledList]:
    """Search the catalog without FairSync: by score minus price, over the best 30."""
    price = np.zeros(len(CATALOG))
    for row in grant.prices:
        ((attribute, label),) = row.where.items()
        assert row.price is not None
        price[np.array(CATALOG.attributes[attribute].values()) == label] += row.price
    lists = []
    for scores in users @ CATALOG.embeddings.T:
        fetched = np.argsort(-scores)[:30]
        best = fetched[np.argsort(price[fetched] - scores[fetched])][: grant.k]
        lists.append(
            SettledList(
                items=CATALOG.ids_of(best).tolist(),
                fetched=CATALOG.ids_of(fetched).tolist(),
                scores=scores[fetched].tolist(),
            )
        )
    return lists


def exposures(client: Client) -> int:
    return client.promises()[0].exposures


def test_prices_of_leases_move_an_outside_search_towards_the_promise(client: Client) -> None:
    start, granted, first = 0, [], None
    while start < len(USERS):
        grant = client.lease(len(USERS) - start)
        assert 1 <= grant.requests <= 16
        assert grant.k == 3
        first = first or grant
        granted.append(grant)
        settled = client.settle(grant.lease, search(USERS[start : start + grant.requests], grant))
        assert (settled.requests, settled.repeated, settled.unknown) == (grant.requests, 0, 0)
        start += grant.requests
    assert first is not None
    (row,) = first.prices
    assert (row.where, row.price) == ({"category": "wine"}, 0.0)
    assert row.missing > 0
    assert first.wanted_scores > 3
    assert granted[-1].version > first.version
    assert any(row.price for grant in granted for row in grant.prices), "prices were learnt"
    # A third of the items is wine: without prices it gets about 600 of 1,800 slots.
    assert exposures(client) > 750


def test_a_settlement_is_idempotent_and_says_what_it_left_out(client: Client) -> None:
    grant = client.lease(2)
    lists = [SettledList(items=["i0", "i40", "gone"], request_id="r1"), SettledList(items=["i41", "i42"])]
    settled = client.settle(grant.lease, lists)
    assert (settled.requests, settled.exposures, settled.unknown, settled.unknown_items) == (2, 4, 1, ["gone"])
    assert client.settle(grant.lease, lists).repeated == 2
    other = client.lease(1)
    assert client.settle(other.lease, [SettledList(items=["i0", "i40"], request_id="r1")]).repeated == 1
    assert exposures(client) == 3


def test_an_item_that_was_removed_after_the_search_is_said(client: Client) -> None:
    grant = client.lease(1)
    client.remove_items(["i59"])
    settled = client.settle(grant.lease, [SettledList(items=["i59", "i58"])])
    assert (settled.exposures, settled.unknown_items) == (1, ["i59"])
    assert exposures(client) == 1


def test_a_lease_that_was_released_is_answered_as_expired(client: Client) -> None:
    grant = client.lease(1)
    client.release(grant.lease)
    settled = client.settle(grant.lease, [SettledList(items=["i58"])])
    assert (settled.requests, settled.exposures, settled.expired) == (0, 1, True)
    again = client.settle(grant.lease, [SettledList(items=["i58"])])
    assert (again.exposures, again.repeated) == (0, 1)
    assert exposures(client) == 1


def test_a_settlement_counts_impressions_of_its_requests() -> None:
    """The saved list is what a report of impressions is compared with."""
    with running(promised()) as service, Client(service.url, timeout=60) as client:
        grant = client.lease(1)
        client.settle(grant.lease, [SettledList(items=["i58", "i1"], request_id="r1")])
        with httpx.Client(base_url=service.url, timeout=60) as http:
            report = {"reports": [{"request_id": "r1", "items": ["i58", "i3"]}]}
            assert http.post("/v1/impressions", json=report).json() == {"counted": 1, "repeated": 0, "unknown": 1}


@pytest.mark.parametrize("lease", ["", "7", "x-1", "0-1", "7-0", f"{1 << 63}-1", "7-1/..", "7-1\0"])
def test_what_is_no_lease_is_not_found(client: Client, lease: str) -> None:
    with pytest.raises(RefusedError) as refused:
        client.settle(lease, [])
    assert refused.value.status == 404


def test_too_many_lists_and_items_are_refused(client: Client) -> None:
    grant = client.lease(1)
    with pytest.raises(RefusedError, match="was for 1 requests"):
        client.settle(grant.lease, [SettledList(items=["i0"])] * 2)
    with pytest.raises(RefusedError, match="k is 3"):
        client.settle(grant.lease, [SettledList(items=["i0", "i1", "i2", "i3"])])
    many: list[int | str] = [f"i{at}" for at in range(10_000)]
    client.release(grant.lease)
    grant = client.lease(16)
    with pytest.raises(RefusedError, match="may report 100,000 items"):
        client.settle(grant.lease, [SettledList(items=["i0"], fetched=many, scores=[0.0] * 10_000)] * 11)
    assert exposures(client) == 0


def test_prices_come_in_every_format(client: Client) -> None:
    plain = client.prices()
    assert plain.formula is None
    (row,) = plain.prices
    assert row.where == {"category": "wine"}
    assert repr(row.price) == "0.0", "never -0"
    grant = client.lease(1)
    assert repr(grant.prices[0].price) == "0.0"
    client.release(grant.lease)
    form: PriceFormat
    for form in ("sql", "qdrant", "milvus", "elasticsearch", "vespa"):
        made = client.prices(form, columns={"category": "kind"}, scale=0.5)
        assert made.formula is not None
        assert json.dumps(made.formula)
        grant = client.lease(1, format=form, columns={"category": "kind"}, scale=0.5)
        assert grant.formula == made.formula
        client.release(grant.lease)
    with pytest.raises(RefusedError, match="no attribute 'colour'"):
        client.prices("sql", columns={"colour": "x"})
    with pytest.raises(RefusedError, match=r"query\.columns"):
        client.prices("sql", columns={"category": 3})  # type: ignore[dict-item]
    with pytest.raises(RefusedError, match="format"):
        client.prices("solr")  # type: ignore[arg-type]
    with pytest.raises(RefusedError, match="no attribute 'colour'"):
        client.lease(1, format="sql", columns={"colour": "x"})
    assert client.lease(16).requests == 16, "what was granted before was released"
    with pytest.raises(RefusedError, match="scale"):
        client.prices("sql", scale=0.0)


def test_the_formula_has_the_prices_in_force(client: Client) -> None:
    grant = client.lease(16)
    client.settle(grant.lease, search(USERS[: grant.requests], grant))
    grant = client.lease(1)  # a new price batch: the policy has solved
    (row,) = grant.prices
    assert row.price is not None
    assert row.price < 0
    made = client.prices("sql", scale=2.0)
    assert made.version == grant.version
    assert made.formula is not None
    assert made.formula["expression"] == f"CASE WHEN \"category\" IN ('wine') THEN {2.0 * row.price!r} ELSE 0 END"


def test_calls_need_the_role_of_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    for role, token in TOKENS.items():
        monkeypatch.setenv(f"TEST_{role.upper()}", token)
    with running(promised(), make_settings(tokens=True)) as service:
        with Client(service.url, TOKENS["report"], timeout=60) as client:
            assert client.prices().prices
            with pytest.raises(AccessError):
                client.lease()
        with Client(service.url, TOKENS["retrieve"], timeout=60) as client:
            grant = client.lease()
            assert client.prices().prices
            client.release(grant.lease)


def test_the_asynchronous_client_has_the_same_calls() -> None:
    async def run(url: str) -> int:
        async with AsyncClient(url) as client:
            grant = await client.lease(2)
            settled = await client.settle(grant.lease, [SettledList(items=["i40"])])
            assert (await client.prices("qdrant")).formula is not None
            return settled.exposures

    with running(promised()) as service:
        assert asyncio.run(run(service.url)) == 1


def test_leases_of_others_are_waited_for_where_promises_are_near() -> None:
    """If every request is needed, a lease beside another one is refused for now, with 503."""
    service = small_service(per_second=600 / 86_400, catalog=CATALOG)
    service.editor.set_promise(ScheduledPromise.of_group("wine", 1, next_day(), attribute="category"))
    service.coordinator.set_targets({"wine": 9}, requests=3)
    with running(service, refresh_seconds=3600.0) as one, httpx.Client(base_url=one.url, timeout=30) as http:
        grant = http.post("/v1/leases", json={"requests": 2}).json()
        assert grant["requests"] == 2
        refused = http.post("/v1/leases", json={"requests": 1})
        assert (refused.status_code, refused.json()["error"]) == (503, "busy")
        assert refused.headers["retry-after"]
        http.post(f"/v1/leases/{grant['lease']}/settle", json={"lists": [{"items": ["i58", "i57", "i56"]}]})
        assert http.post("/v1/leases", json={"requests": 1}).status_code == 201
