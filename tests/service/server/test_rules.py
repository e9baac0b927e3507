"""Rules over HTTP: what requests exclude, and their conditions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httpx
import msgspec
import numpy as np
import pytest

from fairsync.catalog.condition_cache import ConditionCache
from fairsync.errors import RefusedError
from fairsync.service.client import Client
from fairsync.service.schema import MSGPACK
from service.running import Running, make_settings, running, shop_catalog, small_service
from service.server.held_search import Held, post, until

if TYPE_CHECKING:
    from collections.abc import Iterator

SHOP = shop_catalog()
USER = [0.5] * 8


@pytest.fixture(scope="module")
def service() -> Iterator[Running]:
    with running(small_service(catalog=SHOP), make_settings({"max_exclude": 1_000, "request_seconds": 120})) as one:
        yield one


def ask(service: Running, **body: Any) -> list[dict[str, Any]]:
    answer = httpx.post(f"{service.url}/v1/retrieve", json={"vectors": [USER], **body}, timeout=120)
    assert answer.status_code == 200, answer.text
    answers: list[dict[str, Any]] = answer.json()["answers"]
    return answers


def refusal(service: Running, **body: Any) -> str:
    answer = httpx.post(f"{service.url}/v1/retrieve", json={"vectors": [USER], **body}, timeout=120)
    assert answer.status_code == 422, answer.text
    message: str = answer.json()["message"]
    return message


def best(where: dict[str, Any] | None = None, exclude: tuple[str, ...] = (), k: int = 3) -> list[str]:
    """Return the best items by a plain sort."""
    chosen = None if where is None else SHOP.select(where)
    mask = np.ones(len(SHOP), dtype=bool) if chosen is None else chosen.mask.copy()
    mask[SHOP.rows_of(np.array([*exclude, "i0"]))[: len(exclude)]] = False
    order = np.argsort(-(SHOP.embeddings.astype(np.float64) @ np.array(USER)), kind="stable")
    ids: list[str] = SHOP.ids[[row for row in order if mask[row]][:k]].tolist()
    return ids


def test_excluded_ids_are_left_out_and_unknown_ones_counted(service: Running) -> None:
    first, second = best()[:2]
    (one,) = ask(service, exclude=[[first, second, "gone", "lost", first]])
    assert one["ids"] == best(exclude=(first, second))
    assert (one["short"], one["unknown_excluded"]) == (False, 2)
    both = ask(service, vectors=[USER, USER], exclude=[[first], []])
    assert [answer["ids"] for answer in both] == [best(exclude=(first,)), best()]


@pytest.mark.parametrize(
    "where",
    [
        {"region": "DE"},
        {"region": ["DE", "AT"], "in_stock": True, "price": {"at_most": 30}},
        {"category": {"not": ["books", "toys"]}},
        {"price": {"at_least": 7.5, "at_most": 40}},
        {"tags": "new"},
        {},
    ],
)
def test_candidates_meet_the_condition(service: Running, where: dict[str, Any]) -> None:
    (one,) = ask(service, where=where)
    assert one["ids"] == best(where)
    assert [answer["ids"] for answer in ask(service, vectors=[USER, USER], where=[where, None])] == [
        best(where),
        best(),
    ]


def test_short_lists_have_no_filler(service: Running) -> None:
    one, two = ask(service, vectors=[USER, USER], where=[{"price": {"at_most": 1}}, None])
    assert sorted(one["ids"]) == ["i0", "i1"]
    assert len(one["groups"]) == len(one["relevance"]) == 2
    assert (one["short"], two["short"]) == (True, False)


def test_a_condition_that_no_item_meets_gives_an_empty_answer_and_the_others_are_answered(service: Running) -> None:
    nothing = {"price": {"at_least": 1_000}}
    one, two = ask(service, vectors=[USER, USER], where=[nothing, None])
    assert (one["ids"], one["groups"], one["relevance"], one["short"]) == ([], [], [], True)
    assert (two["ids"], two["short"]) == (best(), False)
    (alone,) = ask(service, where=nothing)
    assert (alone["ids"], alone["short"]) == ([], True)


def test_messagepack_and_the_client(service: Running) -> None:
    first = best()[0]
    with Client(service.url, timeout=60) as client:
        found = client.retrieve([USER, USER], exclude=[[first, "gone"], []], where=[None, {"price": {"at_most": 1}}])
        assert found.ids[0].tolist() == best(exclude=(first,))
        assert sorted(found.ids[1].tolist()) == ["", "i0", "i1"]
        assert found.short.tolist() == [False, True]
        assert found.unknown_excluded.tolist() == [1, 0]
        assert np.isneginf(found.relevance[1, -1])
        empty = client.retrieve([USER], where={"price": {"at_least": 1_000}})
        assert (empty.ids.tolist(), empty.short.tolist()) == ([["", "", ""]], [True])
        assert client.retrieve([USER]).ids[0].tolist() == best()
        with pytest.raises(RefusedError, match="Did you mean 'region'"):
            client.retrieve([USER], where={"regoin": "DE"})
    body = msgspec.msgpack.encode({"vectors": [USER], "where": {"price": {"at_most": 1}}})
    answer = httpx.post(f"{service.url}/v1/retrieve", content=body, headers={"content-type": MSGPACK}, timeout=60)
    columns = msgspec.msgpack.decode(answer.content)
    assert (columns["k"], columns["short"], [len(ids) for ids in columns["ids"]]) == (3, [True], [2])


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"where": {"regoin": "DE"}}, "there is no attribute 'regoin'. Did you mean 'region'?"),
        ({"where": [{"regoin": "DE"}]}, "where[0]: there is no attribute 'regoin'. Did you mean 'region'?"),
        ({"where": {"price": {"at_mots": 3}}}, "Did you mean 'at_most'?"),
        ({"where": {"price": "cheap"}}, "'price' has float values"),
        ({"where": {"region": {"at_most": 3}}}, "has no numbers"),
        ({"where": {"region": []}}, "empty list"),
        ({"where": {"region": None}}, "'region' has str values"),
        ({"where": {"region": [["DE"]]}}, "'region' has str values"),
        ({"where": {"region": {"not": {"not": "DE"}}}}, "'region' has str values"),
        ({"where": {"in_stock": 1}}, "'in_stock' has bool values"),
        ({"where": {"price": {"at_most": 10**400}}}, "too large"),
        ({"where": {"price": [10**400]}}, "too large"),
        ({"where": {"region": [f"r{i}" for i in range(1_001)]}}, "1,000 values at most"),
        ({"where": "DE"}, "where: Expected `object | array | null`"),
        ({"where": [None, None]}, "'where' must be one condition, or 1"),
        ({"exclude": ["i1"]}, "exclude[0]: Expected `array`"),
        ({"exclude": [["i1"], []]}, "'exclude' must be 1 lists of ids"),
        ({"exclude": [[7]]}, "'exclude' must hold strings"),
        ({"exclude": [[None]]}, "exclude[0][0]: Expected `int | str`"),
        ({"exclude": [["i1"] * 1_001]}, "A request may exclude 1,000 items, got 1,001."),
        ({"exclude": [[f"item-{i}" for i in range(500_000)]]}, "A request may exclude 1,000 items, got 500,000."),
        ({"vectors": [USER] * 101, "exclude": [["i1"] * 1_000] * 101}, "may exclude 100,000 items in all"),
    ],
)
def test_malformed_rules_are_refused(service: Running, body: dict[str, Any], message: str) -> None:
    before = service.promise_service.overview().requests
    assert message in refusal(service, **body)
    assert service.promise_service.overview().requests == before


def test_requests_with_different_rules_are_searched_together() -> None:
    """Also one whose condition no item meets; each gets its own answer."""
    held = Held(SHOP)
    rules: list[dict[str, Any]] = [
        {"where": {"region": "DE"}},
        {"exclude": [best()[:1]]},
        {"where": {"price": {"at_least": 1_000}}},
        {"where": [{"in_stock": True}], "exclude": [["gone"]]},
        {},
    ]
    answers: list[list[httpx.Response]] = [[] for _ in rules]
    with running(held.promise_service) as service:
        first = post(service, [])
        assert held.entered.wait(240)
        threads = [post(service, mine, vectors=[USER], **one) for mine, one in zip(answers, rules, strict=True)]
        until(lambda: "fairsync_waiting_requests 6.0" in httpx.get(f"{service.url}/metrics", timeout=60).text)
        held.go.set()
        for thread in [first, *threads]:
            thread.join()
    assert held.sizes == [1, 5]
    found = [mine[0].json()["answers"][0] for mine in answers]
    assert [one["ids"] for one in found] == [
        best({"region": "DE"}), best(exclude=tuple(best()[:1])), [], best({"in_stock": True}), best(),
    ]  # fmt: skip
    assert [one["unknown_excluded"] for one in found] == [0, 0, 0, 1, 0]


def test_a_repeated_request_id_gets_the_saved_answer_whatever_its_rules(service: Running) -> None:
    (one,) = ask(service, request_ids=["r1"], where={"price": {"at_most": 1}})
    (again,) = ask(service, request_ids=["r1"], exclude=[one["ids"]])
    assert again == one
    shown = {"reports": [{"request_id": "r1", "items": [*one["ids"], "i9"]}]}
    assert httpx.post(f"{service.url}/v1/impressions", json=shown, timeout=60).json() == {
        "counted": 2,
        "repeated": 0,
        "unknown": 1,
    }


def test_any_number_of_conditions_takes_a_bounded_amount_of_memory() -> None:
    cache = ConditionCache(SHOP.attributes, most_bytes=200_000)
    for number in range(3_000):
        cache.select({"price": {"at_least": number / 100}})
        cache.select({"region": ["DE", "x" * 1_000, str(number)]})
    assert len(cache) < 200


def test_items_change_their_attributes_over_http() -> None:
    """Sold out from the next request on; groups and embeddings stay unless they are given."""
    with running(small_service(catalog=SHOP)) as service, Client(service.url, timeout=60) as client:
        first, second = best({"in_stock": True})[:2]
        url = f"{service.url}/v1/items"
        body = {"ids": [first], "attributes": {"in_stock": [False], "price": [3]}}
        assert httpx.put(url, json=body, timeout=60).json() == {"items": 60}
        assert ask(service, where={"in_stock": True})[0]["ids"][0] == second
        assert client.upsert_items(None, {"in_stock": np.array([True])}, [first]) == 60
        assert ask(service, where={"in_stock": True})[0]["ids"][0] == first
        new = {"category": ["tea"], "region": ["DE"], "in_stock": [True], "price": [1.0], "tags": [["new", "sale"]]}
        assert client.upsert_items(10 * np.array([USER]), new, ["tea-1"]) == 61
        assert ask(service, where={"tags": "sale"})[0]["ids"] == ["tea-1"]
        assert httpx.put(url, json={"ids": ["tea-1"], "groups": ["wine"]}, timeout=60).status_code == 200
        assert ask(service, where={"tags": "sale"})[0]["groups"] == ["wine"]
        for wrong, message in [
            ({"ids": [first]}, "nothing to change"),
            ({"ids": [first], "attributes": {"in_stok": [True]}}, "did you mean 'in_stock'"),
            ({"ids": [first], "attributes": {"in_stock": [True, True]}}, "must have 1 values"),
            ({"ids": [first], "attributes": {"in_stock": [None]}}, "attributes[...][0]: Expected"),
            ({"ids": ["new"], "attributes": {"in_stock": [True]}}, "there is no item 'new', and no embedding"),
            ({"ids": [first], "groups": ["a"], "attributes": {"category": ["b"]}}, "give one of them"),
            ({"ids": [first], "groups": ["a", "b"]}, "1 ids and 2 groups"),
        ]:
            answer = httpx.put(url, json=wrong, timeout=60)
            assert (answer.status_code, message in answer.json()["message"]) == (422, True), answer.text
