"""Backup and restore of a ledger's file, while it is in use and after a crash."""

import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from fairsync.ledger.sqlite_backup import restore

from fairsync.errors import FairSyncError, InvalidInputError
from fairsync.ledger import SqlLedger
from ledger.writing import ENTRY, WRITER


def test_a_backup_is_a_ledger(tmp_path: Path) -> None:
    with SqlLedger(tmp_path / "a.db", 2) as ledger:
        ledger.record([ENTRY], key="x")
        ledger.back_up(tmp_path / "copy.db")
        ledger.record([ENTRY])
    assert not (tmp_path / "copy.db-wal").exists()
    with SqlLedger(tmp_path / "copy.db", 2) as copy:
        assert copy.totals().exposures.tolist() == [1, 2]
        assert not copy.record([ENTRY], key="x")


def test_a_backup_that_fails_leaves_the_one_before(tmp_path: Path) -> None:
    with SqlLedger(tmp_path / "a.db", 2) as ledger:
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
    """After a kill, the last writes are in the log beside the file, and must not get into the restored file."""
    path, copy = tmp_path / "a.db", tmp_path / "copy.db"
    with SqlLedger(path, 2) as ledger:
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
    with SqlLedger(path, 2) as ledger:
        assert ledger.totals().exposures.tolist() == [1, 2]
    assert aside is not None
    with SqlLedger(aside, 2) as ledger:
        assert written <= sum(one.requests for one in [*ledger.past(), ledger.totals()]) - 1 <= written + 1
    assert restore(copy, tmp_path / "new.db")[1] is None
    path.write_text("damaged" * 1000)
    assert restore(copy, path)[0] == summary, "a damaged file is what backups are for"
