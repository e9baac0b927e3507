"""Backup and restore of a ledger's SQLite file. A backup can be made while the ledger is in use."""

import json
import os
import shutil
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from urllib.parse import quote

from fairsync.errors import FairSyncError, InvalidInputError
from fairsync.ledger.sqlite_lock import TIMEOUT_SECONDS, FileLock
from fairsync.ledger.sqlite_migrations import read_format


@dataclass(frozen=True)
class Summary:
    """A summary of a ledger's file.

    Attributes
    ----------
    format : int
        Format of the file.
    groups, horizons, requests : int
        Numbers of groups, horizons and requests in all.
    """

    format: int
    groups: int
    horizons: int
    requests: int


def back_up(path: str | Path, copy: str | Path) -> Summary:
    """Write a backup of a ledger's file, also while a process writes to it; return a summary of the backup.

    A file that has the backup's name is replaced atomically, once the backup is complete.

    Parameters
    ----------
    path
        Path of the ledger.
    copy
        Path of the backup.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from fairsync.ledger import SqliteLedger
    >>> with TemporaryDirectory() as folder, SqliteLedger(f"{folder}/exposures.db", n_groups=2) as ledger:
    ...     back_up(ledger.path, f"{folder}/copy.db")
    Summary(format=2, groups=2, horizons=0, requests=0)
    """
    path, copy = Path(path), Path(copy)
    if _beside(copy, "-owner").exists():
        raise InvalidInputError(f"{copy} is in use as a ledger itself: give the backup another name.")
    part = _beside(copy, ".part")
    try:
        summary = _copy(path, part)
        os.replace(part, copy)
    finally:
        part.unlink(missing_ok=True)
    _sync(copy.parent)
    return summary


def restore(copy: str | Path, path: str | Path) -> tuple[Summary, Path | None]:
    """Replace a ledger's file by a backup. The process that uses the ledger must have been stopped.

    Nothing is changed unless the backup is a complete ledger.

    Parameters
    ----------
    copy
        Path of a backup that `back_up` wrote.
    path
        Path of the ledger.

    Returns
    -------
    tuple of Summary and Path
        A summary of the ledger, and the path to which the replaced file was moved, or None.
    """
    copy, path = Path(copy), Path(path)
    part = _beside(path, ".part")
    lock = None
    try:
        summary = _copy(copy, part)
        lock = FileLock(path)
        aside = _set_aside(path) if path.exists() else None
        os.replace(part, path)
    finally:
        if lock is not None:
            lock.release()
        part.unlink(missing_ok=True)
    _sync(path.parent)
    return summary, aside


def summarize(path: str | Path) -> Summary:
    """Return a summary of a ledger's file, without changing it; refuse any other file, or one of a later format."""
    path = Path(path)
    try:
        with closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True, timeout=TIMEOUT_SECONDS)) as db:
            return _summary(db, path) if read_format(db, path) else Summary(0, 0, 0, 0)
    except sqlite3.DatabaseError as error:
        raise InvalidInputError(
            f"{path} cannot be read as a ledger ({error}): restore a backup, or name another file."
        ) from error


def _copy(source: Path, to: Path) -> Summary:
    """Write a copy that is complete in one file."""
    if not source.is_file():
        raise InvalidInputError(f"there is no file {source}: check the path.")
    if not to.parent.is_dir():
        raise InvalidInputError(f"{to.parent} is no folder: make it first.")
    to.unlink(missing_ok=True)
    try:
        with (
            closing(sqlite3.connect(f"file:{quote(str(source))}?mode=rw", uri=True, timeout=TIMEOUT_SECONDS)) as db,
            closing(sqlite3.connect(to, isolation_level=None)) as copied,
        ):
            if read_format(db, source) == 0:
                raise InvalidInputError(f"{source} is empty: give a ledger.")
            db.backup(copied)
            copied.execute("PRAGMA journal_mode = DELETE")
            (found,) = copied.execute("PRAGMA integrity_check(1)").fetchone()
            if found != "ok":
                raise InvalidInputError(f"{source} is damaged ({found}): take another backup.")
            return _summary(copied, source)
    except sqlite3.DatabaseError as error:
        if isinstance(error, sqlite3.OperationalError):  # locked, or no room
            raise FairSyncError(f"{source} could not be copied to {to.parent}: {error}.") from error
        raise InvalidInputError(f"{source} is damaged or no ledger ({error}): take another backup.") from error


def _summary(db: sqlite3.Connection, path: Path) -> Summary:
    horizons, requests = db.execute("SELECT count(*), coalesce(sum(requests), 0) FROM horizons").fetchone()
    (groups,) = db.execute("SELECT value FROM facts WHERE name = 'groups'").fetchone()
    return Summary(read_format(db, path), json.loads(groups), horizons, requests)


def _set_aside(path: Path) -> Path:
    """Copy the old file to another name, and remove the files that SQLite would take for part of the new one."""
    aside = _beside(path, f".{datetime.now():%Y-%m-%d_%H-%M-%S}")
    try:  # move the content of the write-ahead log into the file
        with closing(sqlite3.connect(path)) as old:
            old.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    except sqlite3.DatabaseError:  # the old file may be damaged: then it is kept with its log, as it is
        pass
    shutil.copy2(path, aside)
    if _beside(path, "-wal").exists():
        os.replace(_beside(path, "-wal"), _beside(aside, "-wal"))
    _beside(path, "-shm").unlink(missing_ok=True)
    return aside


def _beside(path: Path, ending: str) -> Path:
    return path.with_name(path.name + ending)


def _sync(folder: Path) -> None:
    """Flush a folder, so that a file's new name survives a power failure."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
