"""Front ends explain their answers, and those that any front end has saved."""

from typing import Any

import numpy as np
import pytest

from fairsync.catalog import Catalog, Where
from fairsync.coordination.coordinator import Coordinator
from fairsync.coordination.front_end import FrontEnd
from fairsync.errors import ExpiredRequestError, InvalidInputError, UnknownRequestError
from fairsync.ledger import MemoryLedger, Retention
from fairsync.promises import Promise
from fairsync.retriever import FairRetriever

RNG = np.random.default_rng(0)
CATALOG = Catalog(
    RNG.normal(size=(60, 4)) + np.repeat([[0.5], [-0.5]], 30, axis=0),
    {"kind": ["a"] * 30 + ["b"] * 30, "stock": [True, True, False] * 20},
)
USERS = RNG.normal(size=(48, 4)) + 0.3


def test_a_front_end_explains_what_a_retriever_does() -> None:
    coordinator = Coordinator(CATALOG, k=4, floors={"b": 90}, horizon=48, batch_size=8)
    front = FrontEnd(CATALOG, coordinator)
    retriever = FairRetriever(CATALOG, k=4, floors={"b": 90}, horizon=48, batch_size=8)
    exclude = [[int(item)] for item in RNG.integers(60, size=48)]
    mine = retriever.retrieve(USERS, exclude, {"stock": True}, explain=True)
    ids = [f"r{i}" for i in range(48)]
    found = front.retrieve(USERS, k=None, request_ids=ids, exclude=exclude, where={"stock": True}, explain=True)
    other = FrontEnd(CATALOG, coordinator)  # any front end knows the saved ones
    reasons = set()
    for i, request_id in enumerate(ids):
        explanation, later = found.explain(i), other.explain(request_id)
        assert explanation == mine.explain(i) == later
        reasons |= {one.reason for one in explanation.candidates}
        for item in set(range(60)) - set(found.ids[i].tolist()):
            assert later.why_not(item) == explanation.why_not(item)
    assert "promise: b ≥ 90" in reasons or "forced: b ≥ 90" in reasons
    again = other.retrieve(USERS[:2], k=None, request_ids=ids[:2], explain=True)
    assert again.explain(1) == found.explain(1)


def test_other_texts_of_promises() -> None:
    coordinator = Coordinator(CATALOG, k=4, floors={"b": 90}, horizon=48, batch_size=8)
    found = FrontEnd(CATALOG, coordinator).retrieve(USERS, explain={"b": "b, always"})
    names = {name for i in range(48) for one in found.explain(i).candidates for name in one.prices}
    assert names == {"b, always"}


def test_items_that_have_gone_are_no_obstacle() -> None:
    front = FrontEnd(CATALOG, Coordinator(CATALOG, k=4, floors=0, horizon=48))
    found = front.retrieve(USERS[:1], k=None, request_ids=["r"], exclude=[[0, 1]], explain=True)
    gone = found.ids[0].tolist()[:2]
    front.remove([*gone, 0])
    later = front.explain("r")
    assert later == found.explain(0)
    left = next(item for item in range(2, 60) if item not in found.ids[0].tolist())
    assert later.why_not(left) == found.explain(0).why_not(left)
    assert later.why_not(1).reason == "excluded"
    with pytest.raises(InvalidInputError, match="no item"):
        later.why_not(gone[0])


def test_what_cannot_be_explained() -> None:
    ledger = MemoryLedger(2, retention=Retention(max_bytes=5_000))
    front = FrontEnd(CATALOG, Coordinator(CATALOG, k=4, floors=0, horizon=480, ledger=ledger))
    front.retrieve(USERS[:1], k=None, request_ids=["plain"])
    with pytest.raises(UnknownRequestError, match="without explain"):
        front.explain("plain")
    with pytest.raises(UnknownRequestError, match="never answered"):
        front.explain("other")
    front.retrieve(USERS[:1], k=None, request_ids=["first"], explain=True)
    assert front.explain("first").candidates
    for i in range(8):
        front.retrieve(USERS[:1], k=None, request_ids=[f"later-{i}"], explain=True)
    with pytest.raises(ExpiredRequestError):
        front.explain("first")


