"""Files of earlier formats are migrated, in one transaction; files of later formats are refused."""

import sqlite3
from pathlib import Path

import numpy as np
import pytest
from fairsync.ledger.sqlite_backup import back_up, restore

from fairsync.errors import FairSyncError, InvalidInputError
from fairsync.ledger import Entry, SqlLedger, sqlite_migrations
from ledger.writing import ENTRY

FORMAT_1 = """
CREATE TABLE horizons (
    number INTEGER PRIMARY KEY, requests INTEGER NOT NULL, relevance REAL NOT NULL, cost REAL, forced INTEGER NOT NULL,
    exposures BLOB NOT NULL
);
CREATE TABLE receipts (number INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT NOT NULL UNIQUE);
CREATE TABLE kept (name TEXT PRIMARY KEY, value BLOB NOT NULL);
CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL);
INSERT INTO facts VALUES ('groups', '2');
INSERT INTO horizons VALUES (0, 5, 2.5, NULL, 1, x'03000000000000000700000000000000');
INSERT INTO horizons VALUES (1, 2, 1.5, 0.25, 0, x'01000000000000000200000000000000');
INSERT INTO receipts (key) VALUES ('lease 7');
INSERT INTO kept VALUES ('policy guaranteed', x'0102');
PRAGMA user_version = 1;
"""


# Files of format 1 were also written with what is new in format 2.
FORMAT_1_LATE = """
ALTER TABLE horizons RENAME TO old;
CREATE TABLE horizons (
    number INTEGER PRIMARY KEY, requests INTEGER NOT NULL, relevance REAL NOT NULL, cost REAL, forced INTEGER NOT NULL,
    began REAL NOT NULL, exposures BLOB NOT NULL, shown BLOB
);
INSERT INTO horizons SELECT number, requests, relevance, cost, forced, 60.5 * number, exposures, exposures FROM old;
DROP TABLE old;
CREATE TABLE answers (number INTEGER PRIMARY KEY AUTOINCREMENT, request TEXT NOT NULL UNIQUE, answer BLOB NOT NULL);
INSERT INTO answers (request, answer) VALUES ('r1', x'09');
"""


def write_old(path: Path, *scripts: str) -> None:
    db = sqlite3.connect(path)
    for script in scripts:
        db.executescript(script)
    db.close()


@pytest.mark.parametrize("late", [False, True])
def test_a_file_of_an_older_format_is_migrated(tmp_path: Path, late: bool) -> None:
    path = tmp_path / "a.db"
    write_old(path, FORMAT_1, *([FORMAT_1_LATE] if late else []))
    for _ in range(2):  # the second time, it has the current format
        with SqlLedger(path, 2) as ledger:
            (first,), now = ledger.past(), ledger.totals()
            assert (first.exposures.tolist(), first.requests, first.forced) == ([3, 7], 5, 1)
            assert np.isnan(first.cost)
            assert (now.exposures.tolist(), now.requests, now.relevance, now.cost) == ([1, 2], 2, 1.5, 0.25)
            assert (now.began, now.impressions is None) == ((60.5, False) if late else (0.0, True))
            assert ledger.load("policy guaranteed") == b"\x01\x02"
            assert ledger.answer("r1") == (b"\x09" if late else None)
            assert not ledger.record([ENTRY], key="lease 7")
    with SqlLedger(path, 2) as ledger:
        impressions = Entry(
            np.array([1, 2]), 1, 0.5, 0.25, opens_horizon=True, began=99.0, impressions=np.array([1, 0])
        )
        assert ledger.record([ENTRY, impressions], key="new", answers={"r2": b"x"})
        ledger.grow(3)
    with SqlLedger(path, 3) as ledger:
        assert [one.exposures.tolist() for one in ledger.past()] == [[3, 7, 0], [2, 4, 0]]
        assert ledger.totals().began == 99.0
        assert ledger.answer("r2") == b"x"
    assert back_up(path, tmp_path / "copy.db").format == 2


def test_a_migration_is_atomic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.db"
    write_old(path, FORMAT_1)

    def fails(db: sqlite3.Connection) -> None:
        db.execute("DELETE FROM horizons")
        raise sqlite3.OperationalError("database or disk is full")

    with monkeypatch.context() as patched:
        patched.setattr("fairsync.ledger.sqlite_migrations.MIGRATIONS", [*sqlite_migrations.MIGRATIONS, fails])
        with pytest.raises(FairSyncError, match="Nothing was changed"):
            SqlLedger(path, 2)
    db = sqlite3.connect(path)
    assert db.execute("PRAGMA user_version").fetchone() == (1,)
    assert [row[0] for row in db.execute("SELECT requests FROM horizons")] == [5, 2]
    db.close()
    with SqlLedger(path, 2) as ledger:
        assert ledger.totals().requests == 2


def test_a_file_of_a_later_format_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    SqlLedger(path, 2).close()
    later = sqlite3.connect(path)
    later.execute("PRAGMA user_version = 99")
    later.close()
    held = path.read_bytes()
    for use in (lambda: SqlLedger(path, 2), lambda: restore(path, tmp_path / "new.db")):
        with pytest.raises(InvalidInputError, match=r"later version.*format 99.*update FairSync"):
            use()
    assert path.read_bytes() == held
    assert not (tmp_path / "new.db").exists()


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    for script, words in (("DELETE FROM facts", "damaged"), ("DROP TABLE facts", "no ledger")):
        write_old(tmp_path / "broken.db", FORMAT_1, script)
        with pytest.raises(InvalidInputError, match=words):
            SqlLedger(tmp_path / "broken.db", 2)
        (tmp_path / "broken.db").unlink()
