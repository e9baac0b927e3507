"""The tables of a ledger that a backup has, and how to read and write them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fairsync.ledger.database import Transaction

# The columns of each table of ``schema.sql``; the first one is the primary key. Leases are missing, because they end
# long before a backup is restored.
TABLES = {
    "facts": ("name", "value"),
    "horizons": ("number", "requests", "relevance", "cost", "forced", "began", "exposures", "impressions"),
    "entries": ("number", "requests", "relevance", "cost", "forced", "exposures", "impressions"),
    "keys": ("number", "key", "recorded_at"),
    "answers": ("number", "request_id", "answer", "answered_at"),
    "expired_answers": ("number", "request_id"),
    "saved": ("name", "value"),
    "items": ("number", "id", "attributes", "embedding", "catalog", "changed_at"),
    "audit": ("number", "id", "record", "digest"),
}
# Tables whose numbers the database assigns.
SERIAL = ("entries", "keys", "answers", "expired_answers", "items")
# Approximate size of a piece in bytes, and the number of rows of the first and of the largest piece.
_PIECE_BYTES, _FIRST_ROWS, _MOST_ROWS = 4_000_000, 8, 5_000


def read_pieces(transaction: Transaction, table: str) -> Iterator[list[tuple[Any, ...]]]:
    """Yield the rows of a table in the order of its key, some megabytes at a time."""
    columns = TABLES[table]
    key, n_rows = columns[0], _FIRST_ROWS
    query = f"SELECT {', '.join(columns)} FROM {table} {{}} ORDER BY {key} LIMIT :n_rows"
    rows = transaction.execute(query.replace("{}", ""), n_rows=n_rows)
    while rows:
        yield rows
        size = sum(len(value) for row in rows for value in row if isinstance(value, bytes | str))
        n_rows = max(min(len(rows) * _PIECE_BYTES // max(size, 1), _MOST_ROWS, 8 * n_rows), 1)
        rows = transaction.execute(query.replace("{}", f"WHERE {key} > :after"), n_rows=n_rows, after=rows[-1][0])


def write_fact(transaction: Transaction, name: str, value: str) -> None:
    """Write a row of the table ``facts``, replacing the one of the same name."""
    transaction.execute(
        "INSERT INTO facts VALUES (:name, :value) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        name=name,
        value=value,
    )
