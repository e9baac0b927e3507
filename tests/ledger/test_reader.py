"""A ledger is read while another process writes to it, and in earlier formats."""

import time
from pathlib import Path

import pytest

from fairsync.errors import InvalidInputError
from fairsync.ledger import SqlLedger
from fairsync.ledger.reader import Contents, LedgerReader, Summary
from fairsync.ledger.schema import FORMAT
from ledger.old_formats import OLD, write_old
from ledger.writing import ENTRY, fill


def test_a_ledger_in_use_can_be_read(url: str) -> None:
    began = time.time()
    with SqlLedger(url, 2) as ledger, LedgerReader(url) as reader:
        assert reader.summary() == Summary(FORMAT, 2, 1, 0)
        assert reader.load("service") is None
        fill(ledger)
        assert reader.summary() == Summary(FORMAT, 3, 2, 5)
        assert reader.load("policy guaranteed") == bytes(range(256))
        found = reader.contents()
        assert found.totals is not None
        assert found.totals.exposures.tolist() == [4, 2, 1]
        assert found.totals.impressions is not None
        assert found.totals.impressions.tolist() == [0, 2, 0]
        assert (found.totals.requests, found.totals.began) == (3, 60.5)
        assert (found.answers, found.answer_bytes, found.expired_answers) == (3, 12, 1)
        assert (found.leases, found.items) == (1, 2)
        assert found.answers_since is not None
        assert began - 1 < found.answers_since < time.time() + 1
        assert ledger.record([ENTRY.grown(3)]), "reading locks nothing"


@pytest.mark.parametrize("old", OLD)
def test_earlier_formats_are_read_and_not_migrated(tmp_path: Path, old: str) -> None:
    path = write_old(tmp_path / "a.db", OLD[old])
    held = path.read_bytes()
    with LedgerReader(path) as reader:
        found = reader.contents()
        assert reader.check() == []
        assert reader.load("policy guaranteed") == b"\1\2"
    assert found.totals is not None
    assert (found.totals.exposures.tolist(), found.totals.requests) == ([1, 2], 2)
    late = old != "1"
    assert (found.answers, found.answer_bytes, found.expired_answers) == ((1, 1, 1) if late else (0, 0, 0))
    assert found.answers_since is None
    assert path.read_bytes() == held


def test_where_there_is_no_ledger(url: str) -> None:
    if url.startswith("postgresql"):
        with LedgerReader(url) as reader:
            assert reader.contents() == Contents(Summary(0, 0, 0, 0), None)
            assert reader.load("service") is None
            assert reader.check() == []
    else:
        with pytest.raises(InvalidInputError, match=r"there is no file .*: check the path"):
            LedgerReader(url)
