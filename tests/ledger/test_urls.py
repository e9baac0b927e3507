"""URLs of ledgers."""

from contextlib import closing
from pathlib import Path

import pytest

from fairsync.errors import InvalidInputError
from fairsync.ledger import MemoryLedger, SqlLedger, open_ledger
from fairsync.ledger.postgres import PostgresDatabase
from fairsync.ledger.urls import describe_url, is_postgres, sqlite_path
from postgres_server import PostgresServer


def test_urls_of_files(tmp_path: Path) -> None:
    assert sqlite_path("exposures.db") == sqlite_path("sqlite:///exposures.db") == Path("exposures.db")
    assert sqlite_path("sqlite:////var/lib/a.db") == Path("/var/lib/a.db")
    assert sqlite_path("sqlite:///a%20b%3F.db") == Path("a b?.db")
    assert sqlite_path(Path("a%20b.db")) == Path("a%20b.db"), "a path is no URL"
    with open_ledger(f"sqlite:///{tmp_path}/a%20b.db", 2) as ledger:  # type: ignore[attr-defined]
        assert isinstance(ledger, SqlLedger)
    assert (tmp_path / "a b.db").is_file()
    assert isinstance(open_ledger("memory://", 2), MemoryLedger)


@pytest.mark.parametrize(
    "url",
    [
        "mysql://me:secret@localhost/exposures",
        "redis://:secret@localhost:6379/0",
        "sqlite://exposures.db",
        "sqlite:///",
        "sqlite:///a.db?mode=ro",
        "memory://a",
        "postgresql+psycopg://me:secret@localhost/shop",
    ],
)
def test_other_urls_are_refused_without_their_password(url: str) -> None:
    for use in (sqlite_path, describe_url, lambda one: open_ledger(one, 2), lambda one: SqlLedger(one, 2)):
        with pytest.raises(
            InvalidInputError, match=r"is no ledger: write sqlite:///exposures\.db, .*postgresql://"
        ) as raised:
            use(url)
        assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:se]cret@[localhost/shop",
        "postgresql://me:secret@localhost/shop?nonsense=1",
        "postgresql://me:secret@localhost/shop?schema=a%22b",
        "postgresql://me:secret@localhost/shop?schema=",
    ],
)
def test_urls_of_postgres_that_cannot_be_read(url: str) -> None:
    assert is_postgres(url)
    with pytest.raises(InvalidInputError) as raised:
        describe_url(url)
    assert "cret" not in str(raised.value)


def test_a_description_has_no_password() -> None:
    url = "postgres://me:secret@db.internal:5433/shop?schema=promises&password=other"
    assert describe_url(url) == "postgresql://db.internal:5433/shop (schema promises)"
    assert describe_url("postgresql:///shop") == "postgresql://localhost/shop (schema fairsync)"
    assert describe_url("sqlite:///a.db") == "a.db"


def test_settings_of_libpq_reach_the_server(postgres: PostgresServer) -> None:
    with closing(PostgresDatabase(f"{postgres.url}?options=-c%20work_mem%3D5MB", owner="none")) as database:
        assert database.run(lambda tx: tx.execute("SHOW work_mem"), "read") == [("5MB",)]


def test_the_description_of_a_ledger_in_memory() -> None:
    assert describe_url("memory://") == "memory://"
