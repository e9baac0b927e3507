"""A connection to a Postgres server: its URL, and how long it is waited for."""

from __future__ import annotations

import math
import re
import time
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from fairsync.errors import InvalidInputError, MissingPackageError

try:
    import psycopg
except ImportError as error:  # pragma: no cover -- tests have it
    raise MissingPackageError("Postgres needs psycopg: pip install 'fairsync[postgres]'.") from error

if TYPE_CHECKING:
    from psycopg.abc import PQGen

T = TypeVar("T")
_HOST = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^:\[\]]*)(:[0-9]*)?")


class PostgresConnection(psycopg.Connection[tuple[Any, ...]]):
    """A connection that is given up if the server does not answer, as one that is suspended, or whose disk hangs."""

    seconds = math.inf

    def wait(self, gen: PQGen[T], *arguments: Any, **options: Any) -> T:
        """Wait until the server has answered."""
        return super().wait(self._in_time(gen), *arguments, **options)

    def _in_time(self, gen: PQGen[T]) -> PQGen[T]:
        deadline = time.monotonic() + self.seconds
        try:
            state = next(gen)
            while True:
                ready = yield state
                if not ready and time.monotonic() > deadline:  # psycopg looks every 0.1 seconds
                    raise psycopg.OperationalError(f"no answer within {self.seconds:g} seconds")
                state = gen.send(ready)
        except StopIteration as ended:
            answer: T = ended.value
            return answer


def parse_postgres_url(url: str, what: str = "the ledger") -> tuple[str, str, str]:
    """Return the URL for libpq, the name of the schema, and the address without user and password.

    Parameters
    ----------
    url
        The URL. Its parameter ``schema`` is not for libpq.
    what
        What the URL is of, for messages.

    Examples
    --------
    >>> parse_postgres_url("postgresql://me:secret@db.internal/shop?schema=promises&sslmode=require")[1:]
    ('promises', 'postgresql://db.internal/shop (schema promises)')
    """
    try:
        parts = urlsplit(url)
        query = parse_qsl(parts.query, keep_blank_values=True)
        schema = dict(query).get("schema", "fairsync")
        options = [(name, value) for name, value in query if name not in ("schema", "client_encoding")]
        options.append(("client_encoding", "UTF8"))  # otherwise text from a database in SQL_ASCII would be bytes
        # libpq takes "+" for itself, and "postgresql:/database" for no URL.
        conninfo = f"postgresql://{parts.netloc}{parts.path}?{urlencode(options, quote_via=quote)}"
        psycopg.conninfo.conninfo_to_dict(conninfo)
        host = parts.netloc.rpartition("@")[2] or "localhost"
        # A "/", "?" or "#" in the password ends the part before the host: then the rest is no host and no port.
        if "@" in parts.path + parts.query or parts.fragment or not all(map(_HOST.fullmatch, host.split(","))):
            raise ValueError
    except (ValueError, psycopg.Error):
        # The message does not repeat the URL: it may hold a password.
        raise InvalidInputError(
            f"the URL of {what} cannot be read: write postgresql://[user[:password]@]host[:port]/database, with"
            " special characters of the password as %XX."
        ) from None
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,62}", schema):
        raise InvalidInputError(f"schema={schema!r} is no plain name of a Postgres schema: use letters, digits and _.")
    return conninfo, schema, f"postgresql://{host}{parts.path} (schema {schema})"
