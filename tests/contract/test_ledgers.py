"""The contract of all ledgers: in memory, in SQLite and in Postgres."""

import copy
import pickle
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fairsync.errors import RepeatedRequestError
from fairsync.ledger import Entry, Ledger, MemoryLedger, Retention, SqlLedger, open_ledger
from fairsync.ledger.database import Transaction

Opener = Callable[..., Ledger]


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Opener]:
    """A function that opens the ledger of a test."""
    url = {"memory": "memory://", "sqlite": f"sqlite:///{tmp_path}/exposures.db"}.get(request.param)
    if url is None:
        url = request.getfixturevalue("postgres").schema(f"ledger_{secrets.token_hex(8)}")
    made: list[Ledger] = []

    def open_it(**settings: Any) -> Ledger:
        made.append(open_ledger(url, 3, **settings))
        return made[-1]

    yield open_it
    for ledger in made:
        ledger.close()


@pytest.fixture
def ledger(opened: Opener) -> Ledger:
    return opened()


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


def test_many_entries_add_up(ledger: Ledger) -> None:
    """Now and then, stored entries are added to the stored totals."""
    rng, plain = np.random.default_rng(0), np.zeros((1, 3), dtype=np.int64)
    for number in range(100):
        counts, opens = rng.integers(0, 9, 3), number % 45 == 44
        ledger.record([entry(*counts.tolist(), opens_horizon=opens)], key=f"{number}")
        plain = np.concatenate([plain, np.zeros((1, 3), dtype=np.int64)]) if opens else plain
        plain[-1] += counts
        assert ledger.totals().exposures.tolist() == plain[-1].tolist()
    assert [one.exposures.tolist() for one in ledger.past()] == plain[:-1].tolist()


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
    assert ledger.answers(["a"]) == {}
    assert ledger.answers([]) == {}
    assert ledger.record([entry(1, 0, 0)], key="one", answers={"a": b"first", "b": b""})
    assert ledger.answers(["a", "b", "c", "a"]) == {"a": b"first", "b": b""}
    with pytest.raises(RepeatedRequestError) as raised:
        ledger.record([entry(5, 5, 5)], key="two", answers={"c": b"new", "a": b"other"})
    assert raised.value.request_ids == ("a",)
    assert ledger.totals().exposures.tolist() == [1, 0, 0], "nothing of it is recorded"
    assert ledger.answers(["a", "c"]) == {"a": b"first"}
    assert ledger.record([entry(0, 1, 0)], key="two", answers={"c": b"new"}), "nor its key"


@pytest.mark.parametrize(
    "name", ["'; DROP TABLE answers; --", "%s %(a)s", "{ids} :ids", 'q"uo\\te', "é 漢 🎁", "a" * 500]
)
def test_any_text_is_an_id(ledger: Ledger, name: str) -> None:
    assert ledger.record([entry(1, 0, 0)], key=name, answers={name: b"x"})
    assert not ledger.record([entry(1, 0, 0)], key=name)
    ledger.save(name, b"y")
    assert (ledger.answers([name]), ledger.load(name)) == ({name: b"x"}, b"y")


def test_many_answers_are_looked_up_in_one_query(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"request {number}" for number in range(3000)]
    ledger.record([entry(1, 0, 0)], answers={name: name.encode() for name in names})
    queries: list[str] = []
    if isinstance(ledger, SqlLedger):
        database, execute = ledger.database, ledger.database.execute  # type: ignore[attr-defined]

        def counted(query: str, /, **values: object) -> list[tuple[Any, ...]]:
            queries.append(query)
            found: list[tuple[Any, ...]] = execute(query, **values)
            return found

        monkeypatch.setattr(database, "execute", counted)
    found = ledger.answers([*names, "unknown"])
    assert found == {name: name.encode() for name in names}
    assert len(queries) == isinstance(ledger, SqlLedger)


def test_an_answer_too_old_to_be_saved_is_empty_and_known(opened: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairsync.ledger.sql_ledger.DELETE_EVERY", 1)
    ledger = opened(retention=Retention(max_bytes=1000, max_ids=20))
    for number in range(100):
        ledger.record([entry(1, 0, 0)], key=f"key {number}", answers={f"{number}": bytes(100)})
    found = ledger.answers([f"{number}" for number in range(100)])
    assert len(found) == 30
    assert {number for number in range(100) if found.get(f"{number}")} == set(range(90, 100))
    assert {number for number in range(100) if found.get(f"{number}") == b""} == set(range(70, 90))
    with pytest.raises(RepeatedRequestError):
        ledger.record([entry(1, 0, 0)], answers={"75": b"again"})
    assert not ledger.record([entry(1, 0, 0)], key="key 85")
    assert ledger.record([entry(1, 0, 0)], key="key 5"), "the latest 20 are known"


def test_closing_twice_changes_nothing(ledger: Ledger) -> None:
    ledger.record([entry(1, 2, 0)])
    ledger.close()
    ledger.close()


def test_it_is_a_context_manager_and_continues(opened: Opener) -> None:
    with opened() as ledger:  # type: ignore[attr-defined]
        ledger.record([entry(1, 2, 0)], key="one", answers={"a": b"x"})
        ledger.save("prices", b"abc")
        assert ledger.totals().exposures.tolist() == [1, 2, 0]
    if isinstance(ledger, SqlLedger):
        again = opened()
        assert again.totals().exposures.tolist() == [1, 2, 0]
        assert (again.load("prices"), again.answers(["a"])) == (b"abc", {"a": b"x"})
        assert not again.record([entry(1, 2, 0)], key="one")


def test_a_copy_works_or_says_what_to_use(ledger: Ledger) -> None:
    ledger.record([entry(1, 2, 0)])
    ways: list[Callable[[Any], Any]] = [copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))]
    for copying in ways:
        if not isinstance(ledger, MemoryLedger):
            with pytest.raises(TypeError, match=r"open it again after close\(\), or write a copy with .*back_up"):
                copying(ledger)
            continue
        copied = copying(ledger)
        copied.record([entry(1, 0, 0)])
        assert copied.totals().exposures.tolist() == [2, 2, 0]
    assert ledger.totals().exposures.tolist() == [1, 2, 0]


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


def test_an_action_that_fails_changes_nothing(ledger: Ledger) -> None:
    if isinstance(ledger, MemoryLedger):
        return

    assert isinstance(ledger, SqlLedger)

    def fails(transaction: Transaction) -> None:
        transaction.insert("keys", {"key": ["key"]}, at="recorded_at")
        transaction.insert("answers", {"request_id": ["a"], "answer": [b"x"]}, at="answered_at")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        ledger.database.run(fails, "exclusive")
    assert ledger.totals().requests == 0
    assert ledger.answers(["a"]) == {}
    assert ledger.record([entry(1, 2, 3)], "key", {"a": b"x"})


def test_it_knows_the_keys_of_writes(ledger: Ledger) -> None:
    ledger.record([entry(1, 0)], "one")
    assert (ledger.knows("one"), ledger.knows("two")) == (True, False)
    assert ledger.record([entry(1, 0)], "two"), "asking for a key does not take it"
