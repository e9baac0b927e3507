"""The ledger in SQL: acknowledged entries survive a kill; ledgers that cannot be used are refused."""

import signal
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from fairsync.catalog import Catalog
from fairsync.coordination.coordinator import Coordinator
from fairsync.errors import FairSyncError, InvalidInputError
from fairsync.ledger import Entry, SqlLedger
from ledger.writing import ENTRY, WRITER, content, fill, horizons


def test_it_is_durable(url: str) -> None:
    with SqlLedger(url, 2) as ledger:
        ledger.record([ENTRY, ENTRY], key="x")
        ledger.record([Entry(np.array([5, 0]), 1, 1.0, float("nan"), opens_horizon=True)])
        ledger.save("prices", b"abc")
    with SqlLedger(url, 2) as ledger:
        assert ledger.totals().exposures.tolist() == [5, 0]
        assert np.isnan(ledger.totals().cost)
        past = ledger.past()[0]
        assert (past.exposures.tolist(), past.requests, past.relevance, past.forced) == ([2, 4], 2, 1.0, 2)
        assert not ledger.record([ENTRY], key="x")
        assert ledger.load("prices") == b"abc"
        ledger.grow(3)
    with SqlLedger(url, None) as ledger:
        assert ledger.past()[0].exposures.tolist() == [2, 4, 0]


def test_killed_at_any_moment(url: str) -> None:
    """Acknowledged entries are there, and at most the one under way besides; repeating that one is safe."""
    done, rng = 0, np.random.default_rng(0)
    for _ in range(4):
        command = [sys.executable, "-c", WRITER, url, str(done + 1)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            for _ in range(int(rng.integers(1, 120))):
                done = int(writer.stdout.readline())
            with pytest.raises(FairSyncError, match="in use by another process"):
                SqlLedger(url, 2, timeout=0.1)
            writer.send_signal(signal.SIGKILL)
            done = max([done, *(int(line) for line in writer.stdout.read().split("\n")[:-1])])
        with SqlLedger(url, 2) as ledger:
            for number in (done, done + 1):  # the writer does not know the outcome of its last write
                opens = number % 50 == 0
                ledger.record([Entry(np.array([1, 2]), 1, 0.5, 0.25, opens_horizon=opens)], key=f"{number}")
            done += 1
            found = horizons(ledger)
            assert sum(one.requests for one in found) == done
            assert np.sum([one.exposures for one in found], axis=0).tolist() == [done, 2 * done]
            assert [one.requests for one in found[1:-1]] == [50] * (len(found) - 2)


def test_a_single_writer_adds_to_the_totals(url: str) -> None:
    with SqlLedger(url, 2) as ledger:
        for number in range(3):
            ledger.record([ENTRY])
            assert content(ledger)["entries"] == []
            assert ledger.totals().requests == number + 1


def test_entries_of_processes_that_shared_the_ledger_count(url: str) -> None:
    """As in a backup of a ledger in Postgres that is restored to a file."""
    with SqlLedger(url, 2) as ledger:
        fill(ledger)
        before = ledger.totals()
        ledger.record([ENTRY.grown(3)])
        assert ledger.totals().requests == before.requests + 1
        assert len(content(ledger)["entries"]) == 1
        ledger.record([replace(ENTRY.grown(3), opens_horizon=True)])
        assert content(ledger)["entries"] == []
        assert ledger.past()[-1].requests == before.requests + 1
        assert ledger.totals().requests == 1


def test_counts_that_are_cut_off_are_refused(url: str) -> None:
    with SqlLedger(url, 2) as ledger:
        ledger.database.run(lambda tx: tx.execute("UPDATE horizons SET exposures = :cut", cut=b"\1\2"), "exclusive")
        with pytest.raises(InvalidInputError, match=r"a count is cut off. Restore a backup"):
            ledger.totals()
        ledger.database.run(lambda tx: tx.execute("DELETE FROM horizons"), "exclusive")
        with pytest.raises(InvalidInputError, match=r"it has no horizon. Restore a backup"):
            ledger.totals()


def test_a_ledger_that_must_exist(url: str) -> None:
    for _ in range(2):  # the first attempt leaves nothing behind
        with pytest.raises(InvalidInputError, match=r"there is no ledger in .*: check the URL"):
            SqlLedger(url, None)


def test_a_ledger_of_another_catalog_is_refused(url: str) -> None:
    with SqlLedger(url, 3) as ledger, pytest.raises(InvalidInputError, match="another catalog"):
        Coordinator(Catalog(np.eye(2), ["a", "b"]), k=1, ledger=ledger)


def test_only_postgres_is_shared() -> None:
    with pytest.raises(InvalidInputError, match="cannot be shared: it needs Postgres"):
        SqlLedger("exposures.db", 2, shared=True)


def test_a_closed_ledger_says_so(url: str) -> None:
    ledger = SqlLedger(url, 2)
    ledger.close()
    with pytest.raises(FairSyncError, match="closed"):
        ledger.record([ENTRY])
