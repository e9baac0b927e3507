"""The ledger in a file: what it has said is recorded is there, whatever happens to the process or the disk."""

import resource
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fairsync.catalog import Catalog
from fairsync.coordination.coordinator import Coordinator
from fairsync.errors import FairSyncError, InvalidInputError, RepeatedRequestError
from fairsync.ledger import Entry, SqliteLedger, sqlite_migrations
from fairsync.ledger.sqlite_backup import back_up, restore

ENTRY = Entry(np.array([1, 2]), 1, 0.5, 0.25, forced=1)

WRITER = """
import sys, numpy as np
from fairsync.ledger import Entry, SqliteLedger
ledger, start = SqliteLedger(sys.argv[1], 2), int(sys.argv[2])
for number in range(start, 10**9):
    opens = number % 50 == 0
    ledger.record([Entry(np.array([1, 2]), 1, 0.5, 0.25, opens_horizon=opens)], key=f"{number}")
    print(number, flush=True)
"""


def test_it_is_there_again(tmp_path: Path) -> None:
    with SqliteLedger(tmp_path / "a.db", 2) as ledger:
        ledger.record([ENTRY, ENTRY], key="x")
        ledger.record([Entry(np.array([5, 0]), 1, 1.0, float("nan"), opens_horizon=True)])
        ledger.save("prices", b"abc")
    with SqliteLedger(tmp_path / "a.db", 2) as ledger:
        assert ledger.totals().exposures.tolist() == [5, 0]
        assert np.isnan(ledger.totals().cost)
        past = ledger.past()[0]
        assert (past.exposures.tolist(), past.requests, past.relevance, past.forced) == ([2, 4], 2, 1.0, 2)
        assert not ledger.record([ENTRY], key="x")
        assert ledger.load("prices") == b"abc"
        ledger.grow(3)
    with SqliteLedger(tmp_path / "a.db", 3) as ledger:
        assert ledger.past()[0].exposures.tolist() == [2, 4, 0]


def test_killed_at_any_moment(tmp_path: Path) -> None:
    """Whatever was acknowledged is there; at most the one entry under way is there besides; saying it again is safe."""
    path, done = tmp_path / "a.db", 0
    rng = np.random.default_rng(0)
    for _ in range(8):
        command = [sys.executable, "-c", WRITER, str(path), str(done + 1)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            for _ in range(int(rng.integers(1, 120))):
                done = int(writer.stdout.readline())
            writer.send_signal(signal.SIGKILL)
            done = max([done, *(int(line) for line in writer.stdout.read().split("\n")[:-1])])
        with SqliteLedger(path, 2) as ledger:
            for number in (done, done + 1):  # the writer does not know whether the last was written
                opens = number % 50 == 0
                ledger.record([Entry(np.array([1, 2]), 1, 0.5, 0.25, opens_horizon=opens)], key=f"{number}")
            done += 1
            totals_list = [*ledger.past(), ledger.totals()]
            assert sum(one.requests for one in totals_list) == done
            assert np.sum([one.exposures for one in totals_list], axis=0).tolist() == [done, 2 * done]
            assert [one.requests for one in totals_list[1:-1]] == [50] * (len(totals_list) - 2)


def test_a_full_disk_changes_nothing(tmp_path: Path) -> None:
    """A limit on the size of files stands in for the disk: writes fail in the same way."""
    path = tmp_path / "a.db"
    with SqliteLedger(path, 2) as ledger:
        ledger.record([ENTRY])
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 4096, hard))
        try:
            with pytest.raises(FairSyncError, match="Nothing was changed"):
                ledger.save("much", bytes(10_000_000))
            for number in range(5000):
                before = ledger.totals()
                try:
                    ledger.record([ENTRY], key=f"{number}")
                except FairSyncError:
                    assert ledger.totals() is before
                    break
            else:
                pytest.fail("the disk never became full")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        count = ledger.totals().requests
        assert ledger.record([ENTRY], key=f"{number}"), "it was not recorded, and now there is room"
    with SqliteLedger(path, 2) as ledger:
        assert ledger.totals().requests == count + 1
        assert ledger.load("much") is None


