"""The file of a ledger: who may write to it, and copies of it, made while it is in use."""

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
from fairsync.ledger.sqlite_formats import read_format

_PATIENCE_SECONDS = 2.0


class Owner:
    """Holds a ledger's file for one process: until it is released, or the process ends, however it does.

    The lock is on a file beside it (``-owner``), so that others can still read the ledger, as a backup does.

    Parameters
    ----------
    path
        Of the ledger.
    """

    def __init__(self, path: Path) -> None:
        beside = f"{os.path.realpath(path)}-owner"
        self._db = sqlite3.connect(beside, timeout=_PATIENCE_SECONDS, isolation_level=None, check_same_thread=False)
        try:
            self._db.execute("BEGIN EXCLUSIVE")
        except sqlite3.OperationalError as error:
            self._db.close()
            if "locked" not in str(error):
                raise
            raise FairSyncError(
                f"{path} is in use by another process: stop it first, or share a Redis ledger."
            ) from error

    def release(self) -> None:
        """Let others have it."""
        self._db.close()


@dataclass(frozen=True)
class Summary:
    """What a ledger's file holds.

    Attributes
    ----------
    format : int
        Of the file.
    groups, horizons, requests : int
        How many there are, ever.
    """

    format: int
    groups: int
    horizons: int
    requests: int


def back_up(path: str | Path, copy: str | Path) -> Summary:
    """Write a copy of a ledger's file, whether or not a process writes to it; say what is in it.

    What had the copy's name before stays until the new one is whole.

    Parameters
    ----------
    path
        Of the ledger.
    copy
        Of the file to be written.

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
    """Put a copy in the place of a ledger's file; the process that uses it must have been stopped.

    Nothing is changed unless the copy is a whole ledger.

    Parameters
    ----------
    copy
        That `back_up` wrote.
    path
        Of the ledger.

    Returns
    -------
    tuple of Summary and Path
        What is in it now, and where the file is that was there before; None if there was none.
    """
    copy, path = Path(copy), Path(path)
    part = _beside(path, ".part")
    owner = None
    try:
        summary = _copy(copy, part)
        owner = Owner(path)
        aside = _set_aside(path) if path.exists() else None
        os.replace(part, path)
    finally:
        if owner is not None:
            owner.release()
        part.unlink(missing_ok=True)
    _sync(path.parent)
    return summary, aside


def look(path: str | Path) -> Summary:
    """Return what a ledger's file holds, changing nothing; refuse what is none, or of a later format."""
    path = Path(path)
    try:
        with closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True, timeout=_PATIENCE_SECONDS)) as db:
            return _summary(db, path) if read_format(db, path) else Summary(0, 0, 0, 0)
    except sqlite3.DatabaseError as error:
        raise InvalidInputError(
            f"{path} cannot be read as a ledger ({error}): restore a backup, or name another file."
        ) from error


def _copy(source: Path, to: Path) -> Summary:
    """Write a copy that is one file, and whole."""
    if not source.is_file():
        raise InvalidInputError(f"there is no file {source}: check the path.")
    if not to.parent.is_dir():
        raise InvalidInputError(f"{to.parent} is no folder: make it first.")
    to.unlink(missing_ok=True)
    try:
        with (
            closing(sqlite3.connect(f"file:{quote(str(source))}?mode=rw", uri=True, timeout=_PATIENCE_SECONDS)) as db,
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
    """Copy the old file to another name, and see to it that nothing of it is taken for part of the new one."""
    aside = _beside(path, f".{datetime.now():%Y-%m-%d_%H-%M-%S}")
    try:  # what is only in the log beside it comes into the file
        with closing(sqlite3.connect(path)) as old:
            old.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    except sqlite3.DatabaseError:  # it may be damaged: then it is kept as it is, in its parts
        pass
    shutil.copy2(path, aside)
    if _beside(path, "-wal").exists():
        os.replace(_beside(path, "-wal"), _beside(aside, "-wal"))
    _beside(path, "-shm").unlink(missing_ok=True)
    return aside


def _beside(path: Path, ending: str) -> Path:
    return path.with_name(path.name + ending)


def _sync(folder: Path) -> None:
    """Have a file's new name outlive a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
