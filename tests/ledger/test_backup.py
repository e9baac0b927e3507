"""Backup and restore of a ledger in both dialects, while it is in use and after a crash."""

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from fairsync.errors import FairSyncError, InvalidInputError
from fairsync.ledger import Entry, SqlLedger
from fairsync.ledger.backup import back_up, restore
from fairsync.ledger.reader import LedgerReader, Summary
from fairsync.ledger.schema import FORMAT
from ledger.old_formats import OLD, write_old
from ledger.test_schema import check_old
from ledger.test_sqlite import limited_files
from ledger.writing import ENTRY, WRITER, content, fill, horizons, new_schema
from postgres_server import PostgresServer

FILLED = Summary(format=FORMAT, groups=3, horizons=2, requests=5)


def test_a_backup_is_a_ledger_in_one_file(url: str, tmp_path: Path) -> None:
    copy = tmp_path / "backup" / "copy.db"
    copy.parent.mkdir()
    with SqlLedger(url, 2) as ledger:
        fill(ledger)
        held = content(ledger)
        assert back_up(url, copy) == FILLED
        ledger.record([ENTRY.grown(3)], key="later")
        assert [path.name for path in copy.parent.iterdir()] == ["copy.db"]
    with SqlLedger(copy, 3) as restored:
        assert content(restored) == held
        assert restored.database.run(lambda tx: tx.execute("SELECT * FROM leases"), "read") == []
        assert not restored.record([ENTRY.grown(3)], key="first")
        assert restored.record([ENTRY.grown(3)], key="later")


@pytest.mark.parametrize("target", ["sqlite", "postgres"])
def test_a_backup_of_either_is_restored_in_either(
    url: str, target: str, tmp_path: Path, postgres: PostgresServer
) -> None:
    copy, other = tmp_path / "copy.db", new_schema(postgres) if target == "postgres" else f"{tmp_path}/other.db"
    with SqlLedger(url, 2) as ledger:
        fill(ledger)
        held = content(ledger)
        back_up(url, copy)
    before = copy.read_bytes()
    assert restore(copy, other) == (FILLED, None)
    with SqlLedger(other, None) as restored:
        assert content(restored) == held
        assert not restored.record([ENTRY.grown(3)], key="second")
        assert restored.record([ENTRY.grown(3)], key="new", answers={"r4": b"x"}), "numbers continue"
        restored.save("service", b"changed")
        changed = content(restored)
    summary, aside = restore(copy, other)
    assert summary == FILLED
    assert aside is not None
    with SqlLedger(other, None) as restored:
        assert content(restored) == held, "what was recorded since the backup is gone"
    with SqlLedger(postgres.schema(aside) if target == "postgres" else aside, None) as replaced:
        assert content(replaced) == changed, "and is kept under another name"
    assert copy.read_bytes() == before


def test_a_ledger_in_use_is_not_restored(url: str, tmp_path: Path) -> None:
    with SqlLedger(url, 2) as ledger:
        ledger.record([ENTRY])
        back_up(url, tmp_path / "copy.db")
        with pytest.raises(FairSyncError, match=r"in use by another process: stop it first|is open in this process"):
            restore(tmp_path / "copy.db", url)
        ledger.record([ENTRY])
    if url.startswith("postgresql"):
        with SqlLedger(url, 2, shared=True), pytest.raises(FairSyncError, match="in use by another process"):
            restore(tmp_path / "copy.db", url)
    with SqlLedger(url, 2) as ledger:
        assert ledger.totals().requests == 2


