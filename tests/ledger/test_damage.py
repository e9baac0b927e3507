"""Counts that cannot be are found."""

import re

import numpy as np
import pytest

from fairsync.ledger import Entry, SqlLedger
from fairsync.ledger.damage import find_damage
from fairsync.ledger.reader import LedgerReader
from ledger.writing import fill

NEGATIVE = (-1).to_bytes(8, "little", signed=True)


def test_a_sound_ledger_has_none(url: str) -> None:
    with SqlLedger(url, 2) as ledger:
        assert ledger.database.run(find_damage, "read") == []
        fill(ledger)
        assert ledger.database.run(find_damage, "read") == []


@pytest.mark.parametrize(
    ("query", "values", "words"),
    [
        ("DELETE FROM horizons", {}, "it has no horizon"),
        ("DELETE FROM horizons WHERE number = 0", {}, "horizons are missing"),
        ("UPDATE horizons SET exposures = :bad WHERE number = 1", {"bad": b"12345"}, "a count of horizon 1 is cut off"),
        ("UPDATE horizons SET impressions = :bad WHERE number = 0", {"bad": b"1"}, "a count of horizon 0 is cut off"),
        ("UPDATE horizons SET exposures = :bad WHERE number = 0", {"bad": NEGATIVE}, "horizon 0 has a negative count"),
        ("UPDATE horizons SET exposures = :bad WHERE number = 0", {"bad": bytes(80)}, "horizon 1 has fewer groups"),
        ("UPDATE horizons SET requests = -1 WHERE number = 0", {}, "the totals of horizon 0 cannot be"),
        ("UPDATE entries SET exposures = :bad", {"bad": bytes(80)}, "has more groups than its horizon"),
        ("UPDATE entries SET exposures = :bad", {"bad": b"1"}, "a count of entry .* is cut off"),
        ("INSERT INTO expired_answers (request_id) VALUES ('r1')", {}, "1 requests have an answer and are expired"),
    ],
)
def test_damage_is_found(url: str, query: str, values: dict[str, bytes], words: str) -> None:
    with SqlLedger(url, 2) as ledger:
        fill(ledger)
        ledger.database.run(lambda tx: tx.execute(query, **values), "exclusive")
    with LedgerReader(url) as reader:
        found = reader.check()
    assert any(re.search(words, one) for one in found), found


def test_of_many_faults_some_are_named(url: str) -> None:
    with SqlLedger(url, 1) as ledger:
        for _ in range(20):
            ledger.record([Entry(np.array([1]), 1, 0.5, 0.0, opens_horizon=True)])
        ledger.database.run(lambda tx: tx.execute("UPDATE horizons SET exposures = :bad", bad=NEGATIVE), "exclusive")
        found = ledger.database.run(find_damage, "read")
    assert len(found) == 6
    assert found[-1] == "and 16 more faults"