def test_a_backup_is_a_ledger(tmp_path: Path) -> None:
    with SqliteLedger(tmp_path / "a.db", 2) as ledger:
        ledger.record([ENTRY], key="x")
        ledger.back_up(tmp_path / "copy.db")
        ledger.record([ENTRY])
    assert not (tmp_path / "copy.db-wal").exists()
    with SqliteLedger(tmp_path / "copy.db", 2) as copy:
        assert copy.totals().exposures.tolist() == [1, 2]
        assert not copy.record([ENTRY], key="x")


def test_a_backup_that_fails_leaves_the_one_before(tmp_path: Path) -> None:
    with SqliteLedger(tmp_path / "a.db", 2) as ledger:
        ledger.record([ENTRY])
        ledger.back_up(tmp_path / "copy.db")
        held = (tmp_path / "copy.db").read_bytes()
        ledger.save("much", bytes(1_000_000))
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
        try:
            with pytest.raises(FairSyncError, match="could not be copied"):
                ledger.back_up(tmp_path / "copy.db")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert (tmp_path / "copy.db").read_bytes() == held
        assert sorted(path.name for path in tmp_path.glob("copy*")) == ["copy.db"]
        with pytest.raises(InvalidInputError, match="another name"):
            ledger.back_up(tmp_path / "a.db")


