"""The contract of all ledgers."""

import copy
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from coordination.valkey_server import ValkeyServer
from fairsync.coordination.redis.ledger import RedisLedger
from fairsync.errors import RepeatedRequestError
from fairsync.ledger import Entry, Ledger, MemoryLedger, SqlLedger
from fairsync.ledger.base import MAX_KEYS

LEDGERS: dict[str, Callable[[Path, int], Ledger]] = {
    "memory": lambda _, n_groups: MemoryLedger(n_groups),
    "sqlite": lambda folder, n_groups: SqlLedger(folder / "exposures.db", n_groups),
}


@pytest.fixture(scope="module")
def server() -> Iterator[ValkeyServer]:
    with ValkeyServer() as running:
        yield running


@pytest.fixture(params=[*sorted(LEDGERS), "redis"])
def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ledger]:
    if request.param == "redis":
        made: Ledger = RedisLedger(request.getfixturevalue("server").url, 3, name=tmp_path.name)
    else:
        made = LEDGERS[str(request.param)](tmp_path, 3)
    yield made
    made.close()


def entry(*counts: int, requests: int = 1, opens_horizon: bool = False) -> Entry:
    return Entry(np.array(counts), requests, float(sum(counts)), 0.5, forced=1, opens_horizon=opens_horizon)


def test_it_starts_empty(ledger: Ledger) -> None:
    assert ledger.totals().exposures.tolist() == [0, 0, 0]
    assert ledger.totals().requests == 0
    assert list(ledger.past()) == []


def test_it_adds_up(ledger: Ledger) -> None:
    ledger.record([entry(1, 2, 0), entry(0, 1, 4, requests=3)])
    ledger.record([])
    ledger.record([entry(0, 0, 1)])
    totals = ledger.totals()
    assert totals.exposures.tolist() == [1, 3, 5]
    assert (totals.requests, totals.relevance, totals.cost, totals.forced) == (5, 9.0, 1.5, 3)


def test_horizons_follow_each_other(ledger: Ledger) -> None:
    """Also several within one call."""
    ledger.record([entry(1, 0, 0)])
    ledger.record([entry(2, 0, 0), entry(3, 0, 0, opens_horizon=True), entry(4, 0, 0, opens_horizon=True)])
    assert ledger.totals().exposures.tolist() == [4, 0, 0]
    assert [past.exposures.tolist() for past in ledger.past()] == [[3, 0, 0], [3, 0, 0]]


def test_totals_are_immutable(ledger: Ledger) -> None:
    before = ledger.totals()
    ledger.record([entry(1, 1, 1)])
    assert before.exposures.tolist() == [0, 0, 0]


def test_groups_may_be_added(ledger: Ledger) -> None:
    ledger.record([entry(1, 0, 0), entry(2, 0, 0, opens_horizon=True)])
    ledger.grow(5)
    assert ledger.totals().exposures.tolist() == [2, 0, 0, 0, 0]
    assert [past.exposures.tolist() for past in ledger.past()] == [[1, 0, 0, 0, 0]]
    ledger.record([entry(0, 0, 0, 0, 3), entry(0, 0, 0, 1, 0, opens_horizon=True)])
    assert ledger.totals().exposures.tolist() == [0, 0, 0, 1, 0]
    assert ledger.past()[-1].exposures.tolist() == [2, 0, 0, 0, 3]


def test_writes_are_idempotent_by_key(ledger: Ledger) -> None:
    assert ledger.record([entry(1, 0, 0)], key="one")
    assert ledger.record([entry(2, 0, 0)], key="two")
    assert not ledger.record([entry(1, 0, 0)], key="one")
    assert not ledger.record([entry(9, 9, 9, opens_horizon=True)], key="two")
    assert ledger.record([entry(0, 0, 5)])
    assert ledger.record([entry(0, 0, 5)]), "without a key, nothing tells them apart"
    assert ledger.totals().exposures.tolist() == [3, 0, 10]
    assert list(ledger.past()) == []


