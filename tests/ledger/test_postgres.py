"""The ledger in Postgres: rights, passwords, read-only servers, settings, and other tables."""

import re
import secrets
import socket
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from fairsync.errors import BackendUnavailableError, FairSyncError, InvalidInputError
from fairsync.ledger import SqlLedger
from fairsync.ledger.backup import back_up
from fairsync.ledger.database import Transaction
from fairsync.ledger.postgres import PostgresDatabase
from fairsync.ledger.reader import LedgerReader
from ledger.writing import ENTRY, new_schema
from postgres_server import PASSWORD, QUOTED, UNPRIVILEGED, PostgresServer, programs


@pytest.fixture
def role(postgres: PostgresServer) -> Iterator[tuple[str, str]]:
    """The name of a role without any rights, and a URL with it."""
    name = f"role_{secrets.token_hex(4)}"
    postgres.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'pass'")
    yield name, new_schema(postgres).replace(f"fairsync:{QUOTED}@", f"{name}:pass@")
    postgres.execute(f"DROP OWNED BY {name}")
    postgres.execute(f"DROP ROLE {name}")


def schema_of(url: str) -> str:
    return url.partition("schema=")[2]


def test_a_role_without_the_right_to_create_schemas(postgres: PostgresServer, role: tuple[str, str]) -> None:
    name, url = role
    with pytest.raises(InvalidInputError, match=r"permission denied for database postgres. Check user, password and"):
        SqlLedger(url, 2)
    assert postgres.execute("SELECT count(*) FROM pg_namespace WHERE nspname = %s", schema_of(url)) == [(0,)]
    postgres.execute(f'CREATE SCHEMA "{schema_of(url)}"')
    with pytest.raises(InvalidInputError, match=r"permission denied for schema .*Check user, password and rights"):
        SqlLedger(url, 2)
    postgres.execute(f'ALTER SCHEMA "{schema_of(url)}" OWNER TO {name}')
    with SqlLedger(url, 2) as ledger:
        assert ledger.record([ENTRY]), "a schema of its own is enough"


def test_a_role_that_may_only_read(postgres: PostgresServer, role: tuple[str, str], tmp_path: Path) -> None:
    name, url = role
    with SqlLedger(postgres.schema(schema_of(url)), 2) as ledger:
        ledger.record([ENTRY])
        postgres.execute(f'GRANT USAGE ON SCHEMA "{schema_of(url)}" TO {name}')
        postgres.execute(f'GRANT SELECT ON ALL TABLES IN SCHEMA "{schema_of(url)}" TO {name}')
        assert back_up(url, tmp_path / "copy.db").requests == 1
    with pytest.raises(
        InvalidInputError, match=r"permission denied for table answers. Check user, password and rights"
    ):
        SqlLedger(url, 2)


@pytest.mark.parametrize("part", ["password", "user", "database"])
def test_a_login_that_is_refused_prints_no_password(postgres: PostgresServer, part: str) -> None:
    url = {
        "password": postgres.url.replace(QUOTED, "wrong%2Fpass"),
        "user": postgres.url.replace("fairsync:", "nobody:"),
        "database": postgres.url.replace("/postgres", "/nowhere"),
    }[part]
    with pytest.raises(InvalidInputError) as raised:
        SqlLedger(url, 2)
    message = str(raised.value)
    assert message.startswith(f"postgresql://127.0.0.1:{postgres.port}/")
    assert "Check user, password and rights" in message
    for secret in (PASSWORD, QUOTED, "wrong/pass", "wrong%2Fpass"):
        assert secret not in message
    assert "\n" not in message


def test_a_server_that_is_not_there() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        url = f"postgresql://fairsync:hidden@127.0.0.1:{probe.getsockname()[1]}/shop"
        for use in (lambda: SqlLedger(url, 2, timeout=0.2), lambda: LedgerReader(url, timeout=0.2).summary()):
            with pytest.raises(BackendUnavailableError, match=r"does not answer: .*Is the server up") as raised:
                use()
            assert "hidden" not in str(raised.value)


def test_a_schema_with_other_tables_is_refused(postgres: PostgresServer) -> None:
    url = new_schema(postgres)
    postgres.execute(f'CREATE SCHEMA "{schema_of(url)}"')
    postgres.execute(f'CREATE TABLE "{schema_of(url)}".mine (x int)')
    with pytest.raises(InvalidInputError, match="has other tables, and no ledger: name another schema"):
        SqlLedger(url, 2)
    with pytest.raises(InvalidInputError, match="has other tables"), LedgerReader(url) as reader:
        reader.summary()
    assert postgres.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s", schema_of(url)) == [("mine",)]


def test_a_ledger_that_does_not_say_its_format(postgres: PostgresServer) -> None:
    url = new_schema(postgres)
    SqlLedger(url, 2).close()
    postgres.execute(f'DELETE FROM "{schema_of(url)}".facts')
    with pytest.raises(InvalidInputError, match=r"damaged: it does not say its format. Restore a backup"):
        SqlLedger(url, 2)


def test_a_ledger_whose_schema_is_dropped_while_in_use(postgres: PostgresServer) -> None:
    url = new_schema(postgres)
    with SqlLedger(url, 2) as ledger:
        ledger.record([ENTRY])
        postgres.execute(f'DROP SCHEMA "{schema_of(url)}" CASCADE')
        with pytest.raises(FairSyncError, match=r"the ledger is gone from .*restore a backup"):
            ledger.record([ENTRY])