def test_backups_while_the_ledger_is_written_to_are_snapshots(url: str, tmp_path: Path) -> None:
    """Each has all that was recorded when it began, and an answer for each request."""
    recorded, stopped = [0], threading.Event()
    with SqlLedger(url, 2) as ledger:

        def write() -> None:
            while not stopped.is_set():
                number = recorded[0] + 1
                opens = number % 20 == 0
                entry = Entry(np.array([1, 2]), 1, 0.5, 0.25, opens_horizon=opens)
                ledger.record([entry], key=f"{number}", answers={f"{number}": b"x" * 50})
                recorded[0] = number

        writer = threading.Thread(target=write)
        writer.start()
        try:
            for number in range(5):
                before = recorded[0]
                summary = back_up(url, tmp_path / "copy.db")
                with SqlLedger(shutil.copy(tmp_path / "copy.db", tmp_path / f"{number}.db"), 2) as copy:
                    found = horizons(copy)
                    requests = sum(one.requests for one in found)
                    assert before <= requests == summary.requests
                    assert np.sum([one.exposures for one in found], axis=0).tolist() == [requests, 2 * requests]
                    assert len(content(copy)["answers"]) == requests
                    assert len(content(copy)["keys"]) == requests
        finally:
            stopped.set()
            writer.join()
    assert recorded[0] > 0


