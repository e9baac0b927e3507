"""Backup and restore of a ledger.

A backup is one SQLite file of the present format, whether the ledger is in SQLite or in Postgres. So it also moves a
ledger from the one to the other. Leases are no part of it.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import sqlite3
from contextlib import ExitStack, closing, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from fairsync.errors import FairSyncError, InvalidInputError
from fairsync.ledger.audit import AuditRecord, append_audit, read_head
from fairsync.ledger.damage import find_damage
from fairsync.ledger.file_lock import FileLock
from fairsync.ledger.reader import LedgerReader, Summary, summarize
from fairsync.ledger.schema import FORMAT, create_tables, open_tables
from fairsync.ledger.sqlite import SqliteDatabase, sync_folder
from fairsync.ledger.tables import SERIAL, TABLES, read_pieces
from fairsync.ledger.urls import is_postgres, open_database, sqlite_path

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from fairsync.ledger.database import Database, Transaction

# Seconds for which a Postgres server that is away, or a ledger that is in use, is tried again.
_TIMEOUT = 3.0


def back_up(url: str | Path, file: str | Path) -> Summary:
    """Write a backup of a ledger, also while processes use it; return a summary of the backup.

    The backup is a consistent snapshot. A file that has its name is replaced atomically, once the backup is complete.

    Parameters
    ----------
    url
        The ledger: as for :class:`fairsync.SqlLedger`.
    file
        Path of the backup.

    Examples
    --------
    >>> from fairsync.ledger import SqlLedger
    >>> with TemporaryDirectory() as folder, SqlLedger(f"{folder}/exposures.db", n_groups=2):
    ...     back_up(f"{folder}/exposures.db", f"{folder}/copy.db")
    Summary(format=4, groups=2, horizons=1, requests=0)
    """
    file = Path(file)
    if _is_ledger_in_use(file):
        raise InvalidInputError(f"{file} is in use as a ledger itself: give the backup another name.")
    if not file.parent.is_dir():
        raise InvalidInputError(f"{file.parent} is no folder: make it first.")
    with closing(open_database(url, timeout=_TIMEOUT, owner="none")) as database, _part_of(file) as part:
        if isinstance(database, SqliteDatabase) and file.exists() and file.samefile(database.path):
            raise InvalidInputError(f"{file} is the ledger itself: give the backup another name.")
        summary = _copy(database, part)
        os.replace(part, file)
    sync_folder(file.parent)
    return summary


def restore(file: str | Path, url: str | Path) -> tuple[Summary, str | None]:
    """Replace a ledger by a backup. The processes that use the ledger must have been stopped.

    Nothing is changed unless the backup is a complete and undamaged ledger. It may be of an earlier format.

    Parameters
    ----------
    file
        Path of a backup.
    url
        The ledger: as for :class:`fairsync.SqlLedger`. It need not exist.

    Returns
    -------
    tuple of Summary and str
        A summary of the restored ledger, and where the replaced one is kept: the path of a file, or the name of a
        Postgres schema. None if there was none.
    """
    with closing(SqliteDatabase(file, read_only=True)) as backup:
        return _restore_postgres(backup, str(url)) if is_postgres(url) else _restore_sqlite(backup, sqlite_path(url))


def _restore_sqlite(backup: SqliteDatabase, path: Path) -> tuple[Summary, str | None]:
    if not path.parent.is_dir():
        raise InvalidInputError(f"{path.parent} is no folder: make it first.")
    if path.exists() and path.samefile(backup.path):
        raise InvalidInputError(f"{path} is the ledger itself: give a backup of it.")
    path = path.resolve()
    with ExitStack() as held:
        part = held.enter_context(_part_of(path))
        summary = _copy(backup, part)
        held.callback(FileLock(path).release)
        _record_restore(part, backup.path, _audit_length(path) if path.exists() else 0)
        aside = None
        if path.exists():
            _copy_rights(path, part)
            aside = _set_aside(path)
        os.replace(part, path)
        sync_folder(path.parent)
    return summary, None if aside is None else str(aside)


def _restore_postgres(backup: SqliteDatabase, url: str) -> tuple[Summary, str | None]:
    from fairsync.ledger.postgres import PostgresDatabase  # here, because psycopg is optional

    with (
        closing(PostgresDatabase(url, timeout=_TIMEOUT, owner="one")) as database,
        TemporaryDirectory(prefix="fairsync-") as folder,
    ):
        # Before the backup is read, which may take long: is the ledger free, and nothing else in its place?
        database.run(database.has_tables, "read")
        part = Path(folder) / "part.db"
        summary = _copy(backup, part)
        _record_restore(part, backup.path, _audit_length(url) if database.run(database.has_tables, "read") else 0)
        aside = f"{database.schema[:36]}_{datetime.now():%Y_%m_%d_%H_%M_%S_%f}"

        def load(transaction: Transaction) -> bool:
            if database.has_schema(transaction, aside):  # the connection was lost when all was done
                return True
            database.allow_long(transaction)
            replaced = database.has_tables(transaction)
            if replaced:
                # Waits for backups under way, which would read from the renamed tables and the new ones.
                transaction.execute("LOCK TABLE facts IN ACCESS EXCLUSIVE MODE")
                transaction.execute(f'ALTER SCHEMA "{database.schema}" RENAME TO "{aside}"')
            database.make_room(transaction)
            create_tables(database, transaction)
            with closing(SqliteDatabase(part, read_only=True)) as source:
                source.run(lambda reading: _copy_rows(reading, transaction, list(TABLES)), "read")
            database.write_format(transaction, FORMAT)
            for table in SERIAL:
                transaction.execute(
                    f"SELECT setval(pg_get_serial_sequence('{table}', 'number'), coalesce(max(number), 0) + 1, false)"
                    f" FROM {table}"
                )
            return replaced

        return summary, aside if database.run(load, "exclusive") else None


def _audit_length(url: str | Path) -> int | None:
    """Return the number of entries of the audit of a ledger that is about to be replaced; None if it cannot be read."""
    try:
        with LedgerReader(url, _TIMEOUT) as reader:
            return reader.contents().audit
    except FairSyncError:  # it is replaced because it is damaged
        return None


def _record_restore(part: Path, backup: Path, replaced: int | None) -> None:
    """Add to the audit of a restored ledger that it was restored, and what it lacks."""
    with closing(SqliteDatabase(part)) as copied:

        def write(transaction: Transaction) -> None:
            known = read_head(transaction)[0]
            if not known and not replaced:  # a ledger without promises of a service
                return
            note = f"the backup {backup.name} was restored, whose audit ends with entry {known}"
            if replaced is None:
                note += "; how many entries the replaced ledger had is not known"
            elif replaced > known:
                note += f"; later ones, up to entry {replaced}, are in the replaced ledger only"
            values = {"at": datetime.now(UTC).isoformat(), "by": "", "action": "restored", "note": note}
            append_audit(transaction, [AuditRecord(secrets.token_hex(16), json.dumps(values))])

        copied.run(write, "exclusive")


def _is_ledger_in_use(file: Path) -> bool:
    """Return whether a file was opened as a ledger: then it has a write-ahead log, which a backup never has."""
    if not file.is_file():
        return False
    with file.open("rb") as opened:
        header = opened.read(20)
    return header.startswith(b"SQLite format 3\0") and header[18:] == b"\2\2"


@contextmanager
def _part_of(file: Path) -> Iterator[Path]:
    """Yield the path of a file that does not exist, on the same disk."""
    with TemporaryDirectory(prefix=f".{file.name}.part-", dir=file.parent) as folder:
        yield Path(folder) / "part.db"


def _copy(source: Database, part: Path) -> Summary:
    """Write a copy of a ledger to a file: a snapshot, in the present format, and undamaged."""
    if isinstance(source, SqliteDatabase):
        source.run(lambda transaction: _check_is_ledger(source, transaction), "read")
        source.copy_to(part)
    else:
        source.run(lambda transaction: _write_file(source, transaction, part), "read")
    with closing(SqliteDatabase(part)) as copied:
        copied.address = source.address

        def complete(transaction: Transaction) -> Summary:
            open_tables(copied, transaction, None)
            transaction.execute("DELETE FROM leases")
            damage = find_damage(transaction)
            if damage:
                raise InvalidInputError(f"{source.address} is damaged: {'; '.join(damage)}. Take another backup.")
            return summarize(copied, transaction)

        damage = copied.check()
        if damage:
            raise InvalidInputError(f"{damage[0]} Take another backup.")
        summary = copied.run(complete, "exclusive")
    with closing(sqlite3.connect(part, isolation_level=None)) as last:
        last.execute("PRAGMA journal_mode = DELETE")  # so that the backup is one file
    return summary


def _check_is_ledger(database: Database, transaction: Transaction) -> int:
    """Return the format of a ledger; refuse a place without one."""
    found = summarize(database, transaction).format
    if found == 0:
        raise InvalidInputError(f"there is no ledger in {database.address}: check the URL.")
    return found


def _write_file(source: Database, transaction: Transaction, part: Path) -> None:
    """Write the tables of a ledger in Postgres to a new file."""
    source.allow_long(transaction)
    found = _check_is_ledger(source, transaction)
    tables = [table for table in TABLES if table != "audit" or found >= 4]
    part.unlink(missing_ok=True)  # of an attempt before this one
    with closing(SqliteDatabase(part)) as copied:

        def fill(writing: Transaction) -> None:
            create_tables(copied, writing)
            _copy_rows(transaction, writing, tables)
            copied.write_format(writing, FORMAT)

        copied.run(fill, "exclusive")
        copied.begin()


def _copy_rows(reading: Transaction, writing: Transaction, tables: Sequence[str]) -> None:
    for table in tables:
        names = TABLES[table]
        for rows in read_pieces(reading, table):
            # The format is a row in Postgres only.
            kept = [row for row in rows if (table, row[0]) != ("facts", "format")]
            if kept:
                writing.insert(table, dict(zip(names, zip(*kept, strict=True), strict=True)))


def _copy_rights(path: Path, part: Path) -> None:
    """Give a file the rights and, if possible, the owner of another: root may restore what another user serves."""
    shutil.copymode(path, part)
    with suppress(PermissionError):
        shutil.chown(part, path.stat().st_uid, path.stat().st_gid)


def _set_aside(path: Path) -> Path:
    """Give the old file another name as well, and remove the files that SQLite would take for part of the new one."""
    aside = _beside(path, f".{datetime.now():%Y-%m-%d_%H-%M-%S_%f}")
    try:  # move the content of the write-ahead log into the file
        with closing(sqlite3.connect(path)) as old:
            old.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    except sqlite3.DatabaseError:  # the old file may be damaged: then it is kept with its log, as it is
        pass
    try:
        os.link(path, aside)
    except OSError:  # a file system without links
        shutil.copy2(path, aside)
    if _beside(path, "-wal").exists():
        os.replace(_beside(path, "-wal"), _beside(aside, "-wal"))
    _beside(path, "-shm").unlink(missing_ok=True)
    return aside


def _beside(path: Path, ending: str) -> Path:
    return path.with_name(path.name + ending)