def test_a_restored_file_is_the_backup_and_nothing_else(tmp_path: Path) -> None:
    """A process was killed: what it wrote last is in the log beside the file, and must not come into the restored."""
    path, copy = tmp_path / "a.db", tmp_path / "copy.db"
    with SqliteLedger(path, 2) as ledger:
        ledger.record([ENTRY])
        ledger.back_up(copy)
    with subprocess.Popen([sys.executable, "-c", WRITER, str(path), "1"], stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        lines = [writer.stdout.readline() for _ in range(20)]
        with pytest.raises(FairSyncError, match="in use by another"):
            restore(copy, path)
        writer.send_signal(signal.SIGKILL)
        written = len(lines) + len(writer.stdout.read().split(b"\n")) - 1
    assert Path(f"{path}-wal").stat().st_size > 0
    summary, aside = restore(copy, path)
    assert summary.requests == 1
    with SqliteLedger(path, 2) as ledger:
        assert ledger.totals().exposures.tolist() == [1, 2]
    assert aside is not None
    with SqliteLedger(aside, 2) as ledger:
        assert written <= sum(one.requests for one in [*ledger.past(), ledger.totals()]) - 1 <= written + 1
    assert restore(copy, tmp_path / "new.db")[1] is None
    path.write_text("damaged" * 1000)
    assert restore(copy, path)[0] == summary, "a damaged file is what backups are for"


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
def test_a_file_of_an_older_format_goes_on(tmp_path: Path, late: bool) -> None:
    path = tmp_path / "a.db"
    write_old(path, FORMAT_1, *([FORMAT_1_LATE] if late else []))
    for _ in range(2):  # opened a second time, it is of the present format already
        with SqliteLedger(path, 2) as ledger:
            (first,), now = ledger.past(), ledger.totals()
            assert (first.exposures.tolist(), first.requests, first.forced) == ([3, 7], 5, 1)
            assert np.isnan(first.cost)
            assert (now.exposures.tolist(), now.requests, now.relevance, now.cost) == ([1, 2], 2, 1.5, 0.25)
            assert (now.began, now.impressions is None) == ((60.5, False) if late else (0.0, True))
            assert ledger.load("policy guaranteed") == b"\x01\x02"
            assert ledger.answer("r1") == (b"\x09" if late else None)
            assert not ledger.record([ENTRY], key="lease 7")
    with SqliteLedger(path, 2) as ledger:
        impressions = Entry(
            np.array([1, 2]), 1, 0.5, 0.25, opens_horizon=True, began=99.0, impressions=np.array([1, 0])
        )
        assert ledger.record([ENTRY, impressions], key="new", answers={"r2": b"x"})
        ledger.grow(3)
    with SqliteLedger(path, 3) as ledger:
        assert [one.exposures.tolist() for one in ledger.past()] == [[3, 7, 0], [2, 4, 0]]
        assert ledger.totals().began == 99.0
        assert ledger.answer("r2") == b"x"
    assert back_up(path, tmp_path / "copy.db").format == 2


def test_a_change_of_format_is_made_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.db"
    write_old(path, FORMAT_1)

    def fails(db: sqlite3.Connection) -> None:
        db.execute("DELETE FROM horizons")
        raise sqlite3.OperationalError("database or disk is full")

    with monkeypatch.context() as patched:
        patched.setattr("fairsync.ledger.sqlite_migrations.MIGRATIONS", [*sqlite_migrations.MIGRATIONS, fails])
        with pytest.raises(FairSyncError, match="Nothing was changed"):
            SqliteLedger(path, 2)
    db = sqlite3.connect(path)
    assert db.execute("PRAGMA user_version").fetchone() == (1,)
    assert [row[0] for row in db.execute("SELECT requests FROM horizons")] == [5, 2]
    db.close()
    with SqliteLedger(path, 2) as ledger:
        assert ledger.totals().requests == 2


def test_what_cannot_be_used_is_told(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with SqliteLedger(path, 2):
        with pytest.raises(FairSyncError, match="in use by another"):
            SqliteLedger(path, 2)
        with pytest.raises(InvalidInputError, match="make it first"):
            SqliteLedger(tmp_path / "nowhere" / "a.db", 2)
    with SqliteLedger(path, 3) as ledger, pytest.raises(InvalidInputError, match="another catalog"):
        Coordinator(Catalog(np.eye(3), ["a", "b", "c"]), k=1, ledger=ledger)
    (tmp_path / "text.db").write_text("no database at all, but quite a bit of text" * 100)
    with pytest.raises(InvalidInputError, match="damaged or no ledger"):
        SqliteLedger(tmp_path / "text.db", 2)
    other = sqlite3.connect(tmp_path / "other.db")
    other.execute("CREATE TABLE mine (x)")
    other.close()
    held = (tmp_path / "other.db").read_bytes()
    with pytest.raises(InvalidInputError, match="no ledger"):
        SqliteLedger(tmp_path / "other.db", 2)
    assert (tmp_path / "other.db").read_bytes() == held, "what belongs to others is left as it is"
    later = sqlite3.connect(path)
    later.execute("PRAGMA user_version = 99")
    later.close()
    held = path.read_bytes()
    for use in (lambda: SqliteLedger(path, 2), lambda: restore(path, tmp_path / "new.db")):
        with pytest.raises(InvalidInputError, match=r"later version.*format 99.*update FairSync"):
            use()
    assert path.read_bytes() == held
    assert not (tmp_path / "new.db").exists()
    for script, words in (("DELETE FROM facts", "damaged"), ("DROP TABLE facts", "no ledger")):
        write_old(tmp_path / "broken.db", FORMAT_1, script)
        with pytest.raises(InvalidInputError, match=words):
            SqliteLedger(tmp_path / "broken.db", 2)
        (tmp_path / "broken.db").unlink()


def test_old_answers_are_emptied_and_older_ones_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, number in (("MAX_ANSWERS", 20), ("MAX_KEYS", 50), ("_DELETE_EVERY", 10)):
        monkeypatch.setattr(f"fairsync.ledger.sqlite.{name}", number)
    with SqliteLedger(tmp_path / "a.db", 2) as ledger:
        for number in range(100):
            ledger.record([ENTRY], answers={f"{number}": b"answer"})
        assert [ledger.answer(name) for name in ("10", "60", "75", "85", "99")] == [
            None,
            b"",
            b"",
            b"answer",
            b"answer",
        ]
        with pytest.raises(RepeatedRequestError):
            ledger.record([ENTRY], answers={"60": b"again"})


def test_damaged_counts_are_told(tmp_path: Path) -> None:
    with SqliteLedger(tmp_path / "a.db", 2) as ledger:
        ledger.record([ENTRY])
    other = sqlite3.connect(tmp_path / "a.db")
    other.execute("UPDATE horizons SET exposures = x'0102'")
    other.commit()
    other.close()
    with pytest.raises(InvalidInputError, match="damaged"):
        SqliteLedger(tmp_path / "a.db", 2)