def test_large_ledgers_are_copied_in_pieces(
    url: str, tmp_path: Path, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairsync.ledger.tables._PIECE_BYTES", 2000)
    other = new_schema(postgres)
    with SqlLedger(url, 2) as ledger:
        for number in range(40):
            answers = {f"{number} {part}": bytes([part]) * 37 * part for part in range(10)}
            ledger.record([Entry(np.array([1, 2]), 1, 0.5, 0.25, opens_horizon=number % 3 == 0)], f"{number}", answers)
        ledger.save("large", bytes(100_000))
        held = content(ledger)
        back_up(url, tmp_path / "copy.db")
    restore(tmp_path / "copy.db", other)
    with SqlLedger(other, 2) as restored:
        assert content(restored) == held


def test_a_backup_that_fails_leaves_the_one_before(url: str, tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    with SqlLedger(url, 2) as ledger:
        ledger.record([ENTRY])
        back_up(url, copy)
        held = copy.read_bytes()
        ledger.save("much", bytes(1_000_000))
        with limited_files(200_000), pytest.raises(FairSyncError, match="could not be"):
            back_up(url, copy)
        assert copy.read_bytes() == held
        assert list(tmp_path.glob("*copy*")) == [copy]
        with pytest.raises(InvalidInputError, match="make it first"):
            back_up(url, tmp_path / "nowhere" / "copy.db")


def test_a_ledger_is_not_overwritten_by_a_backup(url: str, tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    with SqlLedger(url, 2):
        with SqlLedger(other, 2) as ledger:
            ledger.record([ENTRY])
            with pytest.raises(InvalidInputError, match="in use as a ledger itself: give the backup another name"):
                back_up(url, other)
        with pytest.raises(InvalidInputError, match="in use as a ledger itself"):
            back_up(url, other)
        back_up(url, tmp_path / "copy.db")
    with pytest.raises(InvalidInputError, match="is the ledger itself: give the backup another name"):
        back_up(tmp_path / "copy.db", tmp_path / "copy.db")
    with pytest.raises(InvalidInputError, match="is the ledger itself: give a backup of it"):
        restore(other, other)


@pytest.mark.parametrize("old", OLD)
def test_backups_of_earlier_formats_are_migrated(url: str, old: str, tmp_path: Path) -> None:
    copy = write_old(tmp_path / "old.db", OLD[old])
    held = copy.read_bytes()
    assert restore(copy, url) == (Summary(FORMAT, 2, 2, 7), None)
    with SqlLedger(url, 2) as ledger:
        check_old(ledger, late=old != "1")
    assert copy.read_bytes() == held
    assert back_up(copy, tmp_path / "copy.db") == Summary(FORMAT, 2, 2, 7)
    with SqlLedger(tmp_path / "copy.db", 2) as ledger:
        check_old(ledger, late=old != "1")


@pytest.mark.parametrize("damage", ["text", "page", "counts", "horizons", "later", "empty", "other", "cut", "missing"])
def test_a_damaged_backup_changes_nothing(url: str, damage: str, tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    with SqlLedger(url, 2) as ledger:
        for number in range(200):
            opens = number % 50 == 0
            entry = Entry(np.array([1, 2]), 1, 0.5, 0.25, opens_horizon=opens)
            ledger.record([entry], key=f"{number}", answers={f"{number}": bytes(100)})
        back_up(url, copy)
        ledger.record([ENTRY], key="later")
        held = content(ledger)
    data = copy.read_bytes()
    changes = {
        "counts": "UPDATE horizons SET exposures = x'0102' WHERE number = 1",
        "horizons": "DELETE FROM horizons WHERE number = 1",
        "later": "PRAGMA user_version = 99",
        "other": "PRAGMA user_version = 0",
    }
    if damage in changes:
        with closing(sqlite3.connect(copy)) as db, db:
            db.execute(changes[damage])
    else:
        copy.write_bytes(
            {
                "text": b"no ledger at all" * 1000,
                "page": data[: 4096 * 8] + bytes(range(256)) * 16 + data[4096 * 9 :],
                "empty": b"",
                "cut": data[: len(data) // 2],
                "missing": b"x",
            }[damage]
        )
    if damage == "missing":
        copy.unlink()
    words = {
        "later": "update FairSync",
        "other": "no ledger",
        "empty": "no content",
        "missing": "there is no file",
        "counts": r"copy\.db is damaged: a count of horizon 1 is cut off.*Take another backup",
        "horizons": r"copy\.db is damaged: horizons are missing. Take another backup",
    }
    with pytest.raises(InvalidInputError, match=words.get(damage, r"copy\.db.*damaged")):
        restore(copy, url)
    with SqlLedger(url, 2) as ledger:
        assert content(ledger) == held
    if not url.startswith("postgresql"):
        assert not list(tmp_path.glob("exposures.db.*"))
        assert not list(tmp_path.glob("*.part-*"))


def test_a_restored_file_is_the_backup_and_nothing_else(tmp_path: Path) -> None:
    """After a kill, the last writes are in the log beside the file, and must not get into the restored file."""
    path, copy = tmp_path / "a.db", tmp_path / "copy.db"
    with SqlLedger(path, 2) as ledger:
        ledger.record([ENTRY])
        back_up(path, copy)
    with subprocess.Popen([sys.executable, "-c", WRITER, str(path), "1"], stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        lines = [writer.stdout.readline() for _ in range(20)]
        with pytest.raises(FairSyncError, match="in use by another"):
            restore(copy, path)
        writer.send_signal(signal.SIGKILL)
        written = len(lines) + len(writer.stdout.read().split(b"\n")) - 1
    assert Path(f"{path}-wal").stat().st_size > 0
    assert written <= back_up(path, tmp_path / "killed.db").requests - 1 <= written + 1, "without another process"
    summary, aside = restore(copy, path)
    assert summary.requests == 1
    with SqlLedger(path, 2) as ledger:
        assert ledger.totals().exposures.tolist() == [1, 2]
    assert aside is not None
    with SqlLedger(aside, 2) as ledger:
        assert written <= sum(one.requests for one in horizons(ledger)) - 1 <= written + 1


def test_a_damaged_ledger_is_restored(url: str, tmp_path: Path) -> None:
    """This is what backups are for."""
    copy = tmp_path / "copy.db"
    with SqlLedger(url, 2) as ledger:
        ledger.record([ENTRY])
        back_up(url, copy)
        ledger.database.run(lambda tx: tx.execute("DELETE FROM facts"), "exclusive")
        ledger.database.run(lambda tx: tx.execute("DELETE FROM horizons"), "exclusive")
    if not url.startswith("postgresql"):
        Path(url.removeprefix("sqlite:///")).write_text("damaged" * 1000)
    summary, aside = restore(copy, url)
    assert (summary.requests, aside is None) == (1, False)
    with SqlLedger(url, 2) as ledger:
        assert ledger.totals().requests == 1


def test_a_link_to_a_ledger_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    path, link = tmp_path / "disk" / "a.db", tmp_path / "a.db"
    with SqlLedger(path, 2) as ledger:
        ledger.record([ENTRY])
    link.symlink_to(path)
    back_up(link, tmp_path / "copy.db")
    restore(tmp_path / "copy.db", link)
    assert link.is_symlink()
    with SqlLedger(path, 2) as ledger:
        assert ledger.totals().requests == 1


def test_a_restore_needs_the_right_to_create_schemas(postgres: PostgresServer, tmp_path: Path) -> None:
    """A role with a schema of its own can restore into an empty one, and cannot set a ledger aside."""
    url = new_schema(postgres)
    schema = url.partition("schema=")[2]
    postgres.execute(f"CREATE ROLE r_{schema} LOGIN PASSWORD 'pass'")
    postgres.execute(f'CREATE SCHEMA "{schema}" AUTHORIZATION "r_{schema}"')
    theirs = f"postgresql://r_{schema}:pass@127.0.0.1:{postgres.port}/postgres?schema={schema}"
    with SqlLedger(tmp_path / "a.db", 2) as ledger:
        ledger.record([ENTRY])
    assert restore(tmp_path / "a.db", theirs)[0].requests == 1
    with pytest.raises(InvalidInputError, match=r"permission denied for database postgres. Check user"):
        restore(tmp_path / "a.db", theirs)
    with LedgerReader(theirs) as reader:
        assert reader.summary().requests == 1
    postgres.execute(f'DROP OWNED BY "r_{schema}"')
    postgres.execute(f'DROP ROLE "r_{schema}"')


def test_a_restore_that_loses_its_connection_is_repeated(postgres: PostgresServer, tmp_path: Path) -> None:
    url = new_schema(postgres)
    with SqlLedger(url, 2) as ledger:
        fill(ledger)
        held = content(ledger)
        back_up(url, tmp_path / "copy.db")
    ended = threading.Event()

    def cut() -> None:
        while not ended.wait(0.01):
            rows = postgres.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE application_name = 'fairsync' AND state = 'idle in transaction'"
            )
            if rows:
                return

    cutter = threading.Thread(target=cut)
    cutter.start()
    try:
        assert restore(tmp_path / "copy.db", url)[0] == FILLED
    finally:
        ended.set()
        cutter.join()
    with SqlLedger(url, None) as ledger:
        assert content(ledger) == held


def test_a_restored_file_has_the_rights_of_the_replaced_one(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    SqlLedger(path, 2).close()
    back_up(path, tmp_path / "copy.db")
    path.chmod(0o640)
    if os.geteuid() == 0:
        os.chown(path, 65534, 65534)
    before = path.stat()
    restore(tmp_path / "copy.db", path)
    after = path.stat()
    assert (after.st_mode, after.st_uid, after.st_gid) == (before.st_mode, before.st_uid, before.st_gid)
    assert after.st_ino != before.st_ino


# Restores a backup in a process that kills itself when the work is nearly done.
_KILLED = """
import os, signal, sys
from fairsync.ledger import backup, postgres

def kill(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)

if sys.argv[2].startswith("postgresql"):
    postgres.PostgresDatabase.write_format = kill
else:
    os.replace = kill
backup.restore(sys.argv[1], sys.argv[2])
"""


def test_a_restore_that_is_killed_changes_nothing(url: str, tmp_path: Path) -> None:
    with SqlLedger(url, 2) as ledger:
        fill(ledger)
        back_up(url, tmp_path / "copy.db")
        ledger.record([ENTRY.grown(3)], key="later")
        held = content(ledger)
    killed = subprocess.run([sys.executable, "-c", _KILLED, str(tmp_path / "copy.db"), url], check=False)
    assert killed.returncode == -signal.SIGKILL
    with SqlLedger(url, None) as ledger:
        assert content(ledger) == held
    assert restore(tmp_path / "copy.db", url)[0] == FILLED
