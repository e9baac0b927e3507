"""The lock on a ledger's file: one holder at a time, until it is released or its process is killed."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fairsync.errors import FairSyncError
from fairsync.ledger.file_lock import FileLock
from ledger.writing import WRITER


def test_one_holder_at_a_time(tmp_path: Path) -> None:
    lock = FileLock(tmp_path / "a.db")
    with pytest.raises(FairSyncError, match=r"a.db is open in this process: call close\(\) on the retriever"):
        FileLock(tmp_path / "a.db")
    FileLock(tmp_path / "b.db").release()
    lock.release()
    FileLock(tmp_path / "a.db").release()


def test_a_process_that_is_killed_holds_it_no_longer(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with subprocess.Popen([sys.executable, "-c", WRITER, str(path), "1"], stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        writer.stdout.readline()
        with pytest.raises(FairSyncError, match="in use by another process"):
            FileLock(path)
        writer.send_signal(signal.SIGKILL)
    FileLock(path).release()


def test_a_lock_that_was_released_here_is_known_as_that_of_another_process(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    FileLock(path).release()
    with subprocess.Popen([sys.executable, "-c", WRITER, str(path), "1"], stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        writer.stdout.readline()
        with pytest.raises(FairSyncError, match="in use by another process"):
            FileLock(path)
        writer.kill()
