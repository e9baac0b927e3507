"""Cold requests of front ends: the answers of a retriever, idempotent whether they count or not."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from fairsync.cold_start.cold_start import is_cold
from fairsync.coordination.coordinator import Coordinator
from fairsync.coordination.front_end import FrontEnd
from fairsync.errors import RepeatedRequestError
from fairsync.ledger import MemoryLedger, SqlLedger
from fairsync.retriever import FairRetriever
from worlds import make_world

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


WORLD = make_world(1, items=30, horizon=120, tightness=0.8)
USERS = np.where(np.random.default_rng(0).random((120, 1)) < 0.4, 0.0, WORLD.users)
COLD = is_cold(USERS[:, None])
TERMS: dict[str, Any] = {"k": 4, "floors": WORLD.floors, "horizon": 120}


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def coordinator(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Coordinator]:
    if request.param == "postgres":
        yield request.getfixturevalue("start")(WORLD.catalog, **TERMS)
        return
    n = WORLD.catalog.n_groups
    with MemoryLedger(n) if request.param == "memory" else SqlLedger(tmp_path / "a.db", n) as ledger:
        yield Coordinator(WORLD.catalog, ledger=ledger, **TERMS)


@pytest.mark.parametrize("count", [True, False])
@pytest.mark.parametrize("cold", ["mean", [3, 9, 1, 20, 7], [0.5, 1.0, -1.0, 0.25, 2.0]])
def test_one_front_end_is_a_retriever(cold: Any, count: bool) -> None:
    coordinator = Coordinator(WORLD.catalog, **TERMS)
    front = FrontEnd(WORLD.catalog, coordinator, cold=cold, count_cold=count)
    retriever = FairRetriever(WORLD.catalog, cold=cold, count_cold=count, **TERMS)
    for part in np.array_split(USERS, 9):
        ours, theirs = front.retrieve(part), retriever.retrieve(part)
        assert ours.ids.tolist() == theirs.ids.tolist()
        assert ours.relevance.tolist() == theirs.relevance.tolist()
        assert ours.cold.tolist() == theirs.cold.tolist() == (~part.any(axis=1)).tolist()
    assert coordinator.report().exposures == retriever.report().exposures
    assert coordinator.report().requests == (120 if count else int((~COLD).sum()))
    assert front.cold_requests == int(COLD.sum())
    if count:
        assert coordinator.report().esp == 1


@pytest.mark.parametrize("count", [True, False])
def test_a_repeated_cold_request_gets_the_same_answer_and_mark(coordinator: Coordinator, count: bool) -> None:
    left, right = (FrontEnd(WORLD.catalog, coordinator, count_cold=count) for _ in range(2))
    names: list[str | None] = [*map(str, range(20))]
    found = left.retrieve(USERS[:20], request_ids=names)
    counted = 20 if count else int((~COLD[:20]).sum())
    assert coordinator.report().requests == counted
    right.retrieve(WORLD.users[50:60])  # another mean
    again = right.retrieve(USERS[:20], request_ids=names)
    assert again.ids.tolist() == found.ids.tolist()
    assert again.relevance.tolist() == found.relevance.tolist()
    assert again.cold.tolist() == found.cold.tolist() == COLD[:20].tolist()
    report = coordinator.report()
    assert report.requests == counted + 10
    assert sum(report.exposures.values()) == 4 * (counted + 10)


def test_answers_are_saved_once(coordinator: Coordinator) -> None:
    coordinator.save_answers({"a": b"1", "b": b"2"})
    with pytest.raises(RepeatedRequestError) as refused:
        coordinator.save_answers({"b": b"3", "c": b"4"})
    assert list(refused.value.request_ids) == ["b"]
    assert coordinator.answers(["a", "b", "c"]) == {"a": b"1", "b": b"2"}
    assert coordinator.report().requests == 0


def test_front_ends_that_answer_the_same_cold_request_at_once_agree() -> None:
    """The first that saves has answered; the others give the same answer."""
    coordinator = Coordinator(WORLD.catalog, **TERMS)
    gate, answers = threading.Barrier(4), [list[list[Any]]() for _ in range(4)]

    def work(mine: int) -> None:
        front = FrontEnd(WORLD.catalog, coordinator, count_cold=False)
        front.retrieve(WORLD.users[mine : mine + 1])  # each has a mean of its own
        for number in range(20):
            gate.wait(timeout=240)
            answers[mine] += front.retrieve(np.zeros((2, 5)), request_ids=[f"{number}", None]).ids[:1].tolist()

    threads = [threading.Thread(target=work, args=(mine,)) for mine in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers[0]) == 20
    assert answers[0] == answers[1] == answers[2] == answers[3]
    assert coordinator.report().requests == 4


def test_another_model_has_another_mean() -> None:
    front = FrontEnd(WORLD.catalog, Coordinator(WORLD.catalog, **TERMS), cold=[1, 2])
    front.retrieve(WORLD.users[:9])
    rng = np.random.default_rng(2)
    other = type(WORLD.catalog)(rng.normal(size=(30, 7)), WORLD.catalog.group_of)
    front.replace(other)
    assert front.retrieve(np.zeros((1, 7))).ids[0, :2].tolist() == [1, 2]
    front.replace(other, cold="mean")
    found = front.retrieve(np.zeros((1, 7)), k=1)
    assert found.ids[0, 0] == np.argmax(other.embeddings @ other.embeddings.mean(axis=0))