def test_an_empty_answer_is_explained_too() -> None:
    front = FrontEnd(CATALOG, Coordinator(CATALOG, k=4, floors=0, horizon=48))
    rules: list[Where | None] = [{"kind": "c"}, {"kind": "a", "stock": False}]
    found = front.retrieve(USERS[:2], k=None, request_ids=["x", "y"], where=rules, allow_empty=True, explain=True)
    for explanation in (found.explain(0), front.explain("x")):
        assert (explanation.candidates, explanation.cut) == ((), None)
        assert explanation.why_not(0).reason == "condition"
        assert "relevance" in str(explanation)
    assert len(front.explain("y").candidates) == 4


def test_saved_explanations_under_promises_say_why_an_item_is_not_there() -> None:
    promises = [Promise({"kind": "b"}, at_least=90), Promise({"stock": False}, at_least=70, at_most=80)]
    coordinator = Coordinator(CATALOG, k=4, promises=promises, horizon=48, batch_size=8)
    ids = [f"r{i}" for i in range(48)]
    exclude = [[int(item)] for item in RNG.integers(60, size=48)]
    found = FrontEnd(CATALOG, coordinator).retrieve(USERS, k=None, request_ids=ids, exclude=exclude, explain=True)
    other, reasons, prices = FrontEnd(CATALOG, coordinator), set(), set()
    for i, request_id in enumerate(ids):
        explanation, later = found.explain(i), other.explain(request_id)
        assert explanation == later
        for item in set(range(60)) - set(found.ids[i].tolist()):
            why = later.why_not(item)
            assert why == explanation.why_not(item)
            reasons.add(why.reason)
            prices.add(why.price)
    assert {"excluded", "price", "relevance"} <= reasons
    assert len(prices) > 3


@pytest.mark.parametrize("count_cold", [True, False])
@pytest.mark.parametrize("cold", ["mean", [7, 40, 31], [50, 3, 12, 33, 9]])
def test_cold_requests_with_rules_are_answered_and_explained_as_by_a_retriever(cold: Any, count_cold: bool) -> None:
    users = np.where(np.arange(48)[:, None] % 3 == 0, 0.0, USERS)
    terms: dict[str, Any] = {"k": 4, "floors": {"b": 40}, "horizon": 48, "batch_size": 8}
    coordinator = Coordinator(CATALOG, **terms)
    front = FrontEnd(CATALOG, coordinator, cold=cold, count_cold=count_cold)
    retriever = FairRetriever(CATALOG, cold=cold, count_cold=count_cold, **terms)
    exclude = [[int(item), 40] for item in RNG.integers(60, size=48)]
    where: list[Where | None] = [{"stock": True} if i % 2 else None for i in range(48)]
    mine = retriever.retrieve(users, exclude, where, explain=True)
    ids = [f"r{i}" for i in range(48)]
    found = front.retrieve(users, k=None, request_ids=ids, exclude=exclude, where=where, explain=True)
    assert found.ids.tolist() == mine.ids.tolist()
    assert found.cold.tolist() == (np.arange(48) % 3 == 0).tolist()
    assert coordinator.report().exposures == retriever.report().exposures
    assert front.limited_requests == retriever.limited_requests
    for i, request_id in enumerate(ids):
        assert not set(exclude[i]) & set(found.ids[i].tolist())
        explanation, later = found.explain(i), FrontEnd(CATALOG, coordinator).explain(request_id)
        assert explanation == mine.explain(i) == later
        assert [one.id for one in explanation.candidates] == found.ids[i].tolist()
        for item in set(range(60)) - set(found.ids[i].tolist()):
            assert later.why_not(item) == explanation.why_not(item) == mine.explain(i).why_not(item)
    again = front.retrieve(users, k=None, request_ids=ids, explain=True)
    assert again.cold.tolist() == found.cold.tolist()
    assert again.explain(3) == found.explain(3)
