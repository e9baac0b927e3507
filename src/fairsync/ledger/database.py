"""The interface of a database of a ledger: transactions, in SQLite or Postgres."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

T = TypeVar("T")
# What a transaction does, and what it excludes. "read": it reads one snapshot. "statement": it is a single statement.
# "write": it writes, side by side with all others. "exclusive": it writes, and excludes others of this mode, such as
# grants of leases, horizons that begin, and entries that are added to totals.
Mode = Literal["read", "statement", "write", "exclusive"]


class Transaction(Protocol):
    """A transaction under way.

    Queries have parameters like ``:name``, and placeholders for what differs between the two: ``{now}``, the seconds
    since 1970 by the database's clock, ``{ids}``, a subquery of the values of the JSON array ``:ids``, and
    ``{for_update}``, which locks the rows that are read.
    """

    def execute(self, query: str, /, **values: object) -> list[tuple[Any, ...]]:
        """Run a query, and return its rows."""
        ...

    def execute_last(self, query: str, /, **values: object) -> None:
        """Run the last query of a transaction, which returns no rows, and commit with it in one round trip."""
        ...

    def insert(self, table: str, columns: Mapping[str, Sequence[object]], at: str | None = None) -> None:
        """Insert rows, given by columns; the column ``at`` gets the time."""
        ...


class Database(Protocol):
    """A database with the tables of a ledger. It is thread-safe: one transaction runs at a time.

    Attributes
    ----------
    address : str
        Where the ledger is, for messages. It has no password.
    session : int
        Number of the connection; it changes when a lost connection was replaced.
    """

    address: str
    session: int

    @property
    def types(self) -> Mapping[str, str]:
        """The names of the types of ``schema.sql`` in this database."""
        ...

    def run(self, action: Callable[[Transaction], T], mode: Mode = "write", *, durable: bool = True) -> T:
        """Run an action in a transaction: committed if it returns, rolled back if it raises.

        Parameters
        ----------
        action
            What to do. It is repeated if the connection was lost, so that what it writes must be idempotent.
        mode
            What the transaction does, and what it excludes until it ends.
        durable
            Whether what was written must survive a crash of the server when this returns. What is written without can
            be lost, but only together with all that was written later.
        """
        ...

    def read_format(self, transaction: Transaction) -> int:
        """Return the format of the tables, 0 if there are none; refuse tables that are no ledger."""
        ...

    def make_room(self, transaction: Transaction) -> None:
        """Create what the tables are created in, if it does not exist."""
        ...

    def write_format(self, transaction: Transaction, number: int) -> None:
        """Set the format of the tables."""
        ...

    def make_append_only(self, transaction: Transaction, table: str) -> None:
        """Have the database refuse changes and deletions of rows of a table."""
        ...

    def allow_long(self, transaction: Transaction) -> None:
        """Let the transaction under way take long, as a backup does."""
        ...

    def begin(self) -> None:
        """Prepare for use, once the tables are there."""
        ...

    def check(self) -> list[str]:
        """Return what may lose or damage the ledger, each a sentence; nothing if all is well."""
        ...

    def close(self) -> None:
        """Release files and connections."""
        ...