def test_a_read_only_database(postgres: PostgresServer, role: tuple[str, str]) -> None:
    name, url = role
    postgres.execute(f'CREATE SCHEMA "{schema_of(url)}" AUTHORIZATION {name}')
    with SqlLedger(url, 2) as ledger:
        ledger.record([ENTRY])
    postgres.execute(f"ALTER ROLE {name} SET default_transaction_read_only = on")
    with SqlLedger(url, 2, timeout=3.0) as ledger:
        with pytest.raises(BackendUnavailableError, match="is read-only: connect to the primary server"):
            ledger.record([ENTRY])
        assert ledger.totals().requests == 1
    postgres.execute(f"ALTER ROLE {name} SET default_transaction_read_only = off")
    with SqlLedger(url, 2) as ledger:
        assert ledger.record([ENTRY])


def test_a_standby_can_be_read_and_backed_up(postgres: PostgresServer, tmp_path: Path) -> None:
    url = new_schema(postgres)
    with SqlLedger(url, 2) as ledger:
        ledger.record([ENTRY])
    with TemporaryDirectory(dir=Path(postgres.folder.name).parent) as folder:
        Path(folder).chmod(0o777)
        subprocess.run(
            [str(programs() / "pg_basebackup"), "-D", f"{folder}/data", "-d", postgres.url, "-R", "-c", "fast"],
            user=UNPRIVILEGED,
            cwd="/",
            check=True,
        )
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
        command = [str(programs() / "postgres"), "-D", f"{folder}/data", "-p", str(port), "-h", "127.0.0.1", "-k", ""]
        with (Path(folder) / "log").open("wb") as log:
            standby = subprocess.Popen(
                [*command, "-c", "max_connections=60"], user=UNPRIVILEGED, cwd="/", stdout=log, stderr=log
            )
        try:
            there = url.replace(f":{postgres.port}/", f":{port}/")
            with LedgerReader(there, timeout=120.0) as reader:
                assert reader.summary().requests == 1
            assert back_up(there, tmp_path / "copy.db").requests == 1
            with pytest.raises(BackendUnavailableError, match="is read-only: connect to the primary server"):
                SqlLedger(there, 2, timeout=3.0)
        finally:
            standby.terminate()
            standby.wait()


def test_settings_that_may_lose_exposures() -> None:
    with PostgresServer("fsync=off", "full_page_writes=off") as server:
        SqlLedger(server.url, 2).close()
        server.execute("ALTER TABLE fairsync.answers SET UNLOGGED")
        with LedgerReader(server.url) as reader:
            found = reader.check()
    assert [re.sub(r"^postgresql://127\.0\.0\.1:\d+/postgres \(schema fairsync\) ", "", one) for one in found] == [
        "may lose exposures that it has acknowledged: set 'fsync = on'.",
        "may lose exposures that it has acknowledged: set 'full_page_writes = on'.",
        "loses the table 'answers' in a crash: ALTER TABLE answers SET LOGGED.",
    ]


def test_a_server_with_good_settings(postgres: PostgresServer) -> None:
    url = new_schema(postgres)
    SqlLedger(url, 2).close()
    with LedgerReader(url) as reader:
        assert reader.check() == []


def test_columns_without_values(postgres: PostgresServer) -> None:
    with SqlLedger(new_schema(postgres), 2) as ledger:
        columns: dict[str, list[object]] = {
            "id": ["1", "2", "3"],
            "attributes": [None, "x", None],
            "embedding": [None, None, None],
            "catalog": ["c", "c", "c"],
        }
        ledger.database.run(lambda tx: tx.insert("items", columns, "changed_at"))
        found = ledger.database.run(
            lambda tx: tx.execute("SELECT id, attributes, embedding FROM items ORDER BY number")
        )
    assert found == [("1", None, None), ("2", "x", None), ("3", None, None)]


def test_a_timeout_must_be_positive() -> None:
    with pytest.raises(InvalidInputError, match="timeout must be a positive number of seconds, got 0"):
        PostgresDatabase("postgresql://localhost/shop", timeout=0)


def test_a_backup_may_take_longer_than_the_timeout_of_calls(postgres: PostgresServer) -> None:
    with closing(PostgresDatabase(postgres.url, timeout=2.0, owner="none")) as database:

        def slow(transaction: Transaction) -> None:
            database.allow_long(transaction)
            transaction.execute("SELECT pg_sleep(4)")

        database.run(slow, "read")
        with pytest.raises(BackendUnavailableError, match="does not answer"):
            database.run(lambda transaction: transaction.execute("SELECT pg_sleep(60)"), "read")


def test_a_database_without_an_encoding(postgres: PostgresServer) -> None:
    """Such as one that was made under the locale C: the driver would return its text as bytes."""
    name = f"plain_{secrets.token_hex(4)}"
    postgres.execute(f"CREATE DATABASE {name} ENCODING 'SQL_ASCII' LOCALE 'C' TEMPLATE template0")
    try:
        url = postgres.url.replace("/postgres", f"/{name}")
        for _ in range(2):  # the second finds the tables
            with SqlLedger(url, 2) as ledger:
                ledger.save("names", "Käse".encode())
                found = ledger.database.run(lambda tx: tx.execute("SELECT :text", text="Käse"))
        assert found == [("Käse",)]
    finally:
        postgres.execute(f"DROP DATABASE {name} WITH (FORCE)")
