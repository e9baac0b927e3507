"""Answers and idempotency keys are saved for a time, up to a size and up to a number."""

import pytest

from fairsync.errors import InvalidInputError, RepeatedRequestError
from fairsync.ledger import Retention, SqlLedger
from fairsync.ledger.retention import delete_old
from ledger.writing import ENTRY, content


def record(ledger: SqlLedger, numbers: range) -> None:
    for number in numbers:
        ledger.record([ENTRY], key=f"key {number}", answers={f"{number}": bytes(100)})


def make_older(ledger: SqlLedger, table: str, column: str, condition: str, seconds: float) -> None:
    query = f"UPDATE {table} SET {column} = {column} - {seconds} WHERE {condition}"
    ledger.database.run(lambda tx: tx.execute(query), "exclusive")


def delete(ledger: SqlLedger, retention: Retention) -> None:
    ledger.database.run(lambda tx: delete_old(tx, retention), "exclusive")


def kept(ledger: SqlLedger) -> dict[str, int]:
    return {table: len(content(ledger)[table]) for table in ("answers", "expired_answers", "keys")}


def test_by_time(url: str) -> None:
    with SqlLedger(url, 2) as ledger:
        record(ledger, range(10))
        make_older(ledger, "answers", "answered_at", "number <= 4", 1000)
        make_older(ledger, "keys", "recorded_at", "number <= 3", 1000)
        delete(ledger, Retention(seconds=2000))
        assert kept(ledger) == {"answers": 10, "expired_answers": 0, "keys": 10}
        delete(ledger, Retention(seconds=500))
        assert kept(ledger) == {"answers": 6, "expired_answers": 4, "keys": 7}
        assert ledger.answers(["3", "4", "unknown"]) == {"3": b"", "4": bytes(100)}
        with pytest.raises(RepeatedRequestError):
            ledger.record([ENTRY], answers={"3": b"again"})


def test_by_size(url: str) -> None:
    with SqlLedger(url, 2) as ledger:
        record(ledger, range(50))
        delete(ledger, Retention(max_bytes=2000))
        assert kept(ledger) == {"answers": 20, "expired_answers": 30, "keys": 50}
        record(ledger, range(50, 60))
        delete(ledger, Retention(max_bytes=2000))
        assert kept(ledger) == {"answers": 20, "expired_answers": 40, "keys": 60}


def test_by_number(url: str) -> None:
    with SqlLedger(url, 2) as ledger:
        record(ledger, range(50))
        delete(ledger, Retention(max_bytes=1000, max_ids=15))
        assert kept(ledger) == {"answers": 10, "expired_answers": 15, "keys": 15}
        assert sorted(map(int, ledger.answers([f"{number}" for number in range(50)]))) == list(range(25, 50))
        assert ledger.record([ENTRY], key="key 34")
        assert not ledger.record([ENTRY], key="key 35")


def test_an_answer_that_is_out_of_order_stays_known(url: str) -> None:
    """Clocks are set back, and transactions overlap: an older answer may have a larger number."""
    with SqlLedger(url, 2) as ledger:
        record(ledger, range(3))
        make_older(ledger, "answers", "answered_at", "request_id = '1'", 1000)
        delete(ledger, Retention(seconds=500))
        assert ledger.answers(["0", "1", "2"]) == {"0": b"", "1": b"", "2": bytes(100)}
        with pytest.raises(RepeatedRequestError):
            ledger.record([ENTRY], answers={"0": b"again"})


def test_few_at_a_time(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairsync.ledger.retention._MOST_AT_ONCE", 8)
    with SqlLedger(url, 2) as ledger:
        record(ledger, range(30))
        counts = []
        for _ in range(4):
            delete(ledger, Retention(max_bytes=1000, max_ids=25))
            counts.append(kept(ledger))
    assert [one["answers"] for one in counts] == [22, 14, 10, 10]
    assert [one["expired_answers"] for one in counts] == [8, 16, 20, 20]
    assert [one["keys"] for one in counts] == [25, 25, 25, 25]


def test_nothing_to_delete(url: str) -> None:
    with SqlLedger(url, 2) as ledger:
        delete(ledger, Retention(seconds=0.001, max_bytes=1, max_ids=1))
        assert kept(ledger) == {"answers": 0, "expired_answers": 0, "keys": 0}


@pytest.mark.parametrize("settings", [{"seconds": 0}, {"seconds": float("nan")}, {"max_bytes": 0}, {"max_ids": -1}])
def test_a_retention_of_nothing_is_refused(settings: dict[str, float]) -> None:
    with pytest.raises(InvalidInputError, match="positive time, size and number"):
        Retention(**settings)  # type: ignore[arg-type]
