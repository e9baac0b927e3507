"""The ledger in a file: acknowledged entries survive a kill, a full disk and a restart."""

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
from fairsync.ledger import Entry, SqlLedger
from ledger.writing import ENTRY, WRITER


def test_it_is_durable(tmp_path: Path) -> None:
    with SqlLedger(tmp_path / "a.db", 2) as ledger:
        ledger.record([ENTRY, ENTRY], key="x")
        ledger.record([Entry(np.array([5, 0]), 1, 1.0, float("nan"), opens_horizon=True)])
        ledger.save("prices", b"abc")
    with SqlLedger(tmp_path / "a.db", 2) as ledger:
        assert ledger.totals().exposures.tolist() == [5, 0]
        assert np.isnan(ledger.totals().cost)
        past = ledger.past()[0]
        assert (past.exposures.tolist(), past.requests, past.relevance, past.forced) == ([2, 4], 2, 1.0, 2)
        assert not ledger.record([ENTRY], key="x")
        assert ledger.load("prices") == b"abc"
        ledger.grow(3)
    with SqlLedger(tmp_path / "a.db", 3) as ledger:
        assert ledger.past()[0].exposures.tolist() == [2, 4, 0]


def test_killed_at_any_moment(tmp_path: Path) -> None:
    """Acknowledged entries are there, and at most the one under way besides; repeating that one is safe."""
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
        with SqlLedger(path, 2) as ledger:
            for number in (done, done + 1):  # the writer does not know the outcome of its last write
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
    with SqlLedger(path, 2) as ledger:
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
    with SqlLedger(path, 2) as ledger:
        assert ledger.totals().requests == count + 1
        assert ledger.load("much") is None


def test_unusable_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with SqlLedger(path, 2):
        with pytest.raises(FairSyncError, match="in use by another"):
            SqlLedger(path, 2)
        with pytest.raises(InvalidInputError, match="make it first"):
            SqlLedger(tmp_path / "nowhere" / "a.db", 2)
    with SqlLedger(path, 3) as ledger, pytest.raises(InvalidInputError, match="another catalog"):
        Coordinator(Catalog(np.eye(3), ["a", "b", "c"]), k=1, ledger=ledger)
    (tmp_path / "text.db").write_text("no database at all, but quite a bit of text" * 100)
    with pytest.raises(InvalidInputError, match="damaged or no ledger"):
        SqlLedger(tmp_path / "text.db", 2)
    other = sqlite3.connect(tmp_path / "other.db")
    other.execute("CREATE TABLE mine (x)")
    other.close()
    held = (tmp_path / "other.db").read_bytes()
    with pytest.raises(InvalidInputError, match="no ledger"):
        SqlLedger(tmp_path / "other.db", 2)
    assert (tmp_path / "other.db").read_bytes() == held, "a file of another program is left as it is"


def test_old_answers_are_emptied_and_older_ones_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, number in (("MAX_ANSWERS", 20), ("MAX_KEYS", 50), ("DELETE_EVERY", 10)):
        monkeypatch.setattr(f"fairsync.ledger.sqlite.{name}", number)
    with SqlLedger(tmp_path / "a.db", 2) as ledger:
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


def test_damaged_counts_are_refused(tmp_path: Path) -> None:
    with SqlLedger(tmp_path / "a.db", 2) as ledger:
        ledger.record([ENTRY])
    other = sqlite3.connect(tmp_path / "a.db")
    other.execute("UPDATE horizons SET exposures = x'0102'")
    other.commit()
    other.close()
    with pytest.raises(InvalidInputError, match="damaged"):
        SqlLedger(tmp_path / "a.db", 2)
