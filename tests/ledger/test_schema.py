"""Ledgers of earlier formats are migrated in one transaction; those of later formats are refused."""

import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from fairsync.errors import FairSyncError, InvalidInputError
from fairsync.ledger import Entry, SqlLedger, schema
from fairsync.ledger.database import Database, Transaction
from fairsync.ledger.reader import LedgerReader, Summary
from fairsync.ledger.schema import FORMAT, read_schema
from ledger.old_formats import FORMAT_1, LATE, OLD, write_old
from ledger.writing import ENTRY, horizons


def check_old(ledger: SqlLedger, *, late: bool) -> None:
    """Check that a ledger has the content of `old_formats`."""
    first, now = horizons(ledger)
    assert (first.exposures.tolist(), first.requests, first.forced) == ([3, 7], 5, 1)
    assert np.isnan(first.cost)
    assert (now.exposures.tolist(), now.requests, now.relevance, now.cost) == ([1, 2], 2, 1.5, 0.25)
    assert now.began == (60.5 if late else 0.0)
    assert (now.impressions is None) == (not late)
    assert ledger.load("policy guaranteed") == b"\x01\x02"
    assert ledger.answers(["r0", "r1", "r2"]) == ({"r0": b"", "r1": b"\x09"} if late else {})
    assert not ledger.record([ENTRY], key="lease 7")


