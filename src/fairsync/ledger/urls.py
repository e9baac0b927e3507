"""URLs of ledgers: ``sqlite:///exposures.db``, ``postgresql://host/database``, ``memory://``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from fairsync.errors import InvalidInputError
from fairsync.ledger.sqlite import SqliteDatabase

if TYPE_CHECKING:
    from fairsync.ledger.database import Database

_POSTGRES = ("postgresql://", "postgres://")
_SQLITE = "sqlite:///"
MEMORY = "memory://"


def is_postgres(url: str | Path) -> bool:
    """Return whether a URL names a ledger in Postgres.

    Examples
    --------
    >>> is_postgres("postgresql://db.internal/shop"), is_postgres("sqlite:///exposures.db")
    (True, False)
    """
    return str(url).startswith(_POSTGRES)


def sqlite_path(url: str | Path) -> Path:
    """Return the file of a ledger in SQLite, given by a URL or a path; refuse any other URL.

    Examples
    --------
    >>> sqlite_path("sqlite:///exposures.db").name, sqlite_path("sqlite:////var/lib/exposures.db").is_absolute()
    ('exposures.db', True)
    """
    if not isinstance(url, str | Path):
        raise InvalidInputError(f"a ledger has a URL, such as sqlite:///exposures.db, got {url!r:.80}.")
    if isinstance(url, Path) or "://" not in url:
        return Path(url)
    path = unquote(url.removeprefix(_SQLITE))
    if not url.startswith(_SQLITE) or not path or "?" in url:
        # The message names the scheme only: a URL may hold a password.
        raise InvalidInputError(
            f"a URL that begins with {urlsplit(url).scheme}:// is no ledger: write sqlite:///exposures.db,"
            " sqlite:////var/lib/exposures.db (an absolute path), or postgresql://user@host/database."
        )
    return Path(path)


def may_exist(url: str | Path) -> bool:
    """Return whether there may be a ledger at a URL. Of one in Postgres only the server knows.

    Examples
    --------
    >>> may_exist("postgresql://db.internal/shop"), may_exist("sqlite:///no-such-folder/exposures.db")
    (True, False)
    """
    return url != MEMORY and (is_postgres(url) or sqlite_path(url).exists())


def open_database(url: str | Path, *, timeout: float = 10.0, owner: str = "one") -> Database:
    """Return the database that a URL names; see :class:`fairsync.ledger.postgres.PostgresDatabase`."""
    if not is_postgres(url):
        return SqliteDatabase(sqlite_path(url), read_only=owner == "none")
    from fairsync.ledger.postgres import PostgresDatabase  # here, because psycopg is optional

    return PostgresDatabase(str(url), timeout=timeout, owner=owner)


def describe_url(url: str | Path) -> str:
    """Return a URL for people and logs, without user and password."""
    if not is_postgres(url):
        return str(url) if url == MEMORY else str(sqlite_path(url))
    from fairsync.postgres_connection import parse_postgres_url

    return parse_postgres_url(str(url))[2]