def test_a_cost_that_was_not_measured_stays_unknown(ledger: Ledger) -> None:
    ledger.record([Entry(np.array([1, 0, 0]), 1, 1.0, float("nan")), entry(1, 0, 0, opens_horizon=True)])
    assert np.isnan(ledger.past()[0].cost)
    assert ledger.totals().cost == 0.5


def test_values_can_be_saved_beside_the_record(ledger: Ledger) -> None:
    assert ledger.load("prices") is None
    ledger.save("prices", b"old")
    ledger.save("prices", b"\x00new")
    ledger.save("forecast", b"")
    assert (ledger.load("prices"), ledger.load("forecast")) == (b"\x00new", b"")


def test_answers_are_saved_by_request_id(ledger: Ledger) -> None:
    assert ledger.answer("a") is None
    assert ledger.record([entry(1, 0, 0)], key="one", answers={"a": b"first", "b": b""})
    assert (ledger.answer("a"), ledger.answer("b"), ledger.answer("c")) == (b"first", b"", None)
    with pytest.raises(RepeatedRequestError) as raised:
        ledger.record([entry(5, 5, 5)], key="two", answers={"c": b"new", "a": b"other"})
    assert raised.value.request_ids == ("a",)
    assert ledger.totals().exposures.tolist() == [1, 0, 0], "nothing of it is recorded"
    assert (ledger.answer("a"), ledger.answer("c")) == (b"first", None)
    assert ledger.record([entry(0, 1, 0)], key="two", answers={"c": b"new"}), "nor its key"


def test_closing_twice_changes_nothing(ledger: Ledger) -> None:
    ledger.record([entry(1, 2, 0)])
    ledger.close()
    ledger.close()


def test_it_is_a_context_manager(tmp_path: Path) -> None:
    for make in (lambda: MemoryLedger(3), lambda: SqlLedger(tmp_path / "exposures.db", 3)):
        with make() as ledger:
            ledger.record([entry(1, 2, 0)])
            assert ledger.totals().exposures.tolist() == [1, 2, 0]


def test_a_copy_works_or_says_what_to_use(tmp_path: Path) -> None:
    memory = MemoryLedger(3)
    memory.record([entry(1, 2, 0)])
    for copied in (copy.deepcopy(memory), pickle.loads(pickle.dumps(memory))):
        copied.record([entry(1, 0, 0)])
        assert copied.totals().exposures.tolist() == [2, 2, 0]
    assert memory.totals().exposures.tolist() == [1, 2, 0]
    with SqlLedger(tmp_path / "exposures.db", 3) as file:
        for copying in (copy.deepcopy, pickle.dumps):
            with pytest.raises(TypeError, match=r"open the file again after close\(\), or write a copy with back_up"):
                copying(file)


def test_impressions_and_the_start_of_a_horizon(ledger: Ledger) -> None:
    ledger.record([entry(1, 0, 0)])
    assert ledger.totals().impressions is None
    nothing = np.zeros(3, dtype=np.int64)
    impressions = Entry(nothing, 0, 0.0, 0.0, impressions=np.array([0, 2, 0]))
    opens = Entry(nothing, 1, 0.0, 0.0, opens_horizon=True, began=1234.5)
    ledger.record([impressions, impressions, opens, impressions])
    totals, past = ledger.totals(), ledger.past()[0]
    assert totals.impressions is not None
    assert past.impressions is not None
    assert (totals.impressions.tolist(), totals.began) == ([0, 2, 0], 1234.5)
    assert (past.impressions.tolist(), past.exposures.tolist(), past.began) == ([0, 4, 0], [1, 0, 0], 0.0)


def test_the_latest_keys_are_known() -> None:
    """Only in memory: the rule is the same everywhere, and a disk would take minutes."""
    ledger = MemoryLedger(1)
    for number in range(MAX_KEYS + 10):
        ledger.record([], key=str(number))
    assert ledger.record([], key="5")
    assert not ledger.record([], key=str(MAX_KEYS))
