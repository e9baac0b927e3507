"""Promises about any selection over HTTP: made, previewed, counted; bad input is refused before anything is changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httpx
import pytest

from service.promises.test_selections import Shop, promised
from service.running import running

if TYPE_CHECKING:
    from collections.abc import Iterator

    from service.running import Running

DAY = {"every": "day"}
OVER = {"every": "campaign", "start": "2026-01-01", "end": "2026-01-02"}
LATER = {"every": "campaign", "start": "2026-03-10", "end": "2026-03-12"}


@pytest.fixture(scope="module")
def shop() -> Shop:
    return Shop([promised({"category": "toys"}, at_least=8_000)])


@pytest.fixture(scope="module")
def service(shop: Shop) -> Iterator[Running]:
    with running(shop.service) as found:
        yield found


def post(service: Running, body: Any, path: str = "") -> httpx.Response:
    return httpx.post(f"{service.url}/v1/promises{path}", json=body, timeout=60)


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        ({"where": {"new": True}, "at_least": 5, "window": OVER}, 422, "is over: choose one that ends after"),
        ({"where": {"maker": "m9"}, "at_least": 5, "window": LATER}, 422, "no item has 'm9' as its 'maker'"),
        ({"where": {"id": 120}, "at_least": 5, "window": DAY}, 422, "no item has the id 120"),
        ({"where": {"id": {"at_most": 5}}, "at_least": 5, "window": DAY}, 422, "has no numbers"),
        ({"where": {"id": None}, "at_most": 5, "window": DAY}, 422, "must be an id or a list of ids"),
        ({"where": {"color": "red"}, "at_least": 5, "window": DAY}, 422, "color"),
        ({"where": {"new": True}, "window": DAY}, 422, "needs a bound"),
        ({"where": {"new": True}, "at_least": 0.5, "at_most": 0.25, "window": DAY}, 422, "at_most"),
        ({"where": {"new": True}, "at_most": 0.25, "max_price": 1.0, "window": DAY}, 422, "max_price"),
        ({"where": {"new": True}, "at_least": 5, "priority": 0, "window": DAY}, 422, "priority"),
        (
            {"where": {"category": "books"}, "at_least": 3_000, "window": DAY},
            409,
            "push out 8,000 exposures of category",
        ),
        ({"where": {"category": "books"}, "at_least": 0.5, "window": DAY}, 409, "cannot be kept"),
        ({"where": {"category": "toys"}, "at_most": 100, "window": DAY}, 409, "cannot be kept"),
        ({"where": {"category": "toys"}, "at_most_per_list": 1, "window": DAY}, 409, "cannot be kept"),
    ],
)
def test_bad_input_changes_nothing(service: Running, body: Any, status: int, says: str) -> None:
    answer = post(service, body)
    assert answer.status_code == status, answer.text
    assert says in answer.json()["message"]
    assert answer.json()["hint"]
    bulk = post(service, {"promises": [{"where": {"new": True}, "at_least": 1, "window": DAY}, body]}, "/bulk")
    assert bulk.status_code == status
    assert len(httpx.get(f"{service.url}/v1/promises").json()) == 1, "none of them was made"


def test_limits_per_list_that_cross_are_refused(service: Running) -> None:
    crossing = [
        {"where": {one: two}, "at_most_per_list": 2, "window": DAY} for one, two in (("new", True), ("maker", "m1"))
    ]
    answer = post(service, {"promises": crossing}, "/bulk")
    assert answer.status_code == 422, answer.text
    assert "both limit their items per list and share items" in answer.json()["message"]
    assert len(httpx.get(f"{service.url}/v1/promises").json()) == 1, "none of them was made"


def test_too_many_in_one_call(service: Running) -> None:
    one = {"where": {"new": True}, "at_least": 1, "window": DAY}
    answer = post(service, {"promises": [one] * 10_001}, "/bulk")
    assert (answer.status_code, "10000 promises at most" in answer.json()["message"]) == (422, True)
    answer = post(service, {"promises": [one] * 10_000}, "/bulk")
    assert answer.status_code == 422
    assert "promises 1 and 2 are for the same windows" in answer.json()["message"]
    assert len(httpx.get(f"{service.url}/v1/promises").json()) == 1


def test_a_preview_says_what_could_hold_and_what_it_would_push_out(service: Running) -> None:
    (known,) = httpx.get(f"{service.url}/v1/promises").json()
    found = post(service, {"where": {"category": "books"}, "at_least": 3_000, "window": DAY}, "/preview").json()
    assert (found["feasible"], found["pushes_out"]) == (False, [known["id"]])
    assert 0 < found["largest"] < 3_000
    share = post(service, {"where": {"category": "books"}, "at_least": 0.5, "window": DAY}, "/preview").json()
    assert 0 < share["largest_share"] < 0.5
    fits = {"where": {"category": "books"}, "at_least": share["largest_share"], "window": DAY}
    assert post(service, fits, "/preview").json()["feasible"]
    second = {"where": {"category": "books"}, "at_least": 3_000, "priority": 2, "window": DAY}
    assert not post(service, second, "/preview").json()["feasible"], "it has to fit beside those that come first"


def test_promises_by_conditions_are_made_changed_and_ended(service: Running, shop: Shop) -> None:
    made = [
        post(service, body).json()
        for body in (
            {"where": {"maker": ["m1", "m2"], "new": True}, "at_least": 40, "max_price": 2.5, "window": DAY},
            {"where": {"category": "big"}, "at_most": 0.5, "name": "no more than half", "window": DAY},
            {"where": {}, "each": "id", "at_least": 3, "window": {"every": "campaign", "days": 7}, "priority": 3},
        )
    ]
    assert [one["at_least"] for one in made] == [40, None, 3]
    assert (made[1]["name"], made[1]["at_most"], made[1]["cap"]) == ("no more than half", 0.5, 4_800)
    every = httpx.get(f"{service.url}/v1/promises").json()
    of_items = [one for one in every if one["series"]]
    assert len(of_items) == 120
    assert {one["window"]["days"] for one in of_items} == {7}
    url = f"{service.url}/v1/promises"
    changed = httpx.put(f"{url}/{made[1]['id']}", json={"where": {"category": "big"}, "at_most": 0.4, "window": DAY})
    assert changed.status_code == 200, changed.text
    for name in (made[0]["id"], made[1]["id"], of_items[0]["series"]):
        assert httpx.delete(f"{url}/{name}").status_code == 204
    left = [one for one in httpx.get(url).json() if one["name"] != "no more than half"]
    assert [one["name"] for one in left] == ["category=toys"]
