"""Connections to a Postgres server: reused, retried until a timeout, and with errors that say what to do."""

from __future__ import annotations

import threading
import weakref
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from fairsync.search.engines.retrying import no_answer, refusal, retry

# First, because it says what to install if psycopg is missing.
from fairsync.postgres_connection import PostgresConnection, parse_postgres_url  # isort: skip

import psycopg

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from fairsync.errors import InvalidInputError

_Answer = TypeVar("_Answer")

# Long enough to write many items and to build an index over them.
_WRITE_SECONDS = 3600.0


class PostgresSessions:
    """Connections to one server, as many as calls are made at the same time.

    Parameters
    ----------
    url
        The URL of the server; a parameter ``schema`` is ignored.
    timeout
        Seconds that a call may take, with all retries.
    settings
        Settings of the server for these connections.
    """

    def __init__(self, url: str, timeout: float, settings: Mapping[str, str]) -> None:
        self._conninfo, _, described = parse_postgres_url(url, "the items")
        self.url, self.address, self.timeout = url, described.partition(" (")[0], timeout
        self._settings, self._idle, self._lock = dict(settings), list[PostgresConnection](), threading.Lock()
        # An index that is replaced is not closed by anybody.
        weakref.finalize(self, _close, self._idle)

    def run(self, work: Callable[[PostgresConnection], _Answer], writes: bool = False) -> _Answer:
        """Do idempotent work on a connection, and repeat it until the timeout if the connection is lost.

        Work that writes may take longer than the timeout.
        """

        def call(left: float) -> _Answer:
            with self.session(max(left, _WRITE_SECONDS) if writes else left) as connection:
                return work(connection)

        return retry(call, self.timeout)

    @contextmanager
    def session(self, seconds: float | None = None) -> Iterator[PostgresConnection]:
        """Lend a connection. Errors of the server become errors of this package."""
        connection = None
        try:
            connection = self._take(self.timeout if seconds is None else seconds)
            yield connection
        except (psycopg.OperationalError, psycopg.InterfaceError) as error:
            if connection is not None:
                connection.close()
            if isinstance(error, psycopg.errors.InvalidPassword | psycopg.errors.InvalidCatalogName):
                raise self._refusal(error) from error
            raise no_answer(f"Postgres at {self.address}", _words(error)) from error
        except psycopg.Error as error:
            raise self._refusal(error) from error
        finally:
            if connection is not None:
                self._give_back(connection)

    def __enter__(self) -> PostgresSessions:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections that are not in use."""
        with self._lock:
            _close(self._idle)

    def _take(self, seconds: float) -> PostgresConnection:
        with self._lock:
            connection = self._idle.pop() if self._idle else None
        if connection is None:
            options: dict[str, Any] = {"connect_timeout": max(2, round(seconds)), "autocommit": True}
            connection = PostgresConnection.connect(self._conninfo, **options)
            try:
                connection.seconds = seconds
                # Loads the library: before that, its settings are not known.
                connection.execute("SELECT '[1]'::vector" if any("." in one for one in self._settings) else "SELECT 1")
                for name, value in self._settings.items():
                    connection.execute("SELECT set_config(%s, %s, false)", [name, value])
            except BaseException:
                connection.close()
                raise
        connection.seconds = seconds
        return connection

    def _give_back(self, connection: PostgresConnection) -> None:
        idle = psycopg.pq.TransactionStatus.IDLE
        if connection.closed or connection.info.transaction_status != idle:
            connection.close()
            return
        with self._lock:
            self._idle.append(connection)

    def _refusal(self, error: psycopg.Error) -> InvalidInputError:
        return refusal(f"Postgres at {self.address}", _words(error), "Check url= and the rights of its user.")


def _close(idle: list[PostgresConnection]) -> None:
    while idle:
        idle.pop().close()


def _words(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
