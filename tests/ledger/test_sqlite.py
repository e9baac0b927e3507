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
from fairsync.coordinator import Coordinator
from fairsync.errors import FairSyncError, InvalidInputError, RepeatedRequestError
from fairsync.ledger import Entry, SqliteLedger

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
        ledger.keep("prices", b"abc")
    with SqliteLedger(tmp_path / "a.db", 2) as ledger:
        assert ledger.standing().exposures.tolist() == [5, 0]
        assert np.isnan(ledger.standing().cost)
        past = ledger.past()[0]
        assert (past.exposures.tolist(), past.requests, past.relevance, past.forced) == ([2, 4], 2, 1.0, 2)
        assert not ledger.record([ENTRY], key="x")
        assert ledger.kept("prices") == b"abc"
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
            standings = [*ledger.past(), ledger.standing()]
            assert sum(one.requests for one in standings) == done
            assert np.sum([one.exposures for one in standings], axis=0).tolist() == [done, 2 * done]
            assert [one.requests for one in standings[1:-1]] == [50] * (len(standings) - 2)


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
                ledger.keep("much", bytes(10_000_000))
            for number in range(5000):
                before = ledger.standing()
                try:
                    ledger.record([ENTRY], key=f"{number}")
                except FairSyncError:
                    assert ledger.standing() is before
                    break
            else:
                pytest.fail("the disk never became full")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        count = ledger.standing().requests
        assert ledger.record([ENTRY], key=f"{number}"), "it was not recorded, and now there is room"
    with SqliteLedger(path, 2) as ledger:
        assert ledger.standing().requests == count + 1
        assert ledger.kept("much") is None


def test_a_backup_is_a_ledger(tmp_path: Path) -> None:
    with SqliteLedger(tmp_path / "a.db", 2) as ledger:
        ledger.record([ENTRY], key="x")
        ledger.back_up(tmp_path / "copy.db")
        ledger.record([ENTRY])
    assert not (tmp_path / "copy.db-wal").exists()
    with SqliteLedger(tmp_path / "copy.db", 2) as copy:
        assert copy.standing().exposures.tolist() == [1, 2]
        assert not copy.record([ENTRY], key="x")


def test_what_cannot_be_used_is_told(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with SqliteLedger(path, 2):
        with pytest.raises(FairSyncError, match="in use by another"):
            SqliteLedger(path, 2)
        with pytest.raises(InvalidInputError, match="make it first"):
            SqliteLedger(tmp_path / "nowhere" / "a.db", 2)
    with SqliteLedger(path, 3) as ledger, pytest.raises(InvalidInputError, match="another catalog"):
        Coordinator(Catalog(np.eye(3), ["a", "b", "c"]), 1, ledger=ledger)
    (tmp_path / "text.db").write_text("no database at all, but quite a bit of text" * 100)
    with pytest.raises(InvalidInputError, match="damaged or no ledger"):
        SqliteLedger(tmp_path / "text.db", 2)
    other = sqlite3.connect(tmp_path / "other.db")
    other.execute("CREATE TABLE mine (x)")
    other.close()
    with pytest.raises(InvalidInputError, match="no ledger"):
        SqliteLedger(tmp_path / "other.db", 2)
    later = sqlite3.connect(path)
    later.execute("PRAGMA user_version = 99")
    later.close()
    with pytest.raises(InvalidInputError, match="update FairSync"):
        SqliteLedger(path, 2)


def test_old_answers_are_emptied_and_older_ones_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, number in (("ANSWERS_KEPT", 20), ("KEYS_KEPT", 50), ("_THINNED_EVERY", 10)):
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