@pytest.mark.parametrize("old", OLD)
def test_a_file_of_an_earlier_format_is_migrated(tmp_path: Path, old: str) -> None:
    path, late = write_old(tmp_path / "a.db", OLD[old]), old != "1"
    with LedgerReader(path) as reader:
        assert reader.summary() == Summary(int(old[0]), 2, 2, 7), "it can be read before"
        assert reader.load("policy guaranteed") == b"\x01\x02"
    began = time.time()
    for _ in range(2):  # the second time, it has the present format
        with SqlLedger(path, 2) as ledger:
            check_old(ledger, late=late)
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (FORMAT,)
        tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        for table, column in (("keys", "recorded_at"), ("answers", "answered_at")):
            for (at,) in db.execute(f"SELECT {column} FROM {table}"):
                assert began - 1 < at < time.time() + 1
    SqlLedger(tmp_path / "new.db", 2).close()
    with closing(sqlite3.connect(tmp_path / "new.db")) as db:
        assert tables == {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    with SqlLedger(path, 2) as ledger:
        opens = Entry(np.array([1, 2]), 1, 0.5, 0.25, opens_horizon=True, began=99.0, impressions=np.array([1, 0]))
        assert ledger.record([ENTRY, opens], key="new", answers={"r2": b"x"})
        ledger.grow(3)
    with SqlLedger(path, 3) as ledger:
        assert [one.exposures.tolist() for one in ledger.past()] == [[3, 7, 0], [2, 4, 0]]
        assert ledger.totals().began == 99.0
        assert ledger.answers(["r2"]) == {"r2": b"x"}


def test_groups_without_counts_and_ledgers_without_horizons(tmp_path: Path) -> None:
    write_old(tmp_path / "grown.db", OLD["2"], "UPDATE facts SET value = '4'")
    with SqlLedger(tmp_path / "grown.db", 2) as ledger:
        assert [one.exposures.tolist() for one in horizons(ledger)] == [[3, 7, 0, 0], [1, 2, 0, 0]]
    write_old(tmp_path / "new.db", OLD["2"], "DELETE FROM horizons; UPDATE facts SET value = '4'")
    with SqlLedger(tmp_path / "new.db", 2) as ledger:
        assert [one.exposures.tolist() for one in horizons(ledger)] == [[0, 0, 0, 0]]


def test_a_migration_that_fails_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_old(tmp_path / "a.db", OLD["1"])

    def fails(database: Database, transaction: Transaction) -> None:
        transaction.execute("DELETE FROM horizons")
        raise sqlite3.OperationalError("database or disk is full")

    with monkeypatch.context() as patched:
        patched.setitem(schema._MIGRATIONS, 2, fails)
        with pytest.raises(FairSyncError, match="Nothing was changed"):
            SqlLedger(path, 2)
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (1,)
        assert [row[0] for row in db.execute("SELECT requests FROM horizons")] == [5, 2]
    with SqlLedger(path, 2) as ledger:
        check_old(ledger, late=False)


# Migrates copies of a file in processes that are killed at the first, second, ... statement.
_KILLED = """
import os, shutil, signal, sys
from pathlib import Path
from fairsync.ledger import SqlLedger
from fairsync.ledger.sqlite import SqliteDatabase

execute, statements = SqliteDatabase.execute, 0

def killed_at(number):
    def counted(self, query, /, **values):
        global statements
        statements += 1
        if statements == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return execute(self, query, **values)
    return counted

number = 0
while True:
    number += 1
    path = Path(sys.argv[1]).with_name(f"{number}.db")
    shutil.copy(sys.argv[1], path)
    child = os.fork()
    if child == 0:
        SqliteDatabase.execute = killed_at(number)
        SqlLedger(path, 2).close()
        os._exit(0)
    if os.waitpid(child, 0)[1] == 0:
        break
"""


@pytest.mark.parametrize("old", ["1", "2"])
def test_a_migration_that_is_killed_changes_nothing(tmp_path: Path, old: str) -> None:
    """Killed at every statement, of a file that is too large for the memory of SQLite's cache."""
    path = write_old(tmp_path / "a.db", OLD[old])
    with closing(sqlite3.connect(path)) as db, db:
        db.executemany("INSERT INTO receipts (key) VALUES (?)", [(f"{number:0200}",) for number in range(2000)])
        if old == "2":
            db.executemany(
                "INSERT INTO answers (request, answer) VALUES (?, ?)",
                [(f"many {number}", bytes(1500)) for number in range(1200)],
            )
    subprocess.run([sys.executable, "-W", "ignore", "-c", _KILLED, str(path)], check=True)
    migrated = [one for one in sorted(tmp_path.glob("*.db")) if one != path]
    assert len(migrated) > 20
    for one in migrated:
        with LedgerReader(one) as reader:
            assert reader.summary().format in (int(old), FORMAT)
            assert reader.check() == []
        with SqlLedger(one, 2) as ledger:
            check_old(ledger, late=old == "2")
            assert not ledger.record([ENTRY], key=f"{1999:0200}")
            assert len(ledger.answers([f"many {number}" for number in range(1200)])) == (1200 if old == "2" else 0)


def test_a_migration_by_a_process_that_is_killed_from_outside(tmp_path: Path) -> None:
    path = write_old(tmp_path / "a.db", OLD["2"])
    with closing(sqlite3.connect(path)) as db, db:
        db.executemany("INSERT INTO receipts (key) VALUES (?)", [(f"{number:0400}",) for number in range(10_000)])
    program = "import sys; from fairsync.ledger import SqlLedger; print('now', flush=True); SqlLedger(sys.argv[1], 2)"
    for pause in (0.0, 0.05, 0.15):
        with subprocess.Popen([sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(pause)
            process.send_signal(signal.SIGKILL)
        with LedgerReader(path) as reader:
            assert reader.summary() in (Summary(2, 2, 2, 7), Summary(FORMAT, 2, 2, 7))
            assert reader.check() == []
    with SqlLedger(path, 2) as ledger:
        check_old(ledger, late=True)


def test_a_ledger_of_a_later_format_is_refused_and_left_as_it_is(url: str) -> None:
    with SqlLedger(url, 2) as ledger:
        database = ledger.database
        database.run(lambda tx: database.write_format(tx, 99), "exclusive")
    words = r"later version.*format 99.*update FairSync"
    with pytest.raises(InvalidInputError, match=words):
        SqlLedger(url, 2)
    with pytest.raises(InvalidInputError, match=words), LedgerReader(url) as reader:
        reader.summary()


def test_damaged_ledgers_of_earlier_formats_are_refused(tmp_path: Path) -> None:
    for script, words in (
        ("DELETE FROM facts", "damaged: it does not say how many"),
        ("DROP TABLE facts", "no ledger"),
    ):
        path = write_old(tmp_path / "broken.db", FORMAT_1, LATE, script)
        held = path.read_bytes()
        with pytest.raises(InvalidInputError, match=words):
            SqlLedger(path, 2)
        with pytest.raises(InvalidInputError, match=words), LedgerReader(path) as reader:
            reader.summary()
        assert path.read_bytes() == held
        path.unlink()


def test_two_processes_make_one_ledger(url: str) -> None:
    """Only in Postgres do two processes open a ledger at a time."""
    if not url.startswith("postgresql"):
        return
    program = "import sys; from fairsync.ledger import SqlLedger; SqlLedger(sys.argv[1], 2, shared=True); print('made')"
    made = [subprocess.Popen([sys.executable, "-c", program, url], stdout=subprocess.PIPE) for _ in range(3)]
    assert [one.communicate()[0] for one in made] == [b"made\n"] * 3
    with SqlLedger(url, 2) as ledger:
        assert len(horizons(ledger)) == 1


def test_the_schema_has_no_comments() -> None:
    assert "--" not in read_schema()
    assert read_schema().count("CREATE TABLE") == 11
