"""The lock that gives a ledger's SQLite file one writer at a time."""

import os
import sqlite3
from pathlib import Path
from weakref import WeakValueDictionary

from fairsync.errors import FairSyncError

# Seconds to wait for another process to release a file.
TIMEOUT_SECONDS = 2.0


class FileLock:
    """Locks a ledger's file for one process, until it is released or the process ends, even by a kill.

    The lock is on a hidden file beside the ledger, so that others can still read the ledger, as a backup does, and so
    that no other process begins a new ledger when the files of this one are deleted by a pattern (``exposures.db*``).

    Parameters
    ----------
    path
        Path of the ledger.
    """

    def __init__(self, path: Path) -> None:
        real = Path(os.path.realpath(path))
        beside = real.with_name(f".{real.name}-owner")
        self._db = sqlite3.connect(beside, timeout=TIMEOUT_SECONDS, isolation_level=None, check_same_thread=False)
        try:
            self._db.execute("BEGIN EXCLUSIVE")
        except sqlite3.OperationalError as error:
            self._db.close()
            if "locked" not in str(error):
                raise
            if (os.getpid(), beside) in _held:
                raise FairSyncError(
                    f"{path} is open in this process: call close() on the retriever or ledger that has it open."
                ) from error
            raise FairSyncError(
                f"{path} is in use by another process: stop it first, or share a ledger in Postgres."
            ) from error
        self._key = os.getpid(), beside
        _held[self._key] = self

    def release(self) -> None:
        """Release the lock."""
        _held.pop(self._key, None)
        self._db.close()


# Locks of this process by its id, because a fork has another one, and by the file that is locked.
_held: WeakValueDictionary[tuple[int, Path], FileLock] = WeakValueDictionary()
